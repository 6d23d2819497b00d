"""MCP with a server, whatever the transport: handshake, multiplexing, questions, decoding."""
