"""What the parent of workers knows of them, in a file: the owner's commands read it even if no worker answers."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from pointsman.router.serving.state_folder import REPLICAS, WORKERS

FILE: Final = "workers.json"
_STATE, _START = 0, 19  # fields of /proc/PID/stat after the program's name: proc(5) counts from 3


class WorkerNote(msgspec.Struct, frozen=True):
    """One worker."""

    number: int
    process: int = 0  # 0: it does not run
    ready: bool = False
    reason: str = ""  # why it last ended
    next_start: float = 0.0  # wall clock


class WorkersNote(msgspec.Struct, frozen=True):
    """All of them, and their parent."""

    process: int
    began: int  # when that process began, in clock ticks since the system started: another may get its number
    configuration: str
    silence_s: float  # a worker that is silent for longer is replaced
    url: str = ""  # empty: they have not been ready yet
    workers: tuple[WorkerNote, ...] = ()
    started: float = 0.0  # when that process began, on the wall clock


def note_of(process: int, configuration: Path, silence_s: float) -> WorkersNote:
    path = str(configuration.absolute())
    return WorkersNote(process, _began(process) or 0, path, silence_s, started=time.time())


def write_note(state_dir: Path, note: WorkersNote) -> None:
    """Replace the file atomically. Requires the lock of its folder. Raises OSError."""
    path = _path(state_dir)
    fresh = path.with_name(f".{path.name}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(msgspec.json.encode(note))
    fresh.replace(path)


def remove_note(state_dir: Path) -> None:
    """Raises OSError."""
    _path(state_dir).unlink(missing_ok=True)


def read_note(state_dir: Path) -> WorkersNote | None:
    """None: no parent of workers runs with this state folder. The file of one that was killed is ignored."""
    try:
        note = msgspec.json.decode(_path(state_dir).read_bytes(), type=WorkersNote)
    except (OSError, msgspec.MsgspecError):
        return None
    return note if note.began and _began(note.process) == note.began else None


def problems(note: WorkersNote) -> Iterator[tuple[WorkerNote, str]]:
    """Each worker that is not ready, with a sentence that says so, and what happens next."""
    for one in note.workers:
        name = f"Worker {one.number} of {len(note.workers)}"
        reason = f": {one.reason}" if one.reason else ""
        if not one.process:
            wait_s = math.ceil(one.next_start - time.time())
            when = f"in {wait_s} s" if wait_s > 0 else "now"
            yield one, f"{name} does not run{reason}. It is started again {when}."
        elif not runs(one):
            yield one, f"{name} does not run: process {one.process} has ended, and the parent has not noticed it yet."
        elif not one.ready:
            before = f"; before, {one.reason}" if one.reason else ""
            yield one, f"{name} (process {one.process}) is starting{before}."


def runs(one: WorkerNote) -> bool:
    """Whether its process runs: a parent that is stopped does not notice its end."""
    return bool(one.process) and _began(one.process) is not None


def none_answers(note: WorkersNote) -> str:
    """What to tell a command that no worker answers."""
    wrong = {one.number: text for one, text in problems(note)}
    each = (wrong.get(one.number) or _silent(one, note) for one in note.workers)
    return f"The gateway (process {note.process}) runs, but none of its workers answers. {' '.join(each)}"


def _silent(one: WorkerNote, note: WorkersNote) -> str:
    name = f"Worker {one.number} of {len(note.workers)} (process {one.process})"
    return f"{name} is silent: if it hangs, it is replaced within {note.silence_s:g} s."


def _path(state_dir: Path) -> Path:
    return state_dir / REPLICAS / WORKERS / FILE


def _began(process: int) -> int | None:
    """When a process began, in clock ticks since the system started; None: it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if fields[_STATE] in "ZX" else int(fields[_START])
    except (OSError, ValueError, IndexError):
        return None
