"""`pointsman stdio`: forwards MCP on stdin and stdout to the gateway over HTTP."""
