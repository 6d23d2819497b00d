"""The `pointsman` command: `run`, `setup` and `show` hold one module per command, `common` what they share."""
