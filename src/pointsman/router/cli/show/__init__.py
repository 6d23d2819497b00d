"""Commands that show what the gateway has and does, and try its tools."""
