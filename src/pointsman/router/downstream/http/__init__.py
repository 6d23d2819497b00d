"""Servers over HTTP: streamable HTTP in both eras and the old SSE transport."""
