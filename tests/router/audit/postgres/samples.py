"""Journals with rows, and movers for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pointsman.core.postgres import Postgres
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.kept import move
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.postgres.reader import PostgresRows
from pointsman.router.audit.postgres.writer import PostgresWriter
from pointsman.router.audit.segments import FOLDER
from tests.router.audit.samples import request


@contextmanager
def opened(url: str) -> Iterator[Postgres]:
    postgres = Postgres(url, program="test")
    try:
        yield postgres
    finally:
        postgres.close()


def ended_run(state_dir: Path, name: str, *, segments: int = 4, calls: int = 5) -> list[tuple[str, str | None]]:
    """Write the journal of a run that was killed, and return its requests with the outcome that each must have.

    Each segment begins a call that the next one ends. The last one of all is interrupted.
    """
    journal = Journal(state_dir / FOLDER)
    log = AuditLog(journal)
    expected: list[tuple[str, str | None]] = []
    long_ = None
    for segment in range(segments):
        for call in range(calls):
            request_id = f"{name}-{segment}-{call}"
            log.begin(request(request_id), "execute", tool_key="a:b", server_id="a").finish("ok", bytes=call)
            expected.append((request_id, "ok"))
        if long_ is not None:
            long_.finish("timeout", "timeout")
        last = segment == segments - 1
        request_id = f"{name}-{segment}-long"
        long_ = log.begin(request(request_id), "execute", tool_key="a:long", server_id="a")
        expected.append((request_id, "interrupted" if last else "timeout"))
        if not last:
            journal.rotate()
    journal._end_run()  # as the kernel does for a process that ends
    return sorted(expected, key=str)


def move_all(postgres: Postgres, state_dir: Path) -> int:
    return move(PostgresWriter(postgres, "replica"), state_dir / FOLDER, None)


def kept(postgres: Postgres, state_dir: Path) -> PostgresRows:
    return PostgresRows(postgres, state_dir)


def in_database(postgres: Postgres) -> list[tuple[str, str | None]]:
    with postgres.connection() as connection:
        return sorted(connection.execute("SELECT request_id, outcome FROM audit").fetchall(), key=str)
