"""A new store of each engine. PostgreSQL is the one of the tests, unless $POINTSMAN_BENCH_POSTGRES names another."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pointsman.archive.settings import PostgresStore
from tests.postgres import running_postgres

ENGINES = ("sqlite", "postgres")
ADDRESS = "POINTSMAN_BENCH_POSTGRES"


@contextmanager
def new_store(engine: str) -> Iterator[Path | PostgresStore]:
    if engine == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / "archive.db"
        return
    schema = f"bench_{secrets.token_hex(4)}"
    if address := os.environ.get(ADDRESS):
        yield PostgresStore(address, schema)
        return
    with running_postgres() as server:
        yield PostgresStore(server.new_database(), schema)
