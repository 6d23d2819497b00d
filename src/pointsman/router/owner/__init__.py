"""The owner's channel: a Unix socket in the state folder, for commands of the user who runs the gateway."""
