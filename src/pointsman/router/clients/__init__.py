"""The configuration files of MCP clients: where they are, how they are written, and what they contain."""
