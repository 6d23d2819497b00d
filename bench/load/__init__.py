"""Load on a server or a gateway, made by a process of its own."""
