"""The store as a whole: one SQLite file and the parts that work on it."""

from __future__ import annotations

from pathlib import Path

from pointsman.archive.store.base import LargeVectorSearch
from pointsman.archive.store.sql import citations, context, documents, indexes, vectors
from pointsman.archive.store.sql.storage import SqlStorage
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


class SqliteStorage(SqlStorage):
    """Fits `Storage`."""

    vector_search: LargeVectorSearch | None = None

    def __init__(self, path: Path, *, busy_s: float = BUSY_S) -> None:
        self.database = SqliteDatabase(path, VERSIONS, busy_s=busy_s)
        super().__init__(self.database, context_words.rank, self.database.checkpoint)
