"""Kills a mover with SIGKILL at each of its exchanges with PostgreSQL: `python -m ... URL STATE`.

For each n, before and after the n-th exchange: write the journal of a run, move it in a process that kills itself,
move the rest in another one, and compare. Prints the number of kills.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from tests.router.audit.postgres.samples import ended_run, in_database, move_all, opened


def killed_at(number: int, *, before: bool) -> None:
    """Count the exchanges of all connections of this process."""
    exchanges, wait = count(), psycopg.Connection.wait

    def counted(self: psycopg.Connection[Any], *arguments: Any, **options: Any) -> Any:
        now = next(exchanges) == number
        if now and before:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = wait(self, *arguments, **options)
        if now:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    psycopg.Connection.wait = counted  # type: ignore[method-assign]


def move_in_child(url: str, state_dir: Path, number: int | None = None, *, before: bool = False) -> int:
    child = os.fork()
    if not child:
        if number is not None:
            killed_at(number, before=before)
        with opened(url) as postgres:
            move_all(postgres, state_dir)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def main(url: str, state_dir: Path) -> None:
    expected: list[tuple[str, str | None]] = []
    kills = 0
    for number in count():
        statuses = []
        for before in (True, False):
            expected += ended_run(state_dir, f"{number}-{before}", segments=2, calls=1)
            statuses.append(move_in_child(url, state_dir, number, before=before))
            assert move_in_child(url, state_dir) == 0
            left = [path.name for path in (state_dir / "journal").iterdir()]
            assert not left, (number, before, left)
            check(url, sorted(expected, key=str), f"{number} {before}")
        kills += sum(os.WIFSIGNALED(status) for status in statuses)
        if statuses == [0, 0]:  # the mover had fewer exchanges than that
            print(kills)
            return


def check(url: str, expected: list[tuple[str, str | None]], where: str) -> None:
    child = os.fork()  # this process has no connection, so that its children inherit none
    if not child:
        with opened(url) as postgres:
            found = in_database(postgres)
        os._exit(0 if found == expected else 1)
    assert os.waitpid(child, 0)[1] == 0, where


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
