"""Full-text indexes that callers create and fill, in memory or in the store."""
