"""The tables of the store and how an older file becomes a present one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from pointsman.archive.store.errors import StoreUnusableError

APPLICATION_ID = 0x70746D61  # "ptma": tells our files from other people's

Script = str
"""SQL statements, separated by semicolons at the ends of lines."""


def migrate(connection: sqlite3.Connection, versions: Sequence[Sequence[Script]]) -> None:
    """Bring a file to the latest of `versions`, in one transaction: each holds the scripts that lead to it.

    A file that is there already is not written: who only reads does not wait for a writer, and needs no room.

    Raises:
        StoreUnusableError: it is not ours, or newer than this program.
    """
    if _present_at_once(connection, len(versions)) == len(versions):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        present = _present(connection, len(versions))
        for number, scripts in enumerate(versions[present:], start=present + 1):
            for script in scripts:
                for statement in _statements(script):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _present_at_once(connection: sqlite3.Connection, latest: int) -> int:
    """In one view of the file: somebody else may be making its tables at this moment."""
    connection.execute("BEGIN")
    try:
        return _present(connection, latest)
    finally:
        connection.execute("ROLLBACK")


def _present(connection: sqlite3.Connection, latest: int) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and tables:
        raise StoreUnusableError("is a database, but not an archive of Pointsman's. Name another file in `db`.")
    if version > latest:
        raise StoreUnusableError(
            f"was written by a newer Pointsman (version {version} of the store; this one knows {latest}). "
            "Upgrade Pointsman, or name another file in `db`."
        )
    return int(version)


def _statements(script: Script) -> list[str]:
    """Cut where SQLite says that a statement is complete: triggers hold semicolons of their own."""
    statements, gathered = [], ""
    for line in script.splitlines(keepends=True):
        gathered += line
        if sqlite3.complete_statement(gathered):
            statements.append(gathered)
            gathered = ""
    assert not gathered.strip(), f"unfinished statement: {gathered}"
    return statements
