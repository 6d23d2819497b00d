"""Pointsman: one URL in front of all your MCP servers."""

__version__ = "0.2.0"
