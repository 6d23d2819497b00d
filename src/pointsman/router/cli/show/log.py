"""`pointsman log`: print the gateway's own log file, and follow it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

import click

from pointsman.router.cli.common.log_folders import LogFolder, gateway_logs
from pointsman.router.cli.common.options import CommandError, note, state_dir_option
from pointsman.router.cli.common.output import echo, paint, print_json
from pointsman.router.cli.common.owner import owned_folder
from pointsman.router.serving.log_file import log_path, numbered

POLL_S = 0.3
MAX_READ = 4 << 20  # bytes of the end of one file
_START = re.compile(r"(\S+) (DEBUG|INFO|WARNING|ERROR|CRITICAL) +(.*)", re.DOTALL)
_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


@click.command()
@click.option("-n", "--lines", type=click.IntRange(0), default=50, show_default=True, help="Number of messages.")
@click.option("-f", "--follow", is_flag=True, help="Keep running and print each new message.")
@state_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message.")
def log(lines: int, follow: bool, state_dir: Path | None, as_json: bool) -> None:
    """Print the gateway's own log file. What servers write to stderr is in `pointsman server log SERVER`.

    With workers or replicas, the log of each that runs; --state-dir STATE/replicas/2 names one.
    """
    folder = owned_folder(state_dir)
    found = gateway_logs(folder)
    if not found:
        raise CommandError(
            f"There is no {log_path(folder)}: no gateway has run with this state folder yet, or its configuration has "
            "`log: {file: false}`."
        )
    if not any(one.runs for one in found):
        note("No gateway runs now; what follows was written before.")
    try:
        with ExitStack() as stack:
            files = [_Followed(one, stack) for one in found]
            printer = _Printer(as_json, several=len(files) > 1)
            for file in files:
                printer.show(file.place, file.last(lines), always=lines > 0)
            while follow:
                fresh = [(file.place, new) for file in files if (new := file.new())]
                for place, new in fresh:
                    printer.show(place, _messages(new))
                if not fresh:
                    time.sleep(POLL_S)
    except OSError as error:
        raise CommandError(f"{error.filename or log_path(folder)} cannot be read: {error.strerror}.") from error
    except KeyboardInterrupt:
        return


class _Followed:
    """One log file, also after it was rotated. Raises OSError."""

    def __init__(self, place: LogFolder, stack: ExitStack) -> None:
        self.place = place
        self._path = log_path(place.path)
        self._stack = stack
        self._file: BinaryIO = stack.enter_context(self._path.open("rb"))

    def last(self, lines: int) -> list[str]:
        messages = _messages(_end_of(self._file))
        if len(messages) < lines:
            messages = _older(self._path) + messages
        return messages[-lines:] if lines else []

    def new(self) -> bytes:
        if new := self._file.read():
            return new
        try:
            moved = not os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return b""
        if not moved:
            return b""
        rest = self._file.read()
        self._file.close()
        self._file = self._stack.enter_context(self._path.open("rb"))
        return rest + self._file.read()


class _Printer:
    """Prints messages, below a heading where the file is another one than before."""

    def __init__(self, as_json: bool, *, several: bool) -> None:
        self._as_json = as_json
        self._several = several
        self._last: LogFolder | None = None

    def show(self, place: LogFolder, messages: Sequence[str], *, always: bool = False) -> None:
        """`always`: the heading also without messages."""
        if self._as_json:
            self._show_json(place, messages)
            return
        if self._several and place != self._last and (messages or always):
            echo(place.heading)
            self._last = place
        for message in messages:
            found = _START.fullmatch(message)
            echo(paint(message, _COLOURS.get(found[2])) if found else message)

    def _show_json(self, place: LogFolder, messages: Sequence[str]) -> None:
        of = {place.kind: place.number} if self._several and place.number else {}
        for message in messages:
            found = _START.fullmatch(message)
            time_, level, text = found.groups() if found else (None, None, message)
            print_json({"time": time_, "level": level, "message": text, **of}, indent=None)


def _end_of(file: BinaryIO) -> bytes:
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - MAX_READ))
    data = file.read()
    return data if size <= MAX_READ else data.partition(b"\n")[2]


def _older(path: Path) -> list[str]:
    with suppress(OSError), numbered(path, 1).open("rb") as file:
        return _messages(_end_of(file))
    return []


def _messages(data: bytes) -> list[str]:
    """Split into messages, of which some have several lines."""
    messages: list[str] = []
    for line in data.decode(errors="replace").splitlines():
        if messages and not _START.match(line):
            messages[-1] += f"\n{line}"
        else:
            messages.append(line)
    return messages
