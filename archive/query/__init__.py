"""The query language: parsed once, used by all who search."""
