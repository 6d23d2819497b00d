"""Which files are read, and what that does to an order."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.archive.context.accesses import HALF_LIFE_S, Popularity, StoredAccesses
from pointsman.archive.model.context import Access, ContextItem
from pointsman.archive.store.sqlite.storage import SqliteStorage
from tests.archive.engines import Place


def item(module: str | None = None, path: str | None = None) -> ContextItem:
    return ContextItem("1", "discovery", "rule", "", "x", "2026-01-01T00:00:00Z", module=module, path=path)


def first_folder(path: str) -> str | None:
    return path.partition("/")[0]


def test_reads_are_counted_and_written_down_beside_the_readers(place: Place) -> None:
    storage = place.open()
    times = iter([1.0, 2.0, 3.0])
    accesses = StoredAccesses(storage.context, wall_clock=lambda: next(times))
    accesses.record("app", "src/a.ts")
    accesses.record("app", "src/b.ts")
    accesses.record("app", "src/a.ts")
    accesses.close()
    assert storage.context.accesses(10) == [Access("app", "src/a.ts", 2, 3.0), Access("app", "src/b.ts", 1, 2.0)]
    storage.context.record_accesses([Access("app", "src/b.ts", 4, 9.0)])
    assert storage.context.accesses(1) == [Access("app", "src/b.ts", 5, 9.0)]
    storage.close()


def test_a_store_that_cannot_be_written_costs_no_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = SqliteStorage(tmp_path / "store.db", busy_s=0)
    other = SqliteStorage(tmp_path / "store.db", busy_s=0)
    accesses = StoredAccesses(storage.context)
    with other.database.writing():
        accesses.record("app", "a.ts")
        accesses.close()
    assert "1 file reads were not recorded" in caplog.text
    for one in (storage, other):
        one.close()


def test_what_is_read_most_and_last_is_the_most_popular() -> None:
    now = 10 * HALF_LIFE_S
    accesses = [Access("r", "auth/a.ts", 8, now), Access("r", "old/b.ts", 8, 0.0), Access("r", "db/c.ts", 2, now)]
    popularity = Popularity(accesses, now, first_folder)
    assert popularity.of(item(module="AUTH")) == 1.0
    assert popularity.of(item(path="db/c.ts")) == popularity.of(item(module="db"))
    assert 1.0 > popularity.of(item(module="db")) > popularity.of(item(module="old")) > 0
    assert popularity.of(item(module="unknown")) == popularity.of(item()) == 0
    assert Popularity([], now, first_folder).of(item(module="auth")) == 0
