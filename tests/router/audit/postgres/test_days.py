"""A partition for each day, made ahead; days are dropped by age and by size, and no row is without a place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.core.postgres import Postgres
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.kept import move
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.postgres.tables import DAY_MS, AuditTables, days_of
from pointsman.router.audit.postgres.writer import PostgresWriter
from pointsman.router.audit.query import read_rows
from pointsman.router.audit.segments import FOLDER
from tests.router.audit.postgres.samples import kept, opened
from tests.router.audit.samples import Clock, request

DAY_S = DAY_MS // 1000


@pytest.fixture
def postgres(database_url: str) -> Iterator[Postgres]:
    with opened(database_url) as postgres:
        yield postgres


def days(postgres: Postgres) -> list[int]:
    """From today on."""
    today = int(time.time() * 1000) // DAY_MS
    with postgres.connection() as connection:
        return sorted(day // DAY_MS - today for day, _ in days_of(connection))


def write(postgres: Postgres, folder: Path, *ages: int) -> None:
    wall = Clock()
    log = AuditLog(Journal(folder / FOLDER), wall=wall)
    for age in ages:
        wall.now = time.time() - age * DAY_S
        log.begin(request(f"{age}"), "execute").finish("ok")
    log.close()
    move(PostgresWriter(postgres, "a"), folder / FOLDER, None)


def ages_of(postgres: Postgres, folder: Path) -> set[int]:
    return {int(row.request_id) for row in read_rows(kept(postgres, folder))}


def test_days_are_made_a_week_ahead_and_a_row_of_another_day_is_kept_too(tmp_path: Path, postgres: Postgres) -> None:
    write(postgres, tmp_path, 0, 1, 400, -400)
    assert days(postgres) == list(range(-1, 8))
    assert ages_of(postgres, tmp_path) == {0, 1, 400, -400}
    with postgres.connection() as connection:
        row = connection.execute("SELECT count(*) FROM audit_default").fetchone()
    assert row == (2,)


def test_a_day_that_has_rows_in_the_default_partition_is_left_there(tmp_path: Path, postgres: Postgres) -> None:
    write(postgres, tmp_path, 30)
    today = int(time.time() * 1000)
    AuditTables(postgres).make_days(today - 31 * DAY_MS, today - 29 * DAY_MS)
    assert days(postgres)[:2] == [-31, -29]
    assert ages_of(postgres, tmp_path) == {30}


def test_old_days_are_dropped_and_the_rest_stays(tmp_path: Path, postgres: Postgres) -> None:
    today = int(time.time() * 1000)
    AuditTables(postgres).make_days(today - 100 * DAY_MS, today)
    write(postgres, tmp_path, 0, 50, 95, 99, 400)
    PostgresWriter(postgres, "b").trim(older_than_ms=today - 90 * DAY_MS, max_bytes=10**12)
    assert days(postgres)[0] == -90
    assert ages_of(postgres, tmp_path) == {0, 50}


def test_beyond_its_size_the_oldest_days_are_dropped_but_never_the_present_one(
    tmp_path: Path, postgres: Postgres
) -> None:
    today = int(time.time() * 1000)
    AuditTables(postgres).make_days(today - 5 * DAY_MS, today)
    write(postgres, tmp_path, *[age for age in range(6) for _ in range(500)])
    with postgres.connection() as connection:
        row = connection.execute(
            "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'audit'::regclass"
        ).fetchone()
        assert row is not None
        used = int(row[0])
    writer = PostgresWriter(postgres, "a")
    writer.trim(older_than_ms=0, max_bytes=used * 3 // 4)
    left = ages_of(postgres, tmp_path)
    assert left == set(range(max(left) + 1))
    assert 1 < len(left) < 6
    writer.trim(older_than_ms=0, max_bytes=1)
    assert ages_of(postgres, tmp_path) == {0}
