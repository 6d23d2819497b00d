"""Creates the tables of a new file, and migrates an older one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from pointsman.archive.store.errors import StoreUnusableError
from pointsman.core.sqlite import write_transaction

APPLICATION_ID = 0x70746D61  # "ptma": marks a file as ours

Script = str | Callable[[sqlite3.Connection], None]
"""SQL statements, separated by semicolons at the ends of lines; or what executes them."""


def migrate(connection: sqlite3.Connection, versions: Sequence[Sequence[Script]]) -> bool:
    """Bring a file to the latest of `versions`, in one transaction: each is a list of scripts.

    True: it had been of an older one.

    A file of the latest version is not written: a process that only reads needs neither the lock nor disk space.

    Raises:
        StoreUnusableError: it is not ours, or newer than this program.
    """
    if _read_version(connection, len(versions)) == len(versions):
        return False
    with write_transaction(connection):
        present = _version(connection, len(versions))
        for number, scripts in enumerate(versions[present:], start=present + 1):
            for script in scripts:
                if isinstance(script, str):
                    execute(connection, script)
                else:
                    script(connection)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    return present > 0


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


def execute(connection: sqlite3.Connection, script: str) -> None:
    """Execute the statements of a script within the caller's transaction."""
    for statement in _statements(script):
        connection.execute(statement)


def _statements(script: str) -> list[str]:
    """Split where SQLite calls a statement complete: triggers contain semicolons of their own."""
    statements, gathered = [], ""
    for line in script.splitlines(keepends=True):
        gathered += line
        if sqlite3.complete_statement(gathered):
            statements.append(gathered)
            gathered = ""
    assert not gathered.strip(), f"unfinished statement: {gathered}"
    return statements
