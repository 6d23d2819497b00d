"""The process table, as far as a test needs it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

PROC = Path("/proc")  # not on every system; a slim container, on the other hand, has no `ps`
GONE_S = 30.0  # a bound against hanging; the promise of 5 s is for people, not for a busy test machine

Row = tuple[int, int, str, str]  # pid, parent, state, command line


def descendants(pid: int) -> dict[int, str]:
    """Command lines of all living processes below `pid`, by their ids."""
    table = _table()
    found: dict[int, str] = {}
    parents = {pid}
    while parents:
        children = {child: command for child, (parent, command) in table.items() if parent in parents}
        found |= children
        parents = set(children)
    return found


def alive(pid: int) -> bool:
    return pid in _table()


async def gone(pids: Collection[int]) -> None:
    """Wait until none of them lives."""
    async with asyncio.timeout(GONE_S):
        while any(pid in _table() for pid in pids):
            await asyncio.sleep(0.05)


def _table() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process that lives."""
    rows = _from_proc() if PROC.is_dir() else _from_ps()
    return {pid: (parent, command) for pid, parent, state, command in rows if not state.startswith("Z")}


def _from_proc() -> Iterator[Row]:
    for folder in PROC.glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        yield int(folder.name), int(parent), state, command


def _from_ps() -> Iterator[Row]:
    listing = subprocess.run(("ps", "-A", "-w", "-w", "-o", "pid=,ppid=,stat=,args="), check=True, capture_output=True)
    for line in listing.stdout.decode(errors="replace").splitlines():
        pid, parent, state, command = line.split(None, 3)
        yield int(pid), int(parent), state, command
