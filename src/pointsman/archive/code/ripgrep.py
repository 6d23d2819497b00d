"""Runs ripgrep: how often a pattern matches in which file, and where, never past a deadline.

Only positions are read from its output, never lines: a line of a megabyte with a match at every byte costs nothing to
transfer, and what is shown is read through the guard.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pointsman.archive.code.guard import MAX_BYTES

# Nothing outside the root has an effect: no configuration, no ignore files of the user or of parent folders.
_SCOPE = ("--no-require-git", "--no-ignore-parent", "--no-ignore-global", "--no-follow", f"--max-filesize={MAX_BYTES}")
_EXCLUDED = ("node_modules", ".git", "dist", "build", ".next", ".context")
_PLAIN_NAME = re.compile(r"[\w.*?-]+")
COUNT_TO = 10_000
_BOUNDS = ("--regex-size-limit=10M", "--dfa-size-limit=10M", f"--max-count={COUNT_TO + 1}")
_OUTPUT = ("--no-config", "--no-messages", "--null", "--color=never", "--crlf", "--with-filename")
_PLACES = ("--line-number", "--column", "--no-heading", "--max-columns=1")
_COUNT = re.compile(rb"([^\0]*)\0(\d+)\r?\n")
_PLACE = re.compile(rb"([^\0]*)\0(\d+):(\d+):[^\n]*\n")
_CHECK_S = 3.0


class RipgrepMissingError(Exception):
    """The program is neither in our environment nor on the PATH."""


class OutputReader(Protocol):
    """Reads the output of a program."""

    def feed(self, data: bytes) -> bool:
        """False: stop the program."""
        ...

    def deadline(self) -> float:
        """When to stop the program, by the monotonic clock."""
        ...


@dataclass(frozen=True, slots=True)
class Search:
    pattern: str
    case_sensitive: bool

    def flags(self) -> Iterator[str]:
        yield from (*_OUTPUT, *_BOUNDS)
        yield "--case-sensitive" if self.case_sensitive else "--ignore-case"
        yield from ("-e", self.pattern)

    def count_command(self, hidden: bool, names: Sequence[str]) -> list[str]:
        """Count the matching lines of every file below the folder. `names`: globs for the names of files."""
        return [_program(), *_scope(hidden, names), "--count", "--include-zero", *self.flags(), "--", "."]

    def locate_command(self, paths: Sequence[str]) -> list[str]:
        """Print the positions of the matches in some files."""
        return [_program(), *_PLACES, *self.flags(), "--", *(f"./{path}" for path in paths)]

    def pattern_error(self) -> str:
        """Ripgrep's error for the pattern, in one line; empty if it is valid."""
        command = [_program(), "--no-config", "--crlf", *_BOUNDS, "-e", self.pattern, "--", "-"]
        try:
            answer = subprocess.run(  # noqa: S603 - an argument list, with the pattern behind -e
                command, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CHECK_S, check=False
            )
        except subprocess.TimeoutExpired:
            return "it takes too long to compile"
        if answer.returncode != 2:
            return ""
        error = answer.stderr.decode(errors="replace").strip()
        return error.rpartition("error: ")[2].partition("\n")[0].removeprefix("rg: ").strip()


def counts(data: bytes) -> tuple[list[tuple[bytes, int]], bytes]:
    """Path and count of each complete record, and the incomplete rest."""
    found = []
    end = 0
    while record := _COUNT.match(data, end):
        found.append((record[1].removeprefix(b"./"), int(record[2])))
        end = record.end()
    return found, data[end:]


def places(data: bytes) -> tuple[list[tuple[bytes, int, int]], bytes]:
    """Path, line and column of each complete record, and the incomplete rest."""
    found = []
    end = 0
    while record := _PLACE.match(data, end):
        path = record[1].rpartition(b"\n./")[2]  # a message about a binary file may precede it, on a line of its own
        found.append((path.removeprefix(b"./"), int(record[2]), int(record[3])))
        end = record.end()
    return found, data[end:]


def run(folder: Path, command: list[str], reader: OutputReader) -> int | None:
    """Run a program in a folder; its exit code, or None if it was stopped."""
    child = _start(folder, command)
    try:
        _pump(child, reader)
        return child.returncode
    finally:
        child.kill()
        with child:  # closes its pipe and waits
            pass


def _scope(hidden: bool, names: Sequence[str]) -> Iterator[str]:
    yield from _SCOPE
    yield "--hidden" if hidden else "--glob=!.*"  # as a glob: no ignore file can include them again
    yield from (f"--glob=!{name}/" for name in _EXCLUDED)
    if names and all(map(_PLAIN_NAME.fullmatch, names)):
        yield from (f"--type-add=asked:{name}" for name in names)
        yield "--type=asked"


def _program() -> str:
    """The one next to our Python interpreter, else the one on the PATH."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / "rg").is_file():
            return str(folder / "rg")
    found = shutil.which("rg")
    if found is None:
        raise RipgrepMissingError
    return found


def _start(folder: Path, command: list[str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(  # noqa: S603 - an argument list, with the pattern behind -e
        command, cwd=folder, env={}, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, bufsize=0
    )


def _pump(child: subprocess.Popen[bytes], reader: OutputReader) -> None:
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while (left := reader.deadline() - time.monotonic()) > 0:
            if not selector.select(left):
                continue
            data = os.read(child.stdout.fileno(), 1 << 16)
            if not data:
                child.wait()  # it has closed its output and is about to exit
                return
            if not reader.feed(data):
                return
