"""What the archive holds and what may be asked of it. Plain data."""
