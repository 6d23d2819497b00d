"""What a daemon needs: socket, signals, reload, state folder, keys, background tasks, limits."""
