"""Clients that others wrote, set up as docs/clients.md says, against a whole gateway."""
