"""Creates the tables of a new file, and migrates an older one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from pointsman.archive.store.errors import StoreUnusableError
from pointsman.core.sqlite import write_transaction

APPLICATION_ID = 0x70746D61  # "ptma": marks a file as ours

Script = str
"""SQL statements, separated by semicolons at the ends of lines."""


def migrate(connection: sqlite3.Connection, versions: Sequence[Sequence[Script]]) -> None:
    """Bring a file to the latest of `versions`, in one transaction: each is a list of scripts.

    A file of the latest version is not written: a process that only reads needs neither the lock nor disk space.

    Raises:
        StoreUnusableError: it is not ours, or newer than this program.
    """
    if _read_version(connection, len(versions)) == len(versions):
        return
    with write_transaction(connection):
        present = _version(connection, len(versions))
        for number, scripts in enumerate(versions[present:], start=present + 1):
            for script in scripts:
                for statement in _statements(script):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _read_version(connection: sqlite3.Connection, latest: int) -> int:
    """In a transaction of its own: another process may be creating the tables at this moment."""
    connection.execute("BEGIN")
    try:
        return _version(connection, latest)
    finally:
        connection.execute("ROLLBACK")


def _version(connection: sqlite3.Connection, latest: int) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and tables:
        raise StoreUnusableError("is a database, but not an archive of Pointsman's. Name another file in `db`.")
    if version > latest:
        raise StoreUnusableError(
            f"was written by a newer Pointsman (version {version} of the store; this one supports up to {latest}). "
            "Upgrade Pointsman, or name another file in `db`."
        )
    return int(version)


def _statements(script: Script) -> list[str]:
    """Split where SQLite calls a statement complete: triggers contain semicolons of their own."""
    statements, gathered = [], ""
    for line in script.splitlines(keepends=True):
        gathered += line
        if sqlite3.complete_statement(gathered):
            statements.append(gathered)
            gathered = ""
    assert not gathered.strip(), f"unfinished statement: {gathered}"
    return statements
