"""Malformed input for everything that reads bytes from outside. `make fuzz` runs it for a minute."""

MAX_BYTES = 200_000  # of one input
