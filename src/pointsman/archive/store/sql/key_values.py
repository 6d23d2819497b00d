"""Small values that the archive keeps about itself, by name."""

from __future__ import annotations

from pointsman.archive.store.sql.database import Database


class SqlKeyValues:
    """Fits `KeyValueStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, name: str) -> str | None:
        with self._database.reading() as connection:
            row = connection.execute("SELECT value FROM memos WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def write(self, name: str, value: str) -> None:
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO memos VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
            )
