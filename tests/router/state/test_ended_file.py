"""Ended sessions in files: read by all replicas, and bounded."""

from __future__ import annotations

from pathlib import Path

from pointsman.router.state.ended_file import FILE, EndedSessionsFile


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_each_reads_what_was_ended_since_the_last_time(tmp_path: Path) -> None:
    one, other = EndedSessionsFile(tmp_path, lambda: 1000.0), EndedSessionsFile(tmp_path, lambda: 1004.0)
    assert other.read() == {}
    one.add(digest(1), 10)
    assert other.read() == {digest(1): 6.0}
    assert other.read() == {}
    one.add(digest(2), 10)
    one.add(digest(3), 3)  # over, by the clock of the other
    assert other.read() == {digest(2): 6.0}
    assert EndedSessionsFile(tmp_path, lambda: 1004.0).read() == {digest(1): 6.0, digest(2): 6.0}
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_the_files_are_bounded_and_a_full_one_hides_nothing(tmp_path: Path) -> None:
    writers = [EndedSessionsFile(tmp_path, lambda: 0.0, max_bytes=2000) for _ in range(2)]
    reader = EndedSessionsFile(tmp_path, lambda: 0.0)
    seen: set[bytes] = set()
    for number in range(1000):
        writers[number % 2].add(digest(number), 10)
        if number % 7 == 0:
            seen |= reader.read().keys()
    assert seen | reader.read().keys() == {digest(number) for number in range(1000)}
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2 * 2000 + 100
    known = EndedSessionsFile(tmp_path, lambda: 0.0).read()
    assert digest(999) in known
    assert 40 < len(known) < 100


def test_a_line_that_was_cut_costs_only_itself(tmp_path: Path) -> None:
    file = EndedSessionsFile(tmp_path, lambda: 0.0)
    file.add(digest(1), 10)
    with (tmp_path / FILE).open("ab") as full:
        full.write(b"\n0000 \xff no line\n" + b"00" * 9)
    assert file.read() == {digest(1): 10.0}
    file.add(digest(2), 10)
    assert file.read() == {digest(2): 10.0}
