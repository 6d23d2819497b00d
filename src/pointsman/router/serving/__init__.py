"""The process: socket, signals, reload, state folder, keys, background tasks, shares."""
