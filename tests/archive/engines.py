"""Both engines of the store, for tests that run on each.

A test asks for `storage` (an open, empty store), or for `place` to open it several times, as several processes would.
A fixture of a wider scope calls `new_store`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest

from pointsman.archive.settings import PostgresStore, read_settings
from pointsman.archive.store.postgres.database import PostgresDatabase
from pointsman.archive.store.postgres.storage import PostgresStorage
from pointsman.archive.store.sqlite.storage import SqliteStorage

ENGINES = ("sqlite", "postgres")

AnyStorage: TypeAlias = SqliteStorage | PostgresStorage

_numbers = count()


@dataclass(frozen=True)
class Place:
    """Where a store is."""

    database: Path | PostgresStore

    def open(self) -> AnyStorage:
        if isinstance(self.database, PostgresStore):
            return PostgresStorage(self.database.url, self.database.schema)
        return SqliteStorage(self.database)

    @property
    def engine(self) -> str:
        return "postgres" if isinstance(self.database, PostgresStore) else "sqlite"

    def replace_by(self, other: Place) -> None:
        """Put another store in the place of this one, as an operator would.

        PostgreSQL looks names up anew in each statement, also within a transaction: a writer that is at work meanwhile
        would read one store and write the other. With the lock of writers, none is.
        """
        if isinstance(self.database, PostgresStore):
            assert isinstance(other.database, PostgresStore)
            database = PostgresDatabase(self.database.url, self.database.schema)
            with database.writing() as connection:
                connection.execute(f'ALTER SCHEMA {self.database.schema} RENAME TO "{self.database.schema}_old"')
                connection.execute(f"ALTER SCHEMA {other.database.schema} RENAME TO {self.database.schema}")
            database.close()
            return
        assert isinstance(other.database, Path)
        for leftover in ("-wal", "-shm"):
            self.database.with_name(self.database.name + leftover).unlink(missing_ok=True)
        other.database.replace(self.database)

    @property
    def environment(self) -> dict[str, str]:
        """For a process that uses it."""
        if isinstance(self.database, PostgresStore):
            return {"SEARCH_DB_PATH": self.database.url, "SEARCH_DB_SCHEMA": self.database.schema}
        return {"SEARCH_DB_PATH": str(self.database)}


def place_in(environment: Mapping[str, str]) -> Place:
    """The reverse of `Place.environment`."""
    database = read_settings(environment).database
    assert database is not None
    return Place(database)


def new_store(request: pytest.FixtureRequest, folder: Path, engine: str) -> Place:
    """An empty store: a file in `folder`, or tables of its own in the database of this pytest process."""
    if engine == "sqlite":
        return Place(folder / "archive.db")
    url: str = request.getfixturevalue("archive_database")
    return Place(PostgresStore(url, f"store_{next(_numbers)}"))
