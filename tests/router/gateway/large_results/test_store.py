"""The files of stored results: encrypted, within the budget, for an hour, for one owner."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pointsman.router.gateway.large_results.pieces import PIECE_BYTES, LargeText
from pointsman.router.gateway.large_results.store import (
    FOLDER,
    KEEP_S,
    NewResult,
    ResultStore,
    StoredResult,
    new_handle,
    owner_of,
)

KEYS = ["k" * 32]
ONE, OTHER = owner_of("laptop", "d" * 64), owner_of("phone", "d" * 64)
RESULT = StoredResult("research", "notes:read", "a line\nand \u00e4nother", b'{"a":1}')


class Clock:
    now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


def store(folder: Path, budget: int = 1_000_000, keys: list[str] = KEYS, clock: Clock | None = None) -> ResultStore:
    return ResultStore(folder, keys, lambda: budget, clock or Clock())


def put(into: ResultStore, owner: str, result: StoredResult = RESULT) -> str:
    handle = new_handle()
    assert into.put(owner, handle, new(result))
    return handle


def new(result: StoredResult) -> NewResult:
    text, structured = LargeText([result.text]), LargeText([result.structured.decode()])
    return NewResult(result.project_id, result.tool_key, text, structured)


def files(folder: Path) -> list[Path]:
    return [path for path in (folder / FOLDER).rglob("*") if path.is_file()]


def test_a_result_survives_a_restart_and_a_new_first_key(tmp_path: Path) -> None:
    handle = put(store(tmp_path), ONE)
    assert store(tmp_path).get(ONE, handle) == RESULT
    assert store(tmp_path, keys=["n" * 32, *KEYS]).get(ONE, handle) == RESULT
    assert store(tmp_path, keys=["n" * 32]).get(ONE, handle) is None


def test_a_result_for_older_replicas_is_sealed_as_text_and_read_by_all(tmp_path: Path) -> None:
    handle = put(ResultStore(tmp_path, KEYS, lambda: 1_000_000, Clock(), with_older=True), ONE)
    [file] = files(tmp_path)
    assert file.read_bytes().isascii()
    assert store(tmp_path).get(ONE, handle) == RESULT


@pytest.mark.parametrize("length", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 1])
def test_a_result_of_any_length_is_read_as_it_was_stored(tmp_path: Path, length: int) -> None:
    held = store(tmp_path, budget=10_000_000)
    result = StoredResult(None, "notes:read", "\u00e4" * length, b"[" + b"1," * length + b"1]")
    handle = put(held, ONE, result)
    assert held.get(ONE, handle) == result
    [file] = files(tmp_path)
    assert file.stat().st_size < 1_000 + len(result.text.encode()) + len(result.structured)


def test_files_are_private_and_encrypted(tmp_path: Path) -> None:
    put(store(tmp_path), ONE)
    [file] = files(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == file.parent.parent.stat().st_mode & 0o777 == 0o700
    assert b"a line" not in file.read_bytes()
    assert "laptop" not in str(file.relative_to(tmp_path))


def test_a_result_is_for_its_owner_only(tmp_path: Path) -> None:
    held = store(tmp_path)
    handle = put(held, ONE)
    put(held, OTHER)
    assert held.get(OTHER, handle) is None
    moved = tmp_path / FOLDER / OTHER / handle
    moved.write_bytes((tmp_path / FOLDER / ONE / handle).read_bytes())
    assert held.get(OTHER, handle) is None
    assert owner_of("laptop", "e" * 64) != ONE  # a new secret under the same name


@pytest.mark.parametrize(
    "handle", ["", ".", "..", "../x", "/etc/passwd", "a" * 33, "A" * 32, "\x00" * 32, "\u0661" * 32]
)
def test_a_handle_is_never_a_path(tmp_path: Path, handle: str) -> None:
    assert store(tmp_path).get(ONE, handle) is None


def test_a_changed_file_is_no_result(tmp_path: Path) -> None:
    held = store(tmp_path)
    handle = put(held, ONE)
    [file] = files(tmp_path)
    sealed = file.read_bytes()
    places = [sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :] for place in range(len(sealed))]
    for changed in (
        b"",
        sealed[:9],
        sealed[:30],
        sealed[:-4],
        sealed + b"x",
        b"\xff" + sealed,
        b"v1." + sealed,
        *places,
    ):
        file.write_bytes(changed)
        assert held.get(ONE, handle) is None


def test_results_expire_after_an_hour(tmp_path: Path) -> None:
    clock = Clock()
    held = store(tmp_path, clock=clock)
    handle = put(held, ONE)
    [file] = files(tmp_path)
    os.utime(file, (clock.now, clock.now))
    clock.now += KEEP_S - 1
    held.sweep([ONE])
    assert held.get(ONE, handle) == RESULT
    clock.now += 2
    assert held.get(ONE, handle) is None
    held.sweep([ONE])
    assert files(tmp_path) == []


def test_a_sweep_removes_the_results_of_removed_tokens_and_unfinished_files(tmp_path: Path) -> None:
    clock = Clock()
    held = store(tmp_path, clock=clock)
    handle = put(held, ONE)
    put(held, OTHER)
    for file in files(tmp_path):
        os.utime(file, (clock.now, clock.now))
    unfinished = tmp_path / FOLDER / ONE / f".{new_handle()}"
    unfinished.write_bytes(b"half")
    expired = clock.now - KEEP_S - 1
    os.utime(unfinished, (expired, expired))
    held.sweep([ONE])
    assert files(tmp_path) == [tmp_path / FOLDER / ONE / handle]
    assert not (tmp_path / FOLDER / OTHER).exists()


def test_the_oldest_results_make_room_and_one_token_has_half(tmp_path: Path) -> None:
    held = store(tmp_path)
    put(held, ONE)
    [file] = files(tmp_path)
    size = file.stat().st_size
    held = store(tmp_path, budget=6 * size + size // 2)  # half of it: three files
    kept = [put(held, OTHER) for _ in range(2)]
    mine = [put(held, ONE) for _ in range(5)]
    assert [held.get(ONE, handle) is not None for handle in mine] == [False, False, True, True, True]
    assert all(held.get(OTHER, handle) for handle in kept)
    third = owner_of("third", "d" * 64)
    last = [put(held, third) for _ in range(2)]
    assert held.get(OTHER, kept[0]) is None  # the oldest of all
    assert all(held.get(third, handle) for handle in last)
    assert sum(file.stat().st_size for file in files(tmp_path)) <= 6 * size + size // 2


def test_a_result_over_half_of_the_budget_is_not_stored(tmp_path: Path) -> None:
    held = store(tmp_path, budget=2_000)
    assert not held.put(ONE, new_handle(), new(StoredResult(None, "s:t", "x" * 2_000, b"")))
    assert not (tmp_path / FOLDER).exists()


def test_a_disk_that_refuses_costs_only_the_stored_copy(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file in the way")
    assert not store(tmp_path).put(ONE, new_handle(), new(RESULT))


def test_results_of_those_who_signed_in_go_when_they_expire(tmp_path: Path) -> None:
    """Whether they may still sign in is not known before they do."""
    clock, person = Clock(), owner_of("@sso/alice#staff", "d" * 64)
    held = store(tmp_path, clock=clock)
    handle = put(held, person)
    [file] = files(tmp_path)
    os.utime(file, (clock.now, clock.now))
    held.sweep([])
    assert held.get(person, handle) == RESULT
    clock.now += KEEP_S + 1
    held.sweep([])
    assert list((tmp_path / FOLDER).iterdir()) == []
