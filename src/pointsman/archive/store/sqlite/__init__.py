"""The store in one SQLite file: documents, passages, index, vectors and citations change in one transaction."""
