"""Reads audit rows back from journal and database together, with or without a running daemon. Changes neither."""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

import msgspec

from pointsman.router.audit.filters import Filter
from pointsman.router.audit.kept import (
    ENDS,
    INTENT,
    OUTCOME,
    STORED,
    AuditDatabaseAwayError,
    AuditDatabaseError,
    KeptRows,
    LastUse,
    SharedRows,
    Stored,
)
from pointsman.router.audit.rows import Intent, Outcome, Row, iso_time, row_of
from pointsman.router.audit.segments import Runs, list_segments, read_entries
from pointsman.router.audit.sqlite_rows import SqliteRows

__all__ = [
    "NEARBY",
    "SCANNED",
    "Filter",
    "LastUse",
    "Page",
    "Source",
    "count_in_journal",
    "follow",
    "last_uses",
    "read_calls",
    "read_page",
    "read_rounds",
    "read_rows",
]

POLL_S = 0.5
MAX_RETRY_S = 8.0
SCANNED = 50_000  # rows that one page looks through for those that match
NEARBY = 5_000  # rows before and after a row among which its other rounds are

Call = tuple[Intent, Outcome | None]  # None: in progress
Outage: TypeAlias = Callable[[AuditDatabaseError | None], None]
"""Called once with the error when a database has gone away, and with None when it is back."""
Source: TypeAlias = Path | KeptRows
"""Where to read: a state folder with its own database, or the rows of several gateways."""


