"""Reads journal and database together, with or without a daemon beside it, and changes neither."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pointsman.router.audit.database import FILE, REPEATS_SINCE, open_to_read
from pointsman.router.audit.filters import Filter
from pointsman.router.audit.rows import Intent, Outcome, Row, row_of
from pointsman.router.audit.segments import FOLDER, Runs, list_segments, read_entries

Call = tuple[Intent, Outcome | None]  # None: under way


def read_rows(state_dir: Path, wanted: Filter | None = None, *, newest: int | None = None) -> Iterator[Row]:
    """Rows in the order of their seq. With `newest`, only the last so many of those that are wanted.

    Raises:
        sqlite3.Error: the database cannot be read.
        NewerSchemaError: a later Pointsman wrote it.
        OSError: the journal cannot be read.
    """
    wanted = wanted or Filter()
    if newest is None:
        return (row_of(intent, outcome) for intent, outcome in read_calls(state_dir, wanted))
    with closing(read_calls(state_dir, wanted, backwards=True)) as calls:
        return reversed([row_of(intent, outcome) for intent, outcome in islice(calls, newest)])


def read_calls(state_dir: Path, wanted: Filter, *, backwards: bool = False) -> Generator[Call]:
    """What `read_rows` makes its rows of; raises the same."""
    folder = state_dir / FOLDER
    # The order matters. A run found over here has written all it will ever write, and what the mover takes out of
    # the journal while we read it is found in the database, which is read last.
    runs = Runs(folder)
    intents, outcomes = _read_journal(folder)
    in_journal = sorted((each for each in intents if wanted.wants_intent(each.intent)), key=_place, reverse=backwards)
    connection = open_to_read(state_dir / FILE)
    in_database = _read_database(connection, wanted, backwards) if connection else iter(())
    try:
        merged = heapq.merge(in_database, in_journal, key=_place, reverse=backwards)
        for (seq, run), copies in groupby(merged, key=_place):
            intent, outcome = _whole(list(copies), outcomes.get((run, seq)))
            if outcome is None and runs.over(run):
                outcome = Outcome(seq, "interrupted")
            if wanted.wants_ending(outcome):
                yield intent, outcome
    finally:
        if connection is not None:
            connection.close()


class _Found(NamedTuple):
    seq: int
    run: str
    intent: Intent
    outcome: Outcome | None


def _place(found: _Found) -> tuple[int, str]:
    return found.seq, found.run


def _whole(copies: list[_Found], outcome: Outcome | None) -> Call:
    """A row may be in both places, and its outcome in the other one."""
    return copies[0].intent, next((found.outcome for found in copies if found.outcome), outcome)


def _read_journal(folder: Path) -> tuple[list[_Found], dict[tuple[str, int], Outcome]]:
    intents: list[_Found] = []
    outcomes: dict[tuple[str, int], Outcome] = {}
    for segment in list_segments(folder):
        try:
            for entry in read_entries(segment.path):
                if isinstance(entry, Intent):
                    intents.append(_Found(entry.seq, segment.run, entry, None))
                else:
                    outcomes[segment.run, entry.seq] = entry
        except FileNotFoundError:
            continue  # moved to the database in the meantime
    return intents, outcomes


_INTENT = ("time_ms", "request_id", "kind", "token", "project", "client", "method", "queries", "tool_key", "server_id")
_OUTCOME = ("outcome", "code", "ms", "results", "bytes", "provider", "fallback", "repeats")
_FIELDS = (*_INTENT, "arguments", *_OUTCOME)
_SELECT = f"SELECT seq, run, {', '.join(_FIELDS)} FROM audit"  # noqa: S608 - constants


def _read_database(connection: sqlite3.Connection, wanted: Filter, backwards: bool) -> Iterator[_Found]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'audit'").fetchone():
        return  # made, but not filled yet
    select = _SELECT
    if connection.execute("PRAGMA user_version").fetchone()[0] < REPEATS_SINCE:
        select = select.replace("repeats", "NULL")  # the daemon adds the column when it writes next
    where, arguments = wanted.conditions()
    order = "DESC" if backwards else "ASC"
    for values in connection.execute(f"{select} WHERE {where} ORDER BY seq {order}, run {order}", arguments):
        yield _from_database(values)


def _from_database(values: tuple[Any, ...]) -> _Found:
    seq, run = values[:2]
    fields = dict(zip(_FIELDS, values[2:], strict=True))
    ended = {name: fields.pop(name) for name in _OUTCOME}
    queries, arguments = fields.pop("queries"), fields.pop("arguments")
    intent = Intent(
        seq=seq,
        **fields,
        queries=None if queries is None else msgspec.json.decode(queries),
        arguments=msgspec.UNSET if arguments is None else msgspec.json.decode(arguments),
    )
    if ended["outcome"] is None:
        return _Found(seq, run, intent, None)
    if ended["fallback"] is not None:
        ended["fallback"] = bool(ended["fallback"])
    return _Found(seq, run, intent, Outcome(seq, **ended))
