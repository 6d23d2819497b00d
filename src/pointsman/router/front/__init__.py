"""The client's side: one ASGI front for both eras of MCP. Behind it stands only `core.seams.Gateway`."""
