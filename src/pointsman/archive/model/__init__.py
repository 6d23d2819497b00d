"""Plain data: documents, queries, indexes, project context."""
