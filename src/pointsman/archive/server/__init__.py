"""The archive as an MCP server: stdio loop, tool calls, rate limits."""
