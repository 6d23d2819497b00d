"""The audit on a real PostgreSQL."""