def read_rows(source: Source, wanted: Filter | None = None, *, newest: int | None = None) -> Iterator[Row]:
    """Return the matching rows in order of their seq; with `newest`, only that many of the last ones.

    Raises:
        sqlite3.Error, AuditDatabaseError: the database cannot be read.
        NewerSchemaError: a newer Pointsman wrote it.
        OSError: the journal cannot be read.
    """
    wanted = wanted or Filter()
    if newest is None:
        return map(_row, _read(source, wanted))
    with closing(_read(source, wanted, backwards=True)) as found:
        return reversed([_row(stored) for stored in islice(found, min(newest, sys.maxsize))])


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows, newest first."""

    rows: list[Row]  # as many as were asked for, or some more with the seq of the last
    older: int | None  # the `before` of the next page; None: there are no older rows
    complete: bool  # whether all matching rows between this page and the next are here; else there was too much to read


def read_page(
    source: Source, wanted: Filter, *, newest: int, before: int | None = None, count: int, scanned: int = SCANNED
) -> Page:
    """Return the latest matching rows with a seq below `before`, and where the next page begins.

    `newest` is the last seq. The work is bounded by `scanned` rows, however many there are and however few match.

    Raises as `read_rows`.
    """
    kept = _kept(source)
    newest_moved, first, last = kept.bounds(wanted.since_ms, wanted.until_ms)
    newest = max(newest, newest_moved)
    top = min(before or newest + 1, newest + 1, newest + 1 if last is None else last + 1)
    lowest = kept.lowest(top, scanned)
    bottom = max(lowest, wanted.after_seq, 0 if first is None else first - 1)
    bounded = replace(wanted, before_seq=top, after_seq=bottom)
    with closing(_read(kept, bounded, backwards=True)) as found:
        rows = [_row(stored) for stored in islice(found, count)]
        for stored in found:
            if stored[1] != rows[-1].seq:  # rows of several gateways may have the same seq; a page has all or none
                return Page(rows, stored[1] + 1, complete=True)
            rows.append(_row(stored))
    more = bottom == lowest > 0 and kept.has_rows_up_to(bottom)
    return Page(rows, bottom + 1 if more else None, complete=not more)


def read_rounds(source: Source, seq: int, request_id: str | None = None) -> list[Row]:
    """Return the row with this seq and the other rounds of its request, in their order; empty if there is none.

    `request_id`: of the row that is meant, where several gateways have one with this seq.

    Raises as `read_rows`.
    """
    kept = _kept(source)
    rows = list(read_rows(kept, Filter(request_id=request_id, after_seq=seq - 1, before_seq=seq + 1)))
    if not rows:
        return []
    lowest, highest = kept.lowest(seq, NEARBY), kept.highest(seq, NEARBY)
    return list(read_rows(kept, Filter(request_id=rows[0].request_id, after_seq=lowest, before_seq=highest)))


def read_calls(source: Source, wanted: Filter, *, backwards: bool = False) -> Iterator[Call]:
    """Return the matching calls as intent and outcome. Raises as `read_rows`."""
    return map(_call, _read(source, wanted, backwards=backwards))


def count_in_journal(source: Source) -> int:
    """Return how many rows have not been moved from the journal yet. Raises as `read_rows`."""
    kept = _kept(source)
    places = {(run, intent.seq) for run, intent in _read_journal(kept.journal)[0]}
    if not places:
        return 0
    first = min(seq for _, seq in places)
    with kept.read(Filter(after_seq=first - 1), backwards=False) as moved:
        return len(places.difference((stored[0], stored[1]) for stored in moved))


_IN_PROGRESS = (None,) * len(OUTCOME)
_place = itemgetter(1, 0)  # seq and run


def _kept(source: Source) -> KeptRows:
    return SqliteRows(source) if isinstance(source, Path) else source


def _read(source: Source, wanted: Filter, *, backwards: bool = False) -> Generator[Stored]:
    """Return the matching rows of both places in order, each once."""
    kept = _kept(source)
    # The order matters. A run that has ended writes no more, and rows that move out of the journal while it is read
    # are in the database, which is read last.
    runs = Runs(kept.journal)
    intents, outcomes = _read_journal(kept.journal)
    in_journal = [_stored(run, intent) for run, intent in intents if wanted.matches_intent(intent)]
    in_journal.sort(key=_place, reverse=backwards)
    has_ended = cache(runs.is_known_to_have_ended if kept.shared is not None else runs.has_ended)
    any_outcome = wanted.outcome is None and wanted.code is None
    # Of two copies of a row the one of the database comes first: its outcome may be gone from the journal.
    with (
        kept.read(wanted, backwards=backwards) as in_database,
        closing(heapq.merge(in_database, in_journal, key=_place, reverse=backwards)) as merged,
    ):
        last_seq, last_run = -1, ""
        for stored in merged:
            run, seq = stored[0], stored[1]
            if seq == last_seq and run == last_run:
                continue
            last_seq, last_run = seq, run
            if stored[ENDS] is None:
                stored = _completed(stored, outcomes.get((run, seq)), has_ended(run))
            if any_outcome or wanted.matches_outcome(stored[ENDS], stored[ENDS + 1]):
                yield stored


_MOST_GAPS = 256
_GAP_ROUNDS = 10


def follow(
    source: Source,
    wanted: Filter,
    lines: int,
    *,
    pause: Callable[[], None] = lambda: time.sleep(POLL_S),
    on_outage: Outage | None = None,
) -> Iterator[list[Row]]:
    """Yield the latest `lines` rows, then the new ones after each `pause`, indefinitely. Raises as `read_rows`.

    With `on_outage`, a database that goes away later is waited for.
    """
    if (shared := _kept(source).shared) is not None:
        yield from _follow_arrivals(shared, wanted, lines, pause, on_outage)
    newest = max((intent.seq for intent, _ in islice(read_calls(source, Filter(), backwards=True), 1)), default=0)
    under_way = {intent.seq for intent, _ in read_calls(source, Filter(outcome="")) if intent.seq <= newest}
    earlier = (
        row_of(intent, outcome)
        for intent, outcome in read_calls(source, wanted, backwards=True)
        if outcome is not None and intent.seq <= newest and intent.seq not in under_way
    )
    yield list(islice(earlier, min(lines, sys.maxsize)))[::-1]
    gaps: dict[int, int] = {}  # seq -> for how many rounds more it is looked for
    while True:
        pause()
        fresh: list[Row] = []
        before, seen = newest, set[int]()
        for intent, outcome in read_calls(source, Filter(after_seq=newest, also=frozenset({*under_way, *gaps}))):
            seen.add(intent.seq)
            newest = max(newest, intent.seq)
            if outcome is None:
                under_way.add(intent.seq)
                continue
            under_way.discard(intent.seq)
            if wanted.matches_intent(intent) and wanted.matches_outcome(outcome.outcome, outcome.code):
                fresh.append(row_of(intent, outcome))
        # Replicas draw their seqs before they write them, so a lower one may come after a higher one.
        skipped = (seq for seq in range(max(before, newest - _MOST_GAPS) + 1, newest))
        gaps = {seq: rounds - 1 for seq, rounds in gaps.items() if rounds > 1 and seq not in seen}
        gaps |= {seq: _GAP_ROUNDS for seq in skipped if seq not in seen}
        yield fresh


def _follow_arrivals(
    shared: SharedRows, wanted: Filter, lines: int, pause: Callable[[], None], on_outage: Outage | None
) -> Iterator[list[Row]]:
    """Follow rows of several gateways by their arrival: their seqs become visible out of order, and may be equal."""
    newest, _ = shared.look()
    under_way = set(shared.unfinished(newest))
    with closing(_read(shared, wanted, backwards=True)) as found:
        ended = (stored for stored in found if stored[ENDS] is not None)
        earlier = list(islice(ended, min(lines, sys.maxsize)))[::-1]
    # Some of them are in our journal only, or have ended since: they arrive later, and were shown by then.
    shown = {_place(stored) for stored in earlier}
    yield list(map(_row, earlier))
    while True:
        pause()
        fresh: list[Row] = []
        for number, stored in _arrivals(shared, newest, under_way, on_outage):
            newest = max(newest, number)
            if stored[ENDS] is None:
                under_way.add(number)
                continue
            under_way.discard(number)
            intent, outcome = _call(stored)
            if _place(stored) in shown or outcome is None or not wanted.matches_intent(intent):
                continue
            if wanted.matches_outcome(outcome.outcome, outcome.code):
                fresh.append(_row(stored))
        yield fresh


def _arrivals(
    shared: SharedRows, newest: int, under_way: set[int], on_outage: Outage | None
) -> list[tuple[int, Stored]]:
    """The rows that arrived later, all or none; retries with exponential backoff while the database is away."""
    wait_s, away = POLL_S, False
    while True:
        try:
            found = shared.arrivals(newest, under_way)
        except AuditDatabaseAwayError as error:
            if on_outage is None:
                raise
            if not away:
                on_outage(error)
            away = True
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_RETRY_S)
        else:
            if away and on_outage is not None:
                on_outage(None)
            return found


def last_uses(source: Source, tokens: Iterable[str]) -> dict[str, LastUse]:
    """The newest row of each of these tokens that has one: a look-up in an index for each. Raises as `read_rows`."""
    kept, wanted = _kept(source), list(tokens)
    intents, _ = _read_journal(kept.journal)
    newest: dict[str, LastUse] = {}
    for _, intent in intents:
        if intent.token is not None:
            use = LastUse(intent.time_ms, intent.client)
            newest[intent.token] = max(use, newest.get(intent.token, use))
    for token, use in kept.last_uses(wanted).items():
        newest[token] = max(use, newest.get(token, use))
    return {token: newest[token] for token in wanted if token in newest}


def _completed(stored: Stored, outcome: Outcome | None, run_has_ended: bool) -> Stored:
    if outcome is None and run_has_ended:
        outcome = Outcome(stored[1], "interrupted")
    if outcome is None:
        return stored
    return stored[:ENDS] + msgspec.structs.astuple(outcome)[1:] + stored[len(STORED) :]


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


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def _stored(run: str, intent: Intent) -> Stored:
    """A row of the journal, with the values that the database would have."""
    queries = None if intent.queries is None else _encode(intent.queries).decode()
    arguments = None if intent.arguments is msgspec.UNSET else _encode(intent.arguments).decode()
    as_text = msgspec.structs.replace(intent, queries=queries, arguments=arguments)
    return (run, *msgspec.structs.astuple(as_text), *_IN_PROGRESS)


def _row(stored: Stored) -> Row:
    # fmt: off
    (
        _, seq, time_ms, request_id, kind, token, project, client, method, queries, tool_key, server_id, arguments,
        outcome, code, ms, results, size, provider, fallback, repeats, read_as, confirmed, *replica,
    ) = stored
    return Row(
        seq, iso_time(time_ms), request_id, kind, token, project, client,
        None if queries is None else _decode(queries),
        tool_key, server_id, method, outcome, code, ms, results, size, provider,
        None if fallback is None else bool(fallback),
        msgspec.UNSET if arguments is None else _decode(arguments),
        msgspec.UNSET if repeats is None else repeats,
        msgspec.UNSET if read_as is None else read_as,
        msgspec.UNSET if confirmed is None else confirmed,
        replica[0] if replica and replica[0] is not None else msgspec.UNSET,
    )
    # fmt: on


def _call(stored: Stored) -> Call:
    started, ended = dict(zip(INTENT, stored[1:ENDS], strict=True)), dict(zip(OUTCOME, stored[ENDS:], strict=False))
    if started["queries"] is not None:
        started["queries"] = _decode(started["queries"])
    started["arguments"] = msgspec.UNSET if started["arguments"] is None else _decode(started["arguments"])
    intent = Intent(**started)
    if ended["outcome"] is None:
        return intent, None
    if ended["fallback"] is not None:
        ended["fallback"] = bool(ended["fallback"])
    return intent, Outcome(intent.seq, **ended)
