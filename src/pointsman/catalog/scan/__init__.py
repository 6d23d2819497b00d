"""Flags definitions that an operator should read, whenever a list changes."""
