"""Where audit rows are kept after the journal: what SQLite and PostgreSQL have in common.

The journal and the log know nothing of the engine. The mover writes through `RowWriter`, `query` reads through
`KeptRows`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from pointsman.router.audit.database import NewerSchemaError
from pointsman.router.audit.filters import Filter
from pointsman.router.audit.rows import Ending, Intent, Outcome
from pointsman.router.audit.segments import Runs, Segment, delete_run, list_segments, read_batches


class AuditDatabaseError(Exception):
    """The rows in PostgreSQL cannot be read or written now. `str(error)` is shown to the operator."""


class AuditDatabaseAwayError(AuditDatabaseError):
    """PostgreSQL cannot be reached, or it ended the connection."""


READ_ERRORS = (sqlite3.Error, NewerSchemaError, OSError, AuditDatabaseError)
"""What reading rows can raise."""

Stored: TypeAlias = tuple[Any, ...]
"""A row as the values of `STORED`, and after them its replica if the engine knows replicas: a list can have a million,
and only what is asked for is built of each."""
INTENT = Intent.__struct_fields__
OUTCOME = Outcome.__struct_fields__[1:]  # without its seq
STORED = ("run", *INTENT, *OUTCOME)
ENDS = 1 + len(INTENT)  # where the values of the outcome begin

_COPIED_AT_ONCE = 5_000
UNFINISHED = Outcome(0, cast(Ending, None))  # all of its values are None


class LastUse(NamedTuple):
    time_ms: int
    client: str


class KeptRows(Protocol):
    """Rows that left the journal. Every method raises one of READ_ERRORS if they cannot be read."""

    @property
    def journal(self) -> Path:
        """The folder with the rows of this gateway that may not have been moved yet."""
        ...

    @property
    def shared(self) -> SharedRows | None:
        """These rows, if other gateways add some. Then seqs have gaps and may be equal, rows come late, and a run
        without a file may go on."""
        ...

    def read(self, wanted: Filter, *, backwards: bool) -> AbstractContextManager[Iterator[Stored]]:
        """The matching rows in order of seq and run. One without an outcome matches any outcome."""
        ...

    def bounds(self, since_ms: int | None, until_ms: int | None) -> tuple[int, int | None, int | None]:
        """The newest seq, the first since a time and the last before a time.

        The latter two are None where there is no bound, or where rows of the journal may be meant.
        """
        ...

    def lowest(self, below: int, rows: int) -> int:
        """A seq such that at most `rows` rows lie between it and `below`; 0: there are none at or before it."""
        ...

    def highest(self, above: int, rows: int) -> int:
        """A seq such that about `rows` rows lie between `above` and it."""
        ...

    def has_rows_up_to(self, seq: int) -> bool: ...

    def last_uses(self, tokens: Iterable[str]) -> Mapping[str, LastUse]: ...


class SharedRows(KeptRows, Protocol):
    """Rows of several gateways. Each has a number, in the order in which they arrived: no lower one comes later."""

    def look(self) -> tuple[int, int]:
        """The number of the latest arrival, and how many rows are without an outcome; remembered in `seen`."""
        ...

    @property
    def seen(self) -> tuple[int, int]:
        """What `look` returned last: a value that changes with the rows of other gateways."""
        ...

    def unfinished(self, up_to_id: int) -> list[int]:
        """The numbers of rows without an outcome; one that comes later does not change the number."""
        ...

    def arrivals(self, after_id: int, also: Iterable[int]) -> list[tuple[int, Stored]]:
        """The rows that arrived later, and those with these numbers, each with its number."""
        ...


class RowWriter(Protocol):
    """Used by one thread at a time. Every method raises one of READ_ERRORS; the journal keeps the rest."""

    @property
    def mover_environment(self) -> Mapping[str, str] | None:
        """The variables that name the database to a process of its own; None: there can be no such process."""
        ...

    @property
    def added(self) -> int:
        """How many rows of segments this writer has committed."""
        ...

    @property
    def replica(self) -> str | None:
        """The id of this gateway, if several keep their rows here."""
        ...

    def add_segment(self, segment: Segment) -> None:
        """Commit the rows and late outcomes of a segment. To repeat it changes nothing."""
        ...

    def add_stored(self, rows: Sequence[Stored]) -> int:
        """Commit rows of another database, and give outcomes to those that have none; return how many are new.

        To repeat it changes nothing: run and seq identify a row.
        """
        ...

    def interrupt(self, run: str) -> None:
        """Give the outcome `interrupted` to all rows of a run that have none: it has ended, and all is moved."""
        ...

    def interrupt_lost(self) -> None:
        """Give the outcome `interrupted` to the rows of gateways that are gone with their machine."""
        ...

    def trim(self, *, older_than_ms: int, max_bytes: int) -> int:
        """Delete rows that are too old, then the oldest until the rest fits; return how many, or about."""
        ...

    def newest_ms(self, *, other_than: str) -> int | None:
        """Return the time of the newest row of the other runs."""
        ...

    def close(self) -> None: ...


def move(writer: RowWriter, folder: Path, position: tuple[str, int] | None, *, other_runs: bool = True) -> int:
    """Move all final segments; return how many.

    `position` is the segment that this process writes to; without `other_runs` only its run is moved. A kill at any
    moment neither loses nor duplicates rows: the writer recognizes what it has, and a segment is deleted only after
    its rows are committed.

    Raises as `RowWriter`: the journal keeps the rest; retry later.
    """
    moved = 0
    for run, segments in _movable(folder, position, other_runs):
        for segment in segments:
            with suppress(FileNotFoundError):  # another process moves it, too
                writer.add_segment(segment)
            segment.path.unlink(missing_ok=True)
            moved += 1
        if position is None or run != position[0]:
            writer.interrupt(run)
            delete_run(folder, run)
    return moved


def copy_rows(kept: KeptRows, writer: RowWriter) -> tuple[int, int]:
    """Copy all rows, without those of the journal; return how many there are, and how many were new.

    Raises as `RowWriter`: what was copied so far stays; repeat it.
    """
    found = added = 0
    with kept.read(Filter(), backwards=False) as rows:
        while batch := list(islice(rows, _COPIED_AT_ONCE)):
            found += len(batch)
            added += writer.add_stored(batch)
    return found, added


def paired(segment: Segment) -> Generator[tuple[list[tuple[Intent, Outcome]], list[Outcome]]]:
    """Yield the calls of a segment, and the outcomes whose intents are in earlier segments.

    Calls without an outcome come last, with `UNFINISHED`.
    """
    unfinished: dict[int, Intent] = {}
    for batch in read_batches(segment.path):
        calls: list[tuple[Intent, Outcome]] = []
        late: list[Outcome] = []
        for entry in batch:
            if type(entry) is Intent:
                unfinished[entry.seq] = entry
            elif (intent := unfinished.pop(entry.seq, None)) is not None:
                calls.append((intent, cast(Outcome, entry)))
            else:
                late.append(cast(Outcome, entry))
        yield calls, late
    yield [(intent, UNFINISHED) for intent in unfinished.values()], []


def journal_bytes(folder: Path) -> int:
    """The size of all segments; 0 for one that is moved meanwhile."""
    return sum(_size(segment.path) for segment in list_segments(folder))


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _movable(folder: Path, position: tuple[str, int] | None, other_runs: bool) -> Iterator[tuple[str, list[Segment]]]:
    """Yield runs that have ended with all their segments, and our own run with its closed ones."""
    runs = Runs(folder)
    if position is not None and runs.has_ended(position[0]):  # also if the next gateway has deleted its file by now
        # The gateway was killed, and this is the process that moved for it. The next gateway moves all of it; here, the
        # next one may have ended as well by now, and the last segment says where seq goes on.
        return
    segments = {run: list(group) for run, group in groupby(list_segments(folder), key=attrgetter("run"))}
    for run in sorted({*runs, *segments}):
        of_run = segments.get(run, [])
        if position is not None and run == position[0]:
            yield run, [segment for segment in of_run if segment.number < position[1]]
        elif other_runs and runs.has_ended(run):
            yield run, of_run
