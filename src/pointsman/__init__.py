"""Pointsman: one URL in front of all your MCP servers."""

from importlib.metadata import version

__version__ = version("pointsman")
