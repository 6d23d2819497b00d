"""The vectors on disk: they survive a restart, stay within their bound, and no state of the file stops a search."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pointsman.providers.semantic.encoder import DIMENSIONS
from pointsman.providers.semantic.vector_store import FILE, VectorStore

DAY_S = 86_400.0


def vector(place: int) -> NDArray[np.float16]:
    made = np.zeros(DIMENSIONS, dtype=np.float16)
    made[place] = 1
    return made


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_vectors_survive_a_restart_and_unknown_ones_are_left_out(tmp_path: Path) -> None:
    VectorStore(tmp_path / FILE).put({digest(number): vector(number % 300) for number in range(1_200)})
    found = VectorStore(tmp_path / FILE).get([digest(number) for number in range(1_300)])
    assert len(found) == 1_200
    assert (found[digest(1_199)] == vector(299)).all()


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    VectorStore(tmp_path / FILE).put({digest(1): vector(1)})
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_beyond_the_bound_those_go_that_were_not_used_for_longest(tmp_path: Path) -> None:
    now = 0.0
    store = VectorStore(tmp_path / FILE, most=3, clock=lambda: now)
    store.put({digest(number): vector(number) for number in (1, 2, 3)})
    now = DAY_S
    store.get([digest(1)])
    store.put({digest(4): vector(4), digest(5): vector(5)})
    assert store.get([digest(number) for number in range(1, 6)]).keys() == {digest(1), digest(4), digest(5)}


@pytest.mark.parametrize(
    "content", [b"no database" * 1_000, b"SQLite format 3\0" + b"\xff" * 4_096], ids=["text", "bytes"]
)
def test_a_corrupt_file_is_replaced(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).write_bytes(content)
    store = VectorStore(tmp_path / FILE)
    assert store.get([digest(1)]) == {}
    store.put({digest(1): vector(1)})
    assert store.get([digest(1)]).keys() == {digest(1)}
    assert "is corrupt" in caplog.text


def test_a_file_that_was_damaged_in_the_middle_gives_what_is_left_or_nothing(tmp_path: Path) -> None:
    store = VectorStore(tmp_path / FILE)
    store.put({digest(number): vector(number) for number in range(200)})
    data = bytearray((tmp_path / FILE).read_bytes())
    data[8_192:60_000] = b"\xa5" * (60_000 - 8_192)
    (tmp_path / FILE).write_bytes(data)
    for found in store.get([digest(number) for number in range(200)]).values():
        assert np.linalg.norm(found.astype(np.float32)) == pytest.approx(1, abs=0.1)
    store.put({digest(1): vector(1)})
    assert store.get([digest(1)]).keys() <= {digest(1)}


def test_a_file_with_another_schema_is_replaced(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("CREATE TABLE entries (other TEXT)")
    database.close()
    store = VectorStore(tmp_path / FILE)
    store.put({digest(1): vector(1)})
    assert store.get([digest(1)]).keys() == {digest(1)}


@pytest.mark.parametrize("data", [b"", b"\xff" * (2 * DIMENSIONS), b"\0" * 7, "text", 5], ids=str)
def test_what_is_no_vector_is_not_returned(tmp_path: Path, data: object) -> None:
    store = VectorStore(tmp_path / FILE)
    store.put({digest(1): vector(1), digest(2): vector(2)})
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("UPDATE entries SET value = ? WHERE digest = ?", (data, digest(1)))
    database.close()
    assert store.get([digest(1), digest(2)]).keys() == {digest(2)}


def test_a_place_that_cannot_be_used_is_reported_once_and_costs_only_the_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).mkdir()
    store = VectorStore(tmp_path / FILE)
    with caplog.at_level(logging.WARNING):
        store.put({digest(1): vector(1)})
        assert store.get([digest(1)]) == {}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
