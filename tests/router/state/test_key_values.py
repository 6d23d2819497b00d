"""The key-value store, the same in both engines: compare-and-set, expiry, and many writers at once."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from pointsman.core.postgres import Postgres
from pointsman.router.state.key_values import ABSENT, KeyValues, StateAwayError
from pointsman.router.state.postgres_values import PostgresKeyValues
from pointsman.router.state.sqlite_values import FILE, SqliteKeyValues
from pointsman.router.state.tables import StateTables
from tests.postgres import Postgres as Server
from tests.router.conftest import Open


def test_a_value_is_replaced_only_if_it_has_the_version(open_values: Open) -> None:
    one, other = open_values(), open_values()
    assert one.get("a") is None
    first = one.put("a", b"1", version=ABSENT)
    assert first is not None
    assert other.put("a", b"2", version=ABSENT) is None
    second = other.put("a", b"2", version=first)
    assert second is not None
    assert one.put("a", b"3", version=first) is None
    assert one.get("a") == (b"2", second)
    assert one.put("a", b"4") is not None
    assert not other.delete("a", version=second)
    assert other.delete("a")
    assert not other.delete("a")
    assert one.get("a") is None
    again = one.put("a", b"1", version=ABSENT)
    assert again not in (first, second, None)  # who read it before it was deleted does not mistake it


def test_an_expired_key_does_not_exist(open_values: Open) -> None:
    values = open_values()
    version = values.put("a", b"1", life_s=0.05)
    assert values.put("kept", b"", life_s=60) is not None
    deadline = time.monotonic() + 10
    while values.get("a") is not None:
        assert time.monotonic() < deadline
    assert values.list("") == {"kept": values.get("kept")}
    assert not values.delete("a")
    assert values.put("a", b"2", version=version) is None
    assert values.put("a", b"2", version=ABSENT) is not None


def test_keys_are_listed_by_prefix_and_in_order(open_values: Open) -> None:
    values = open_values()
    for key in ("p/b", "p/a", "p/%", "q", "p", "p/ä", "P/a"):
        values.put(key, key.encode())
    assert list(values.list("p/")) == ["p/%", "p/a", "p/b", "p/ä"]
    assert {key: entry.value.decode() for key, entry in values.list("p/").items()} == {
        key: key for key in ("p/%", "p/a", "p/b", "p/ä")
    }
    assert len(values.list("")) == 7


def test_of_many_writers_at_once_each_step_is_one_writers(open_values: Open) -> None:
    """Counts with compare-and-set: no step is lost."""
    stores = [open_values() for _ in range(4)]
    stores[0].put("count", b"0")

    def count(values: KeyValues) -> None:
        for _ in range(25):
            while True:
                entry = values.get("count")
                assert entry is not None
                if values.put("count", b"%d" % (int(entry.value) + 1), version=entry.version) is not None:
                    break

    threads = [threading.Thread(target=count, args=(values,)) for values in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    final = stores[1].get("count")
    assert final is not None
    assert final.value == b"100"


def test_of_many_who_use_a_code_one_is_the_first(open_values: Open) -> None:
    firsts: list[int | None] = []
    stores = [open_values() for _ in range(8)]
    threads = [
        threading.Thread(target=lambda values=values: firsts.append(values.put("code", b"", version=ABSENT)))
        for values in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(firsts) == 8
    assert sum(version is not None for version in firsts) == 1


@pytest.mark.parametrize("key", ["", "a\0b", "a\nb", "x" * 513])
def test_what_not_every_engine_can_store_is_refused(open_values: Open, key: str) -> None:
    values = open_values()
    with pytest.raises(ValueError, match="printable"):
        values.put(key, b"")
    with pytest.raises(ValueError, match="bytes"):
        values.put("a", b"x" * 1_048_577)


def test_the_file_is_made_by_the_first_value_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    values = SqliteKeyValues(tmp_path)
    assert values.get("a") is None
    assert values.list("") == {}
    assert os.listdir(tmp_path) == []
    values.put("a", b"1")
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    values.close()
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    with pytest.raises(StateAwayError, match=r"values\.db cannot be used"):
        SqliteKeyValues(tmp_path).get("a")


def test_a_server_that_is_away_is_said_and_found_again(own_postgres: Server) -> None:
    postgres = Postgres(own_postgres.new_database(), program="test")
    values = PostgresKeyValues(StateTables(postgres))
    values.put("a", b"1")
    own_postgres.stop()
    with pytest.raises(StateAwayError, match="PostgreSQL cannot be reached"):
        values.get("a")
    own_postgres.start()
    entry = values.get("a")
    assert entry is not None
    assert entry.value == b"1"
    postgres.close()


def test_a_change_of_several_keys_is_one_step_among_many_writers(open_values: Open) -> None:
    stores = [open_values() for _ in range(3)]

    def add_one(now: float, values: Mapping[str, bytes]) -> dict[str, tuple[bytes, float]]:
        assert abs(now - time.time()) < 60
        return {key: (b"%d" % (int(values.get(key, b"0")) + 1), 60.0) for key in ("a", "b")}

    def work(store: KeyValues, keys: tuple[str, str]) -> None:
        for _ in range(20):
            store.change(keys, add_one)

    orders = (("a", "b"), ("b", "a"), ("a", "b"))
    threads = [threading.Thread(target=work, args=each) for each in zip(stores, orders, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [entry.value for entry in stores[0].list("").values()] == [b"60", b"60"]


def test_a_change_that_fails_or_wants_nothing_leaves_all_as_it_was(open_values: Open) -> None:
    values = open_values()
    assert values.put("a", b"1", life_s=0.01) is not None
    time.sleep(0.02)
    seen: list[Mapping[str, bytes]] = []

    def look(now: float, given: Mapping[str, bytes]) -> dict[str, tuple[bytes, float]]:
        seen.append(given)
        return {}

    def fail(now: float, given: Mapping[str, bytes]) -> dict[str, tuple[bytes, float]]:
        raise ZeroDivisionError

    values.change(("a", "b"), look)
    with pytest.raises(ZeroDivisionError):
        values.change(("a", "b"), fail)
    assert seen == [{}]
    assert (values.get("a"), values.get("b"), dict(values.list(""))) == (None, None, {})
    assert values.put("b", b"2", version=ABSENT) is not None


def test_another_process_that_ends_does_not_take_the_writes_of_this_one_away(tmp_path: Path) -> None:
    """Two stores in one process: to open the second must not release the locks of the first."""
    one, other = SqliteKeyValues(tmp_path), SqliteKeyValues(tmp_path)
    one.put("a", b"1")
    assert other.get("a") is not None
    read = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT key FROM key_values').fetchall())"
    program = [sys.executable, "-I", "-S", "-c", read, str(tmp_path / FILE)]
    subprocess.run(program, check=True, capture_output=True)  # without the locks, it would remove the log at its end
    one.put("b", b"2")
    seen = subprocess.run(program, check=True, capture_output=True, text=True).stdout
    assert seen.strip() == "[('a',), ('b',)]"
    one.close()
    other.close()
