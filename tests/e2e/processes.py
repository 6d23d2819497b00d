"""The process table, as far as a test needs it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Collection

GONE_S = 10.0  # a bound against hanging; the promise of 5 s is for people, not for a busy test machine


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
    listing = subprocess.run(
        ("ps", "-A", "-w", "-w", "-o", "pid=,ppid=,stat=,args="), check=True, capture_output=True, text=True
    ).stdout
    rows = (line.split(None, 3) for line in listing.splitlines())
    living = (row for row in rows if len(row) == 4 and not row[2].startswith("Z"))
    return {int(pid): (int(parent), command) for pid, parent, _, command in living}
