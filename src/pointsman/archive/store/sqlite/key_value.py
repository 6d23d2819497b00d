"""Small things that the archive remembers about itself, by name."""

from __future__ import annotations

from pointsman.archive.store.sqlite.database import Database

SCHEMA = """
CREATE TABLE memos (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


class SqliteKeyValues:
    """Fits `Memos`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, name: str) -> str | None:
        with self._database.reading() as connection:
            found = connection.execute("SELECT value FROM memos WHERE name = ?", (name,)).fetchone()
        return found[0] if found else None

    def write(self, name: str, value: str) -> None:
        with self._database.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO memos VALUES (?, ?)", (name, value))
