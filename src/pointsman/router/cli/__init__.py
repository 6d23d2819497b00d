"""The `pointsman` command."""
