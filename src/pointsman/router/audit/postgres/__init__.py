"""The audit in PostgreSQL: rows of several gateways, in partitions by day."""
