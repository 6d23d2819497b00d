"""A cache on disk: bounded, shared by processes, and never worse than none."""

from __future__ import annotations

import logging
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman.providers.disk_cache import DiskCache

DAY_S = 86_400.0
# Writes values that follow from their digests, one block after the other, and says how many there are.
WRITER = """
import sys
from pathlib import Path
from pointsman.providers.disk_cache import DiskCache

cache, first = DiskCache(Path(sys.argv[1])), int(sys.argv[2])
for start in range(first, first + int(sys.argv[3]), 50):
    numbers = range(start, start + 50)
    cache.put({number.to_bytes(16, "big"): str(number).encode() * 50 for number in numbers})
    print(start + 50, flush=True)
"""


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


def value(number: int) -> bytes:
    return str(number).encode() * 50


def writer(path: Path, first: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), str(first), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_values_survive_a_restart_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    DiskCache(path).put({digest(number): value(number) for number in range(1_200)})
    assert path.stat().st_mode & 0o777 == 0o600
    found = DiskCache(path).get([digest(number) for number in range(1_300)])
    assert found == {digest(number): value(number) for number in range(1_200)}


def test_the_file_stays_within_its_bytes_and_keeps_what_was_used_last(tmp_path: Path) -> None:
    now, path = 0.0, tmp_path / "cache.db"
    cache = DiskCache(path, max_bytes=400_000, clock=lambda: now)
    cache.put({digest(0): b"used every day"})
    for day in range(1, 31):
        now = day * DAY_S
        assert cache.get([digest(0)]) == {digest(0): b"used every day"}
        cache.put({digest(1_000 * day + number): b"x" * 1_000 for number in range(100)})
        assert path.stat().st_size < 2 * 400_000
    newest = cache.get([digest(30_000 + number) for number in range(100)])
    assert len(newest) == 100
    assert cache.get([digest(1_000 + number) for number in range(100)]) == {}


def test_a_value_that_was_changed_is_not_returned(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    cache = DiskCache(path)
    cache.put({digest(1): b"one", digest(2): b"two", digest(3): b"three"})
    with sqlite3.connect(path) as database:
        database.execute("UPDATE entries SET value = zeroblob(20) WHERE digest = ?", (digest(1),))
        database.execute(
            "UPDATE entries SET value = (SELECT value FROM entries WHERE digest = ?) WHERE digest = ?",
            (digest(3), digest(2)),
        )
    database.close()
    assert cache.get([digest(number) for number in (1, 2, 3)]) == {digest(3): b"three"}


@pytest.mark.parametrize("content", [b"no database" * 1_000, b"SQLite format 3\0" + b"\xff" * 4_096])
def test_a_corrupt_file_is_replaced_with_one_line_in_the_log(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cache.db"
    path.write_bytes(content)
    cache = DiskCache(path)
    assert cache.get([digest(1)]) == {}
    cache.put({digest(1): b"one"})
    assert cache.get([digest(1)]) == {digest(1): b"one"}
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_full_or_forbidden_place_costs_only_the_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = DiskCache(tmp_path / "missing" / "cache.db")
    with caplog.at_level(logging.WARNING):
        cache.put({digest(1): b"one"})
        assert cache.get([digest(1)]) == {}
    assert len(caplog.records) == 1


def test_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    writers = [writer(path, first, 1_000) for first in (0, 1_000)]
    for each in writers:
        each.communicate(timeout=60)
        assert each.returncode == 0
    found = DiskCache(path).get([digest(number) for number in range(2_000)])
    assert found == {digest(number): value(number) for number in range(2_000)}


@pytest.mark.parametrize("blocks", [1, 7, 20])
def test_a_kill_leaves_whole_blocks(tmp_path: Path, blocks: int) -> None:
    path = tmp_path / "cache.db"
    with writer(path, 0, 1_000_000) as killed:
        assert killed.stdout is not None
        for _ in range(blocks):
            written = int(killed.stdout.readline())
        killed.send_signal(signal.SIGKILL)
    cache = DiskCache(path)
    found = cache.get([digest(number) for number in range(written + 1_000)])
    assert len(found) >= written
    assert len(found) % 50 == 0
    assert all(data == value(int.from_bytes(key, "big")) for key, data in found.items())
    cache.put({digest(5_000_000): b"goes on"})
    assert cache.get([digest(5_000_000)]) == {digest(5_000_000): b"goes on"}
