"""Reads YAML files: plain data with the position of every value, and syntax errors in plain words."""
