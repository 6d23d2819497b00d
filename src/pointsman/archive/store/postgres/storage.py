"""The store as a whole: one namespace of a PostgreSQL database and the parts that work on it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from pointsman.archive.store.base import VectorSearch
from pointsman.archive.store.postgres.context_words import ContextWords
from pointsman.archive.store.postgres.database import PostgresDatabase
from pointsman.archive.store.postgres.vectors import PostgresVectors, PostgresVectorSearch, keep_index
from pointsman.archive.store.postgres.words import PostgresWords
from pointsman.archive.store.sql.archives import SqlArchives
from pointsman.archive.store.sql.context import SqlContext
from pointsman.archive.store.sql.documents import SqlDocuments
from pointsman.archive.store.sql.housekeeper import Housekeeper
from pointsman.archive.store.sql.indexes import SqlIndexes
from pointsman.archive.store.sql.key_values import SqlKeyValues
from pointsman.archive.store.sql.passages import SqlPassages


class PostgresStorage:
    """Fits `Storage`. Ends with `close`."""

    def __init__(self, url: str, schema: str) -> None:
        """Raises StoreError."""
        self.database = PostgresDatabase(url, schema)
        words = PostgresWords(self.database)
        self.housekeeper = Housekeeper(self.database, words, lambda: keep_index(self.database))
        self.documents = SqlDocuments(self.database, self.housekeeper.wake)
        self.passages = SqlPassages(self.database, words)
        self.context = SqlContext(self.database, ContextWords())
        self.vectors = PostgresVectors(self.database, self.housekeeper.wake)
        self.vector_search: VectorSearch | None = PostgresVectorSearch(self.database)
        self.archives = SqlArchives(self.database, words, self.housekeeper.wake)
        self.indexes = SqlIndexes(self.database)
        self.key_values = SqlKeyValues(self.database)

    def reading(self) -> AbstractContextManager[object]:
        return self.database.reading()

    def turn(self, task: str) -> AbstractContextManager[bool]:
        return self.database.turn(task)

    def wake_housekeeper(self) -> None:
        self.housekeeper.wake()

    def tidy(self) -> None:
        self.housekeeper.tidy()

    def close(self) -> None:
        self.housekeeper.close()
        self.database.close()
