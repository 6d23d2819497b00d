"""The journal's files: their names, locks and content.

A run of the gateway has a run file, which it locks while it lives and which names the gateway among several, and
numbered segments:

    0000000000000001-5f3a9c21.run
    0000000000000001-5f3a9c21.000000.0000000000000001.jsonl     (run, number, the next seq when it was opened)
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import msgspec

from pointsman.router.audit.rows import Intent, Outcome

FOLDER = "journal"
_SEGMENT = re.compile(r"(?P<run>\d{16}-[0-9a-f]{8})\.(?P<number>\d{6,})\.(?P<next_seq>\d{16,})\.jsonl")
_RUN = re.compile(r"(?P<run>\d{16}-[0-9a-f]{8})\.run")
BATCH_BYTES = 32_768  # about 128 calls: few enough that the event loop does not wait long for the GIL
_UNDECODABLE = (msgspec.DecodeError, ValueError, RecursionError)
_decoder: msgspec.json.Decoder[Intent | Outcome] = msgspec.json.Decoder(Intent | Outcome)


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    run: str
    number: int
    next_seq: int
    path: Path = field(compare=False)

    @classmethod
    def named(cls, folder: Path, run: str, number: int, next_seq: int) -> Segment:
        return cls(run, number, next_seq, folder / f"{run}.{number:06d}.{next_seq:016d}.jsonl")


def list_segments(folder: Path) -> list[Segment]:
    """Return all segments, oldest first; none if the folder does not exist."""
    found = (_SEGMENT.fullmatch(name) for name in _names(folder))
    return sorted(
        Segment(match["run"], int(match["number"]), int(match["next_seq"]), folder / match.string)
        for match in found
        if match
    )


def read_entries(path: Path) -> Iterator[Intent | Outcome]:
    """Read the entries of a segment.

    Skips a partial line (crash, full disk), which was never acknowledged, and any line that cannot be decoded: one
    bad line must not keep all others out of the database.
    """
    return chain.from_iterable(read_batches(path))


def read_batches(path: Path) -> Iterator[list[Intent | Outcome]]:
    """`read_entries` in batches of about `BATCH_BYTES`, each decoded at once: that takes half of the time."""
    partial = b""  # the beginning of a line that is being written: its rest may be read next
    with path.open("rb") as file:
        while data := file.read(BATCH_BYTES) + file.readline():
            data = partial + data
            end = data.rfind(b"\n") + 1
            whole, partial = data[:end], data[end:]
            try:
                yield _decoder.decode_lines(whole)
            except _UNDECODABLE:
                yield list(_decode_each(whole))


def _decode_each(lines: bytes) -> Iterator[Intent | Outcome]:
    for line in lines.splitlines():
        with suppress(*_UNDECODABLE):
            yield _decoder.decode(line)


def last_seq(folder: Path) -> int:
    """Return the highest seq in the journal. The newest segment of each run has it, even if empty."""
    newest = {segment.run: segment for segment in list_segments(folder)}
    highest = 0
    for segment in newest.values():
        try:
            in_file = max((entry.seq for entry in read_entries(segment.path)), default=0)
        except FileNotFoundError:  # another replica has moved it to the database
            in_file = 0
        highest = max(highest, segment.next_seq - 1, in_file)
    return highest


class RunLock:
    """The locked run file of this process. The kernel releases the lock when the process ends."""

    def __init__(self, folder: Path, first_seq: int, replica: str | None = None) -> None:
        self.run = f"{first_seq:016d}-{secrets.token_hex(4)}"
        fresh = folder / f".{self.run}"
        self._fd = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            os.write(self._fd, (replica or "").encode())
            # Locked first: another replica would take it for one that has ended.
            fresh.rename(_run_file(folder, self.run))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._fd)


class Runs:
    """Which runs had ended when this was created. Create it before listing segments: a run that has ended writes no
    more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ended = {run: _lock_is_free(folder, run) for run in _list_runs(folder)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._ended)

    def has_ended(self, run: str) -> bool:
        if run in self._ended:
            return self._ended[run]
        return not _run_file(self._folder, run).exists()  # one that began later may still be writing

    def is_known_to_have_ended(self, run: str) -> bool:
        """`has_ended`, where a run without a file here may be another gateway's."""
        return self._ended.get(run, False)


def replica_of(folder: Path, run: str) -> str | None:
    """The gateway that a run is of, among several; None: it was the only one, or its file is gone."""
    try:
        return _run_file(folder, run).read_text(encoding="ascii", errors="replace") or None
    except OSError:
        return None


def delete_run(folder: Path, run: str) -> None:
    _run_file(folder, run).unlink(missing_ok=True)


def _run_file(folder: Path, run: str) -> Path:
    return folder / f"{run}.run"


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _list_runs(folder: Path) -> list[str]:
    return [match["run"] for match in map(_RUN.fullmatch, _names(folder)) if match]


def _lock_is_free(folder: Path, run: str) -> bool:
    try:
        fd = os.open(_run_file(folder, run), os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
