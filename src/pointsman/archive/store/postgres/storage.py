"""The store as a whole: one namespace of a PostgreSQL database and the parts that work on it."""

from __future__ import annotations

from pointsman.archive.store.postgres.compaction import compact_postings
from pointsman.archive.store.postgres.context_words import ContextWords
from pointsman.archive.store.postgres.database import PostgresDatabase
from pointsman.archive.store.postgres.vectors import PostgresVectors, PostgresVectorSearch, keep_index
from pointsman.archive.store.sql.storage import SqlStorage


class PostgresStorage(SqlStorage):
    """Fits `Storage`."""

    def __init__(self, url: str, schema: str) -> None:
        """Raises StoreError."""
        self.database = PostgresDatabase(url, schema)
        super().__init__(self.database, ContextWords(), self._finish)
        self.vectors = PostgresVectors(self.database, self.housekeeper.wake)
        self.vector_search = PostgresVectorSearch(self.database)

    def _finish(self) -> None:
        compact_postings(self.database)
        keep_index(self.database, self.vector_search)
