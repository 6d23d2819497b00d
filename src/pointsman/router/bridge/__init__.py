"""`pointsman stdio`: MCP on stdin and stdout, carried to the gateway over HTTP."""
