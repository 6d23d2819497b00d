"""What the owner can ask about search: what a caller finds, and how kept requests rank."""
