"""Servers as child processes: starting, reading and ending them."""
