"""Reads journal and database together, with or without a daemon beside it, and changes neither."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pointsman.router.audit.database import FILE, open_to_read
from pointsman.router.audit.rows import Intent, Outcome, Row, row_of
from pointsman.router.audit.segments import FOLDER, Runs, list_segments, read_entries


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows are wanted. For `token` and `project` the empty string means none."""

    since_ms: int | None = None
    until_ms: int | None = None
    token: str | None = None
    project: str | None = None
    tool_key: str | None = None
    server_id: str | None = None
    kind: str | None = None
    outcome: str | None = None
    code: str | None = None
    after_seq: int = 0
    also: frozenset[int] = frozenset()  # these, though they are not after `after_seq`

    def of_intent(self) -> dict[str, str | None]:
        """The values that an intent must have, by field."""
        names = ("token", "project", "tool_key", "server_id", "kind")
        given = ((name, getattr(self, name)) for name in names)
        return {name: value or None for name, value in given if value is not None}


def read_rows(state_dir: Path, wanted: Filter | None = None, *, newest: int | None = None) -> Iterator[Row]:
    """Rows in the order of their seq. With `newest`, only the last so many of those that are wanted.

    Raises:
        sqlite3.Error: the database cannot be read.
        NewerSchema: a later Pointsman wrote it.
        OSError: the journal cannot be read.
    """
    wanted = wanted or Filter()
    if newest is None:
        return _rows(state_dir, wanted, backwards=False)
    with closing(_rows(state_dir, wanted, backwards=True)) as rows:
        return reversed(list(islice(rows, newest)))


class _Found(NamedTuple):
    seq: int
    run: str
    intent: Intent
    outcome: Outcome | None


_Key = tuple[str, int]


def _rows(state_dir: Path, wanted: Filter, *, backwards: bool) -> Generator[Row]:
    folder = state_dir / FOLDER
    # The order matters. A run found over here has written all it will ever write, and what the mover takes out of
    # the journal while we read it is found in the database, which is read last.
    runs = Runs(folder)
    intents, outcomes = _read_journal(folder)
    matches = _matcher(wanted)
    in_journal = sorted((found for found in intents if matches(found.intent)), key=_place, reverse=backwards)
    connection = open_to_read(state_dir / FILE)
    in_database = _read_database(connection, wanted, backwards) if connection else iter(())
    try:
        merged = heapq.merge(in_database, in_journal, key=_place, reverse=backwards)
        for (seq, run), copies in groupby(merged, key=_place):
            intent, outcome = _whole(list(copies), outcomes.get((run, seq)))
            if outcome is None and runs.over(run):
                outcome = Outcome(seq, "interrupted")
            if _ended_as(wanted, outcome):
                yield row_of(intent, outcome)
    finally:
        if connection is not None:
            connection.close()


def _place(found: _Found) -> tuple[int, str]:
    return found.seq, found.run


def _whole(copies: list[_Found], outcome: Outcome | None) -> tuple[Intent, Outcome | None]:
    """A row may be in both places, and its outcome in the other one."""
    known = next((found.outcome for found in copies if found.outcome), outcome)
    return copies[0].intent, known


def _read_journal(folder: Path) -> tuple[list[_Found], dict[_Key, Outcome]]:
    intents: list[_Found] = []
    outcomes: dict[_Key, Outcome] = {}
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


def _matcher(wanted: Filter) -> Callable[[Intent], bool]:
    values = wanted.of_intent()
    since = wanted.since_ms if wanted.since_ms is not None else float("-inf")
    until = wanted.until_ms if wanted.until_ms is not None else float("inf")

    def matches(intent: Intent) -> bool:
        if intent.seq <= wanted.after_seq and intent.seq not in wanted.also:
            return False
        if not since <= intent.time_ms < until:
            return False
        return all(getattr(intent, name) == value for name, value in values.items())

    return matches


def _ended_as(wanted: Filter, outcome: Outcome | None) -> bool:
    if wanted.outcome is not None and (outcome is None or outcome.outcome != wanted.outcome):
        return False
    return wanted.code is None or (outcome is not None and outcome.code == wanted.code)


_INTENT = ("time_ms", "request_id", "kind", "token", "project", "client", "method", "queries", "tool_key", "server_id")
_OUTCOME = ("outcome", "code", "ms", "results", "bytes", "provider", "fallback")
_SELECT = f"SELECT seq, run, {', '.join((*_INTENT, 'arguments', *_OUTCOME))} FROM audit"  # noqa: S608 - constants


def _read_database(connection: sqlite3.Connection, wanted: Filter, backwards: bool) -> Iterator[_Found]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'audit'").fetchone():
        return  # made, but not filled yet
    where, arguments = _conditions(wanted)
    order = "DESC" if backwards else "ASC"
    statement = f"{_SELECT} WHERE {where} ORDER BY seq {order}, run {order}"
    for values in connection.execute(statement, arguments):
        yield _from_database(values)


def _conditions(wanted: Filter) -> tuple[str, list[Any]]:
    clauses: list[str] = []
    arguments: list[Any] = []

    def demand(clause: str, *values: Any) -> None:
        clauses.append(clause)
        arguments.extend(values)

    also = sorted(wanted.also)
    demand(f"(seq > ? OR seq IN ({', '.join('?' * len(also))}))" if also else "seq > ?", wanted.after_seq, *also)
    if wanted.since_ms is not None:
        demand("time_ms >= ?", wanted.since_ms)
    if wanted.until_ms is not None:
        demand("time_ms < ?", wanted.until_ms)
    for name, value in wanted.of_intent().items():
        demand(f"{name} IS ?", value)
    # An outcome that is not in the database may be in the journal, or be that of a run that is over.
    if wanted.outcome is not None:
        demand("(outcome = ? OR outcome IS NULL)", wanted.outcome)
    if wanted.code is not None:
        demand("(code = ? OR outcome IS NULL)", wanted.code)
    return " AND ".join(clauses), arguments


def _from_database(values: tuple[Any, ...]) -> _Found:
    seq, run = values[:2]
    fields = dict(zip((*_INTENT, "arguments", *_OUTCOME), values[2:], strict=True))
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
