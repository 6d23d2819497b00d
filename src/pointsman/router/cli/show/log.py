"""`pointsman log`: print the gateway's own log file, and follow it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import click

from pointsman.router.cli.common.options import CommandError, state_dir_option
from pointsman.router.cli.common.output import echo, paint, print_json
from pointsman.router.cli.common.owner import owned_folder
from pointsman.router.serving.log_file import log_path, numbered
from pointsman.router.serving.state_folder import REPLICAS

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
    """Print the gateway's own log file. What servers write to stderr is in `pointsman server log SERVER`."""
    folder = owned_folder(state_dir)
    path = log_path(folder)
    try:
        with path.open("rb") as file:
            messages = _messages(_end_of(file))
            if len(messages) < lines:
                messages = _older(path) + messages
            _print(messages[-lines:] if lines else [], as_json)
            if follow:
                for batch in _following(path, file):
                    _print(_messages(batch), as_json)
    except FileNotFoundError:
        if (folder / REPLICAS).is_dir():
            raise CommandError(
                f"Each replica on {folder} has a log of its own. Name one: --state-dir {folder / REPLICAS / '1'}."
            ) from None
        raise CommandError(
            f"There is no {path}: no gateway has run with this state folder yet, or its configuration has "
            "`log: {file: false}`."
        ) from None
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
    except KeyboardInterrupt:
        return


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


def _following(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """Yield what is added, also after the file was rotated."""
    current = file
    try:
        while True:
            if new := current.read():
                yield new
                continue
            time.sleep(POLL_S)
            try:
                moved = not os.path.samestat(os.fstat(current.fileno()), path.stat())
            except FileNotFoundError:
                continue
            if moved:
                if rest := current.read():
                    yield rest
                if current is not file:
                    current.close()
                current = path.open("rb")
    finally:
        if current is not file:
            current.close()


def _print(messages: Iterable[str], as_json: bool) -> None:
    for message in messages:
        found = _START.fullmatch(message)
        if as_json:
            time_, level, text = found.groups() if found else (None, None, message)
            print_json({"time": time_, "level": level, "message": text}, indent=None)
        else:
            echo(paint(message, _COLOURS.get(found[2])) if found else message)
