"""The guard: a separate program that ends all children when the daemon has ended, for whatever reason.

Run as `python -I -S guard_program.py NAME=VALUE`. Its standard input is a pipe that only the daemon holds open: `+N`
means that process group N is alive, `-N` that it has ended. When the pipe closes, every remaining group gets SIGTERM
and, a second later, SIGKILL. So does every process with NAME=VALUE in its environment (where there is a /proc): a child
that the daemon had no time to report, or one that left its group.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE_S = 1.0
_ROUND_S = 0.05
_LAST_ROUNDS = 20


def main(mark: bytes) -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups: dict[int, bytes | None] = {}
    rest = b""
    while data := os.read(0, 65536):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"+"):
                groups[int(line[1:])] = start_time(int(line[1:]))
            else:
                groups.pop(int(line[1:]), None)
    end_all(groups, mark)


def end_all(groups: dict[int, bytes | None], mark: bytes) -> None:
    deadline = time.monotonic() + GRACE_S
    left = send(signal.SIGTERM, groups, mark)
    while left and time.monotonic() < deadline:
        time.sleep(_ROUND_S)
        left = send(0, groups, mark)
    for _ in range(_LAST_ROUNDS):  # repeated: a process may have forked meanwhile
        if not send(signal.SIGKILL, groups, mark):
            return
        time.sleep(_ROUND_S)


def send(number: int, groups: dict[int, bytes | None], mark: bytes) -> bool:
    """Send a signal to all children; True if it reached any."""
    reached = False
    for group, leader_started in groups.items():
        now = start_time(group)
        if now is not None and now != leader_started:
            continue  # the number has been reused: our group has ended
        try:
            os.killpg(group, number)
            reached = True
        except OSError:
            pass
    for pid in marked(mark):
        try:
            os.kill(pid, number)
            reached = True
        except OSError:
            pass
    return reached


def start_time(pid: int) -> bytes | None:
    """The start time of a process in clock ticks, which tells apart two processes with the same number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19]
    except (OSError, IndexError):
        return None


def marked(mark: bytes) -> list[int]:
    pids: list[int] = []
    try:
        names = os.listdir("/proc")
    except OSError:
        return pids
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    pids.append(int(name))
        except OSError:
            pass  # of another user, or ended
    return pids


if __name__ == "__main__":
    main(os.fsencode(sys.argv[1]))
