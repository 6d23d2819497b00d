"""Reads audit rows back from journal and database together, with or without a running daemon. Changes neither."""

from __future__ import annotations

import heapq
import sqlite3
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pointsman.router.audit.database import FILE, columns_after, open_to_read
from pointsman.router.audit.rows import Intent, Outcome, Row, iso_time, row_of
from pointsman.router.audit.segments import FOLDER, Runs, list_segments, read_entries

POLL_S = 0.5
SCANNED = 50_000  # rows that one page looks through for those that match
NEARBY = 5_000  # rows before and after a row among which its other rounds are
_BY_VALUE = ("token", "project", "tool_key", "server_id", "kind", "request_id")
_IN_TEXT = ("queries", "tool_key", "client", "method", "request_id")

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
    request_id: str | None = None
    text: str | None = None  # anywhere in the queries, the tool's key, the client, the method or the request id
    before_seq: int | None = None
    after_seq: int = 0
    also: frozenset[int] = frozenset()  # matched although not after `after_seq`

    def matches_intent(self, intent: Intent) -> bool:
        if intent.seq <= self.after_seq and intent.seq not in self.also:
            return False
        if self.since_ms is not None and intent.time_ms < self.since_ms:
            return False
        if self.until_ms is not None and intent.time_ms >= self.until_ms:
            return False
        if self.before_seq is not None and intent.seq >= self.before_seq:
            return False
        if self.text and not _has_text(intent, self.text):
            return False
        return all(getattr(intent, name) == value for name, value in self._values())

    def matches_outcome(self, outcome: str | None, code: str | None) -> bool:
        if self.outcome is not None and self.outcome != (outcome or ""):
            return False
        return self.code is None or code == self.code

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
        # A page goes by seq alone: by another index, SQLite would sort all of its rows before the first.
        plus = "" if self.before_seq is None else "+"
        clauses: list[tuple[str, Any]] = [(f"{plus}{name} IS ?", value) for name, value in self._values()]
        if self.before_seq is not None:
            clauses.append(("seq < ?", self.before_seq))
        if self.since_ms is not None:
            clauses.append((f"{plus}time_ms >= ?", self.since_ms))
        if self.until_ms is not None:
            clauses.append((f"{plus}time_ms < ?", self.until_ms))
        if self.text:
            any_of = " || ' ' || ".join(f"ifnull({name}, '')" for name in _IN_TEXT)
            clauses.append((f"{any_of} LIKE ? ESCAPE '\\'", _like(self.text)))
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
        return map(_row, _read(state_dir, wanted))
    with closing(_read(state_dir, wanted, backwards=True)) as found:
        return reversed([_row(stored) for stored in islice(found, min(newest, sys.maxsize))])


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows, newest first."""

    rows: list[Row]
    older: int | None  # the `before` of the next page; None: there are no older rows
    complete: bool  # whether all matching rows between this page and the next are here; else there was too much to read


def read_page(
    state_dir: Path, wanted: Filter, *, newest: int, before: int | None = None, count: int, scanned: int = SCANNED
) -> Page:
    """Return the latest matching rows with a seq below `before`, and where the next page begins.

    `newest` is the last seq. The work is bounded by `scanned` rows, however many there are and however few match.

    Raises as `read_rows`.
    """
    newest_moved, first, last = _bounds(state_dir, wanted.since_ms, wanted.until_ms)
    newest = max(newest, newest_moved)
    top = min(before or newest + 1, newest + 1, newest + 1 if last is None else last + 1)
    lowest = max(top - 1 - scanned, 0)
    bottom = max(lowest, wanted.after_seq, 0 if first is None else first - 1)
    bounded = replace(wanted, before_seq=top, after_seq=bottom)
    with closing(_read(state_dir, bounded, backwards=True)) as found:
        rows = [_row(stored) for stored in islice(found, count + 1)]
    if len(rows) > count:
        return Page(rows[:count], rows[count].seq + 1, complete=True)
    more = bottom == lowest > 0 and _has_rows_up_to(state_dir, bottom)
    return Page(rows, bottom + 1 if more else None, complete=not more)


def read_rounds(state_dir: Path, seq: int) -> list[Row]:
    """Return the row with this seq and the other rounds of its request, in their order; empty if there is none.

    Raises as `read_rows`.
    """
    rows = list(read_rows(state_dir, Filter(after_seq=seq - 1, before_seq=seq + 1)))
    if not rows:
        return []
    around = Filter(request_id=rows[0].request_id, after_seq=max(seq - NEARBY, 0), before_seq=seq + NEARBY)
    return list(read_rows(state_dir, around))


def read_calls(state_dir: Path, wanted: Filter, *, backwards: bool = False) -> Iterator[Call]:
    """Return the matching calls as intent and outcome. Raises as `read_rows`."""
    return map(_call, _read(state_dir, wanted, backwards=backwards))


# A row as a tuple of the values that the database has, in the order of the structs' fields: a list can have a million,
# and only what is asked for is built of each.
_Stored = tuple[Any, ...]
_INTENT = Intent.__struct_fields__
_OUTCOME = Outcome.__struct_fields__[1:]  # without its seq
_SELECT = f"SELECT run, {', '.join((*_INTENT, *_OUTCOME))} FROM audit"  # noqa: S608 - constants
_ENDS = 1 + len(_INTENT)  # where the values of the outcome begin
_IN_PROGRESS = (None,) * len(_OUTCOME)
_place = itemgetter(1, 0)  # seq and run


def _read(state_dir: Path, wanted: Filter, *, backwards: bool = False) -> Generator[_Stored]:
    """Return the matching rows of both places in order, each once."""
    folder = state_dir / FOLDER
    # The order matters. A run that has ended writes no more, and rows that move out of the journal while it is read
    # are in the database, which is read last.
    runs = Runs(folder)
    intents, outcomes = _read_journal(folder)
    in_journal = [_stored(run, intent) for run, intent in intents if wanted.matches_intent(intent)]
    in_journal.sort(key=_place, reverse=backwards)
    connection = open_to_read(state_dir / FILE)
    has_ended, any_outcome = cache(runs.has_ended), wanted.outcome is None and wanted.code is None
    try:
        in_database = _read_database(connection, wanted, backwards) if connection else iter(())
        # Of two copies of a row the one of the database comes first: its outcome may be gone from the journal.
        with closing(heapq.merge(in_database, in_journal, key=_place, reverse=backwards)) as merged:
            last_seq, last_run = -1, ""
            for stored in merged:
                run, seq = stored[0], stored[1]
                if seq == last_seq and run == last_run:
                    continue
                last_seq, last_run = seq, run
                if stored[_ENDS] is None:
                    stored = _completed(stored, outcomes.get((run, seq)), has_ended(run))
                if any_outcome or wanted.matches_outcome(stored[_ENDS], stored[_ENDS + 1]):
                    yield stored
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
            if wanted.matches_intent(intent) and wanted.matches_outcome(outcome.outcome, outcome.code):
                fresh.append(row_of(intent, outcome))
        yield fresh


class LastUse(NamedTuple):
    time_ms: int
    client: str


def last_uses(state_dir: Path, tokens: Iterable[str]) -> dict[str, LastUse]:
    """The newest row of each of these tokens that has one: a look-up in an index for each. Raises as `read_rows`."""
    intents, _ = _read_journal(state_dir / FOLDER)
    recent: dict[str, LastUse] = {}
    for _, intent in intents:
        token, use = intent.token, LastUse(intent.time_ms, intent.client)
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


def _completed(stored: _Stored, outcome: Outcome | None, run_has_ended: bool) -> _Stored:
    if outcome is None and run_has_ended:
        outcome = Outcome(stored[1], "interrupted")
    return stored if outcome is None else stored[:_ENDS] + msgspec.structs.astuple(outcome)[1:]


def _read_journal(folder: Path) -> tuple[list[tuple[str, Intent]], dict[tuple[str, int], Outcome]]:
    """Return the intents with their runs, and the outcomes by run and seq."""
    intents: list[tuple[str, Intent]] = []
    outcomes: dict[tuple[str, int], Outcome] = {}
    for segment in list_segments(folder):
        try:
            for entry in read_entries(segment.path):
                if isinstance(entry, Intent):
                    intents.append((segment.run, entry))
                else:
                    outcomes[segment.run, entry.seq] = entry
        except FileNotFoundError:
            continue  # moved to the database meanwhile
    return intents, outcomes


def _read_database(connection: sqlite3.Connection, wanted: Filter, backwards: bool) -> Iterator[_Stored]:
    if not _has_table(connection):
        return iter(())  # created, but still without a table
    return connection.execute(*statement_for(connection, wanted, backwards))


def _has_table(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'audit'").fetchone())


def statement_for(connection: sqlite3.Connection, wanted: Filter, backwards: bool) -> tuple[str, list[Any]]:
    """Return the statement that reads the matching rows, and its arguments."""
    select = _SELECT
    for column in columns_after(connection.execute("PRAGMA user_version").fetchone()[0]):
        select = select.replace(column.split()[0], "NULL")  # the daemon adds the column at its next write
    where, arguments = wanted.conditions()
    order = "DESC" if backwards else "ASC"
    return f"{select} WHERE {where} ORDER BY seq {order}, run {order}", arguments


_NEAR_A_TIME = 1_000  # rows: a clock that was set back gives later rows earlier times
FIRST_SEQ = "SELECT min(seq) FROM (SELECT seq FROM audit WHERE time_ms >= ? ORDER BY time_ms LIMIT ?)"
LAST_SEQ = "SELECT max(seq) FROM (SELECT seq FROM audit WHERE time_ms < ? ORDER BY time_ms DESC LIMIT ?)"


def _bounds(state_dir: Path, since_ms: int | None, until_ms: int | None) -> tuple[int, int | None, int | None]:
    """Return the newest seq of the database, the first since a time and the last before a time.

    The latter two are None where there is no bound, or where rows of the journal may be meant.
    """
    connection = open_to_read(state_dir / FILE)
    if connection is None:
        return 0, None, None
    with closing(connection):
        if not _has_table(connection):
            return 0, None, None
        newest = _one(connection, "SELECT max(seq) FROM audit") or 0
        first = last = None
        if since_ms is not None:
            first = _one(connection, FIRST_SEQ, since_ms, _NEAR_A_TIME) or newest + 1
        if until_ms is not None and _any(connection, "time_ms >= ?", until_ms):
            last = _one(connection, LAST_SEQ, until_ms, _NEAR_A_TIME) or 0
        return newest, first, last


def _has_rows_up_to(state_dir: Path, seq: int) -> bool:
    connection = open_to_read(state_dir / FILE)
    if connection is None:
        return False
    with closing(connection):
        return _has_table(connection) and _any(connection, "seq <= ?", seq)


def _any(connection: sqlite3.Connection, condition: str, value: int) -> bool:
    return bool(connection.execute(f"SELECT 1 FROM audit WHERE {condition} LIMIT 1", (value,)).fetchone())  # noqa: S608


def _one(connection: sqlite3.Connection, statement: str, *values: int) -> int | None:
    found: int | None = connection.execute(statement, values).fetchone()[0]
    return found


def _has_text(intent: Intent, text: str) -> bool:
    """As `LIKE` compares: only ASCII letters match in either case."""
    values = (getattr(intent, name) for name in _IN_TEXT)
    whole = " ".join(value if isinstance(value, str) else _encode(value).decode() if value else "" for value in values)
    return _lower(_in_json(text)) in _lower(whole)


def _like(text: str) -> str:
    escaped = _in_json(text).replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return f"%{escaped}%"


def _in_json(text: str) -> str:
    """The queries are stored as JSON, where quotes and control characters have escapes."""
    return _encode(text).decode()[1:-1]


def _lower(text: str) -> str:
    return text.translate(_ASCII_LOWER)


_ASCII_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def _stored(run: str, intent: Intent) -> _Stored:
    """A row of the journal, with the values that the database would have."""
    queries = None if intent.queries is None else _encode(intent.queries).decode()
    arguments = None if intent.arguments is msgspec.UNSET else _encode(intent.arguments).decode()
    as_text = msgspec.structs.replace(intent, queries=queries, arguments=arguments)
    return (run, *msgspec.structs.astuple(as_text), *_IN_PROGRESS)


def _row(stored: _Stored) -> Row:
    # fmt: off
    (
        _, seq, time_ms, request_id, kind, token, project, client, method, queries, tool_key, server_id, arguments,
        outcome, code, ms, results, size, provider, fallback, repeats, read_as,
    ) = stored
    return Row(
        seq, iso_time(time_ms), request_id, kind, token, project, client,
        None if queries is None else _decode(queries),
        tool_key, server_id, method, outcome, code, ms, results, size, provider,
        None if fallback is None else bool(fallback),
        msgspec.UNSET if arguments is None else _decode(arguments),
        msgspec.UNSET if repeats is None else repeats,
        msgspec.UNSET if read_as is None else read_as,
    )
    # fmt: on


def _call(stored: _Stored) -> Call:
    started, ended = dict(zip(_INTENT, stored[1:_ENDS], strict=True)), dict(zip(_OUTCOME, stored[_ENDS:], strict=True))
    if started["queries"] is not None:
        started["queries"] = _decode(started["queries"])
    started["arguments"] = msgspec.UNSET if started["arguments"] is None else _decode(started["arguments"])
    intent = Intent(**started)
    if ended["outcome"] is None:
        return intent, None
    if ended["fallback"] is not None:
        ended["fallback"] = bool(ended["fallback"])
    return intent, Outcome(intent.seq, **ended)
