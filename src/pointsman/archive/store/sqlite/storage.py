"""The store as a whole: one SQLite file and the parts that work on it."""

from __future__ import annotations

from pathlib import Path

from pointsman.archive.store.sqlite import citations, context, document_writer, documents, indexes, vectors, vocabulary
from pointsman.archive.store.sqlite.archives import SqliteArchives
from pointsman.archive.store.sqlite.context import SqliteContext
from pointsman.archive.store.sqlite.database import BUSY_S, Database
from pointsman.archive.store.sqlite.documents import SqliteDocuments
from pointsman.archive.store.sqlite.housekeeper import Housekeeper
from pointsman.archive.store.sqlite.indexes import SqliteIndexes
from pointsman.archive.store.sqlite.passages import SqlitePassages
from pointsman.archive.store.sqlite.vectors import SqliteVectors

_KEY_VALUE_SCHEMA = """
CREATE TABLE memos (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""

VERSIONS = (
    (
        documents.SCHEMA,
        document_writer.SCHEMA,
        vectors.SCHEMA,
        citations.SCHEMA,
        vocabulary.SCHEMA,
        context.SCHEMA,
        indexes.SCHEMA,
        _KEY_VALUE_SCHEMA,
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
        self.key_values = SqliteKeyValues(self.database)

    def close(self) -> None:
        self.housekeeper.close()
        self.database.close()


class SqliteKeyValues:
    """Fits `KeyValueStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, name: str) -> str | None:
        with self._database.reading() as connection:
            row = connection.execute("SELECT value FROM memos WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def write(self, name: str, value: str) -> None:
        with self._database.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO memos VALUES (?, ?)", (name, value))
