"""Runs ripgrep: says where a pattern matches and which files there are, never past a deadline or a count.

Only places are taken from ripgrep (`path`, line, column): a line is never printed, so one of a megabyte with a match at
every byte costs nothing to carry, and what is shown comes through the guard.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pointsman.archive.code.guard import MAX_BYTES

# Nothing outside the root has a say: no configuration, no ignore files of the user or of folders above.
_SCOPE = (
    *("--no-config", "--no-require-git", "--no-ignore-parent", "--no-ignore-global", "--no-messages", "--no-follow"),
    *("--null", "--color=never", f"--max-filesize={MAX_BYTES}"),
)
_PLACES = ("--line-number", "--column", "--no-heading", "--with-filename", "--max-columns=1", "--crlf")
_BOUNDS = ("--regex-size-limit=10M", "--dfa-size-limit=10M", "--max-count=10000")
_EXCLUDED = ("node_modules", ".git", "dist", "build", ".next", ".context")
_PLAIN_NAME = re.compile(r"[\w.*?-]+")
_HIT = re.compile(rb"([^\0]*)\0(\d+):(\d+):[^\n]*\n")
_CHECK_S = 3.0


class NoRipgrep(Exception):
    """The program is not where our environment keeps its programs."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which files of a folder are searched, as far as ripgrep can tell."""

    folder: Path
    hidden: bool
    names: Sequence[str]  # globs for the files' own names; none: all

    def flags(self) -> Iterator[str]:
        yield from _SCOPE
        yield from ("--hidden",) if self.hidden else ("--glob=!.*",)  # as a glob: nothing may let them in again
        for name in _EXCLUDED:
            yield f"--glob=!{name}/"
        if all(map(_PLAIN_NAME.fullmatch, self.names)):
            for name in self.names:
                yield f"--type-add=asked:{name}"
            yield from ("--type=asked",) if self.names else ()


class Taker(Protocol):
    """Takes what a program prints."""

    def take(self, data: bytes) -> bool:
        """False when nothing more is wanted."""
        ...

    def deadline(self) -> float:
        """When to stop waiting for more, by the monotonic clock."""
        ...


def search_command(scope: Scope, pattern: str, case_sensitive: bool) -> list[str]:
    case = "--case-sensitive" if case_sensitive else "--ignore-case"
    return [_program(), *scope.flags(), *_PLACES, *_BOUNDS, case, "-e", pattern, "--", "."]


def files_command(scope: Scope) -> list[str]:
    return [_program(), "--files", *scope.flags(), "--", "."]


def run(folder: Path, commands: Sequence[tuple[list[str], Taker]]) -> list[int | None]:
    """Run programs side by side in a folder; their exit codes, None for one that was stopped."""
    children = [(_start(folder, command), taker) for command, taker in commands]
    try:
        _pump(children)
        return [child.returncode for child, _ in children]
    finally:
        for child, _ in children:
            child.kill()
            with child:  # closes its pipe and waits
                pass


def what_is_wrong(pattern: str) -> str:
    """Ripgrep's reason against a pattern, in one line; empty where it has none."""
    command = [_program(), "--no-config", *_BOUNDS, "-e", pattern, "--", "-"]
    try:
        answer = subprocess.run(  # noqa: S603 - an argument list, with the pattern behind -e
            command, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CHECK_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "it takes too long to compile"
    if answer.returncode != 2:
        return ""
    said = answer.stderr.decode(errors="replace").strip()
    return said.rpartition("error: ")[2].partition("\n")[0].removeprefix("rg: ").strip()


def hits(data: bytes) -> tuple[list[tuple[bytes, int, int]], bytes]:
    """Path, line and column of each whole record, and what is left over."""
    found = []
    end = 0
    while record := _HIT.match(data, end):
        path = record[1].rpartition(b"\n./")[2]  # a remark on a binary file may stand before it, on a line of its own
        found.append((path.removeprefix(b"./"), int(record[2]), int(record[3])))
        end = record.end()
    return found, data[end:]


def _program() -> str:
    """Ours, beside our Python; another of the machine only where ours is missing."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / "rg").is_file():
            return str(folder / "rg")
    found = shutil.which("rg")
    if found is None:
        raise NoRipgrep
    return found


def _start(folder: Path, command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - an argument list, with the pattern behind -e
        command,
        cwd=folder,
        env={},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )


def _pump(children: Sequence[tuple[subprocess.Popen[bytes], Taker]]) -> None:
    with selectors.DefaultSelector() as selector:
        for child, taker in children:
            assert child.stdout is not None
            selector.register(child.stdout, selectors.EVENT_READ, (child, taker.take, taker.deadline))
        while waiting := list(selector.get_map().values()):
            now = time.monotonic()
            late = [key for key in waiting if key.data[2]() <= now]
            for key in late:
                selector.unregister(key.fileobj)
            if late:
                continue
            for key, _ in selector.select(min(key.data[2]() for key in waiting) - now):
                if not _moved(key):
                    selector.unregister(key.fileobj)


def _moved(key: selectors.SelectorKey) -> bool:
    child, take, _ = key.data
    data = os.read(key.fd, 1 << 16)
    if not data:
        child.wait()  # it has closed its output and is about to end
        return False
    take_more: Callable[[bytes], bool] = take
    return take_more(data)
