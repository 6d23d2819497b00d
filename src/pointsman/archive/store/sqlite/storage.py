"""The store as a whole: one SQLite file and the parts that work on it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pointsman.archive.store.base import VectorSearch
from pointsman.archive.store.sql import citations, context, documents, indexes, vectors
from pointsman.archive.store.sql.archives import SqlArchives
from pointsman.archive.store.sql.context import SqlContext
from pointsman.archive.store.sql.documents import SqlDocuments
from pointsman.archive.store.sql.housekeeper import Housekeeper
from pointsman.archive.store.sql.indexes import SqlIndexes
from pointsman.archive.store.sql.key_values import SqlKeyValues
from pointsman.archive.store.sql.passages import SqlPassages
from pointsman.archive.store.sql.vectors import SqlVectors
from pointsman.archive.store.sql.words import SqlWords
from pointsman.archive.store.sqlite import context_words, first_version
from pointsman.archive.store.sqlite.database import BUSY_S, SqliteDatabase

_KEY_VALUE_SCHEMA = """
CREATE TABLE memos (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""

VERSIONS = (
    (
        documents.SCHEMA,
        first_version.PASSAGES,
        vectors.SCHEMA,
        citations.SCHEMA,
        first_version.VOCABULARY,
        context.SCHEMA,
        context_words.SCHEMA,
        indexes.SCHEMA,
        _KEY_VALUE_SCHEMA,
    ),
    (first_version.upgrade,),
)


class SqliteStorage:
    """Fits `Storage`. Ends with `close`."""

    vector_search: VectorSearch | None = None

    def __init__(self, path: Path, *, busy_s: float = BUSY_S) -> None:
        self.database = SqliteDatabase(path, VERSIONS, busy_s=busy_s)
        words = SqlWords(self.database)
        self.housekeeper = Housekeeper(self.database, words, self.database.checkpoint)
        self.documents = SqlDocuments(self.database, self.housekeeper.wake)
        self.passages = SqlPassages(self.database, words)
        self.context = SqlContext(self.database, context_words.rank)
        self.vectors = SqlVectors(self.database)
        self.archives = SqlArchives(self.database, words, self.housekeeper.wake)
        self.indexes = SqlIndexes(self.database)
        self.key_values = SqlKeyValues(self.database)

    def reading(self) -> AbstractContextManager[object]:
        return nullcontext()

    def turn(self, task: str) -> AbstractContextManager[bool]:
        return self.database.turn(task)

    def wake_housekeeper(self) -> None:
        self.housekeeper.wake()

    def tidy(self) -> None:
        self.housekeeper.tidy()

    def close(self) -> None:
        self.housekeeper.close()
        self.database.close()
