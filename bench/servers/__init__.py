"""Trivial MCP servers, so that the gateway is what is measured."""
