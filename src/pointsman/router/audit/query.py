"""Reads audit rows back from journal and database together, with or without a running daemon. Changes neither."""

from __future__ import annotations

import heapq
import sqlite3
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pointsman.router.audit.database import FILE, columns_after, open_to_read
from pointsman.router.audit.rows import Intent, Outcome, Row, row_of
from pointsman.router.audit.segments import FOLDER, Runs, list_segments, read_entries

POLL_S = 0.5
_BY_VALUE = ("token", "project", "tool_key", "server_id", "kind")

Call = tuple[Intent, Outcome | None]  # None: in progress


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects rows. None matches all; the empty string matches rows without a token, project or outcome."""

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
    also: frozenset[int] = frozenset()  # matched although not after `after_seq`

    def matches_intent(self, intent: Intent) -> bool:
        if intent.seq <= self.after_seq and intent.seq not in self.also:
            return False
        if self.since_ms is not None and intent.time_ms < self.since_ms:
            return False
        if self.until_ms is not None and intent.time_ms >= self.until_ms:
            return False
        return all(getattr(intent, name) == value for name, value in self._values())

    def matches_outcome(self, outcome: Outcome | None) -> bool:
        if self.outcome is not None and self.outcome != (outcome.outcome if outcome else ""):
            return False
        return self.code is None or (outcome is not None and outcome.code == self.code)

    def conditions(self) -> tuple[str, list[Any]]:
        """Return a WHERE clause. A missing outcome may still be in the journal, or belong to a run that has ended."""
        also = sorted(self.also)
        listed = f" OR seq IN ({', '.join('?' * len(also))})" if also else ""
        clauses, arguments = [f"(seq > ?{listed})"], [self.after_seq, *also]
        for clause, value in self._clauses():
            clauses.append(clause)
            arguments.append(value)
        if self.outcome == "":
            clauses.append("outcome IS NULL")
        return " AND ".join(clauses), arguments

    def _clauses(self) -> list[tuple[str, Any]]:
        clauses: list[tuple[str, Any]] = [(f"{name} IS ?", value) for name, value in self._values()]
        if self.since_ms is not None:
            clauses.append(("time_ms >= ?", self.since_ms))
        if self.until_ms is not None:
            clauses.append(("time_ms < ?", self.until_ms))
        if self.outcome:
            clauses.append(("(outcome = ? OR outcome IS NULL)", self.outcome))
        if self.code is not None:
            clauses.append(("(code = ? OR outcome IS NULL)", self.code))
        return clauses

    def _values(self) -> list[tuple[str, str | None]]:
        given = ((name, getattr(self, name)) for name in _BY_VALUE)
        return [(name, value or None) for name, value in given if value is not None]


def read_rows(state_dir: Path, wanted: Filter | None = None, *, newest: int | None = None) -> Iterator[Row]:
    """Return the matching rows in order of their seq; with `newest`, only that many of the last ones.

    Raises:
        sqlite3.Error: the database cannot be read.
        NewerSchemaError: a newer Pointsman wrote it.
        OSError: the journal cannot be read.
    """
    wanted = wanted or Filter()
    if newest is None:
        return (row_of(intent, outcome) for intent, outcome in read_calls(state_dir, wanted))
    with closing(read_calls(state_dir, wanted, backwards=True)) as calls:
        return reversed([row_of(intent, outcome) for intent, outcome in islice(calls, min(newest, sys.maxsize))])


def read_calls(state_dir: Path, wanted: Filter, *, backwards: bool = False) -> Generator[Call]:
    """Return the matching calls as intent and outcome. Raises as `read_rows`."""
    folder = state_dir / FOLDER
    # The order matters. A run that has ended writes no more, and rows that move out of the journal while it is read
    # are in the database, which is read last.
    runs = Runs(folder)
    intents, outcomes = _read_journal(folder)
    in_journal = sorted((each for each in intents if wanted.matches_intent(each.intent)), key=_place, reverse=backwards)
    connection = open_to_read(state_dir / FILE)
    in_database = _read_database(connection, wanted, backwards) if connection else iter(())
    try:
        merged = heapq.merge(in_database, in_journal, key=_place, reverse=backwards)
        for (seq, run), copies in groupby(merged, key=_place):
            intent, outcome = _combine(list(copies), outcomes.get((run, seq)))
            if outcome is None and runs.has_ended(run):
                outcome = Outcome(seq, "interrupted")
            if wanted.matches_outcome(outcome):
                yield intent, outcome
    finally:
        if connection is not None:
            connection.close()


def follow(
    state_dir: Path, wanted: Filter, lines: int, *, pause: Callable[[], None] = lambda: time.sleep(POLL_S)
) -> Iterator[list[Row]]:
    """Yield the latest `lines` rows, then the new ones after each `pause`, indefinitely. Raises as `read_rows`."""
    newest = max((intent.seq for intent, _ in islice(read_calls(state_dir, Filter(), backwards=True), 1)), default=0)
    under_way = {intent.seq for intent, _ in read_calls(state_dir, Filter(outcome="")) if intent.seq <= newest}
    earlier = (
        row_of(intent, outcome)
        for intent, outcome in read_calls(state_dir, wanted, backwards=True)
        if outcome is not None and intent.seq <= newest and intent.seq not in under_way
    )
    yield list(islice(earlier, min(lines, sys.maxsize)))[::-1]
    while True:
        pause()
        fresh: list[Row] = []
        for intent, outcome in read_calls(state_dir, Filter(after_seq=newest, also=frozenset(under_way))):
            newest = max(newest, intent.seq)
            if outcome is None:
                under_way.add(intent.seq)
                continue
            under_way.discard(intent.seq)
            if wanted.matches_intent(intent) and wanted.matches_outcome(outcome):
                fresh.append(row_of(intent, outcome))
        yield fresh


class LastUse(NamedTuple):
    time_ms: int
    client: str


def last_uses(state_dir: Path, tokens: Iterable[str]) -> dict[str, LastUse]:
    """The newest row of each of these tokens that has one: a look-up in an index for each. Raises as `read_rows`."""
    intents, _ = _read_journal(state_dir / FOLDER)
    recent: dict[str, LastUse] = {}
    for found in intents:
        token, use = found.intent.token, LastUse(found.intent.time_ms, found.intent.client)
        if token is not None and use >= recent.get(token, use):
            recent[token] = use
    connection = open_to_read(state_dir / FILE)
    stored = dict(_stored_uses(connection, tokens)) if connection else {}
    return {token: max(uses) for token in tokens if (uses := [*_given(recent, token), *_given(stored, token)])}


def _given(uses: dict[str, LastUse], token: str) -> tuple[LastUse, ...]:
    return (uses[token],) if token in uses else ()


def _stored_uses(connection: sqlite3.Connection, tokens: Iterable[str]) -> Iterator[tuple[str, LastUse]]:
    newest = "SELECT time_ms, client FROM audit WHERE token = ? ORDER BY time_ms DESC LIMIT 1"
    with closing(connection):
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'audit_token'").fetchone():
            return  # without the index, each look-up would read the whole table
        for token in tokens:
            if row := connection.execute(newest, (token,)).fetchone():
                yield token, LastUse(*row)


class _Found(NamedTuple):
    seq: int
    run: str
    intent: Intent
    outcome: Outcome | None


def _place(found: _Found) -> tuple[int, str]:
    return found.seq, found.run


def _combine(copies: list[_Found], outcome: Outcome | None) -> Call:
    """Combine the copies of a row: it may be in both places, or its outcome in the other one."""
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
            continue  # moved to the database meanwhile
    return intents, outcomes


# In the order of the structs' fields, so that a row becomes two structs without naming them: a list can have a million.
_INTENT = Intent.__struct_fields__
_OUTCOME = Outcome.__struct_fields__[1:]  # without its seq
_SELECT = f"SELECT run, {', '.join((*_INTENT, *_OUTCOME))} FROM audit"  # noqa: S608 - constants
_QUERIES, _ARGUMENTS = _INTENT.index("queries"), _INTENT.index("arguments")
_FALLBACK = _OUTCOME.index("fallback")


def _read_database(connection: sqlite3.Connection, wanted: Filter, backwards: bool) -> Iterator[_Found]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'audit'").fetchone():
        return  # created, but still without a table
    select = _SELECT
    for column in columns_after(connection.execute("PRAGMA user_version").fetchone()[0]):
        select = select.replace(column.split()[0], "NULL")  # the daemon adds the column at its next write
    where, arguments = wanted.conditions()
    order = "DESC" if backwards else "ASC"
    for values in connection.execute(f"{select} WHERE {where} ORDER BY seq {order}, run {order}", arguments):
        yield _from_database(values)


def _from_database(values: tuple[Any, ...]) -> _Found:
    run, *started = values[: len(_INTENT) + 1]
    if started[_QUERIES] is not None:
        started[_QUERIES] = msgspec.json.decode(started[_QUERIES])
    arguments = started[_ARGUMENTS]
    started[_ARGUMENTS] = msgspec.UNSET if arguments is None else msgspec.json.decode(arguments)
    intent = Intent(*started)
    ended = list(values[len(_INTENT) + 1 :])
    if ended[0] is None:
        return _Found(intent.seq, run, intent, None)
    if ended[_FALLBACK] is not None:
        ended[_FALLBACK] = bool(ended[_FALLBACK])
    return _Found(intent.seq, run, intent, Outcome(intent.seq, *ended))
