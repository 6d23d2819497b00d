"""The store as a whole: one file and the parts that work on it."""

from __future__ import annotations

from pathlib import Path

from pointsman.archive.store.sqlite import citations, context, documents, indexes, vectors, vocabulary, writing
from pointsman.archive.store.sqlite import key_value as memos
from pointsman.archive.store.sqlite.archives import SqliteArchives
from pointsman.archive.store.sqlite.context import SqliteContext
from pointsman.archive.store.sqlite.database import BUSY_S, Database
from pointsman.archive.store.sqlite.documents import SqliteDocuments
from pointsman.archive.store.sqlite.housekeeping import Housekeeper
from pointsman.archive.store.sqlite.indexes import SqliteIndexes
from pointsman.archive.store.sqlite.key_value import SqliteKeyValues
from pointsman.archive.store.sqlite.passages import SqlitePassages
from pointsman.archive.store.sqlite.vectors import SqliteVectors

VERSIONS = (
    (
        documents.SCHEMA,
        writing.SCHEMA,
        vectors.SCHEMA,
        citations.SCHEMA,
        vocabulary.SCHEMA,
        context.SCHEMA,
        indexes.SCHEMA,
        memos.SCHEMA,
    ),
)


class SqliteStorage:
    """Fits `Storage`. Ends with `close`."""

    def __init__(self, path: Path, *, busy_s: float = BUSY_S) -> None:
        self.database = Database(path, VERSIONS, busy_s=busy_s)
        self.housekeeper = Housekeeper(self.database)
        self.documents = SqliteDocuments(self.database, self.housekeeper.wake)
        self.passages = SqlitePassages(self.database)
        self.context = SqliteContext(self.database)
        self.vectors = SqliteVectors(self.database)
        self.archives = SqliteArchives(self.database, self.housekeeper.wake)
        self.indexes = SqliteIndexes(self.database)
        self.memos = SqliteKeyValues(self.database)

    def close(self) -> None:
        self.housekeeper.close()
        self.database.close()
