"""Printing for all commands: foreign text in a message cannot move the cursor, hide text or colour it."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import IO, Any

import click

from pointsman.core.escape import escaped, escaped_json, escaped_lines

# What `paint` returns contains a mark that no foreign text can contain, so only its colours reach the terminal.
_MARK = f"<{secrets.token_hex(16)}:"
_COLOUR = re.compile(rf"({_MARK}\w+>)")


def echo(message: str = "", *, err: bool = False, nl: bool = True, file: IO[Any] | None = None) -> None:
    """Print a message with its lines and tabs; other control characters are escaped.

    A foreign text that must stay on one line is passed through `escaped` first.
    """
    parts = _COLOUR.split(message)
    shown = "".join(_style(part) if part.startswith(_MARK) else escaped_lines(part) for part in parts)
    click.echo(shown, file=file, err=err, nl=nl)  # noqa: TID251 - escaped above


def print_json(value: Any, *, indent: int | None = 2) -> None:
    click.echo(escaped_json(json.dumps(value, indent=indent, ensure_ascii=False)))  # noqa: TID251 - escaped here


def paint(text: str, colour: str | None) -> str:
    """Colour a text for a terminal that wants colours; `echo` removes them from files and pipes."""
    if colour is None or os.environ.get("NO_COLOR"):
        return text
    return f"{_MARK}{colour}>{text}{_MARK}reset>"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align the columns of rows, of which the first is the heading; the last column is not padded."""
    shown = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(_width(row[column]) for row in shown) for column in range(len(shown[0]) - 1)]
    for row in shown:
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[-1]]).rstrip()


def _width(cell: str) -> int:
    return len(_COLOUR.sub("", cell))


def _style(mark: str) -> str:
    colour = mark[len(_MARK) : -1]
    return click.style("", reset=True) if colour == "reset" else click.style("", fg=colour, reset=False)
