"""The daemon: all that touches HTTP, MCP connections or processes."""
