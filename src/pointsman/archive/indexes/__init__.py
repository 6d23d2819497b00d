"""Search indexes that callers make and fill themselves: in memory, or kept in the store."""
