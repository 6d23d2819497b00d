"""Clients that others wrote, set up as docs/guide/clients.md says, against a whole gateway."""
