"""Connections to downstream servers: transports, supervision, carrying a call."""
