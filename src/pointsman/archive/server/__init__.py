"""The archive as an MCP server: the stdio loop, calls, limits and log."""
