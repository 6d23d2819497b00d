"""How far the store has come, in one statement: what readers compare with what they hold in memory."""

from __future__ import annotations

from typing import NamedTuple

from pointsman.archive.store.base import Space
from pointsman.archive.store.sql.database import Connection, once

_STATE = """
SELECT (SELECT value FROM counters WHERE name = 'epoch'), (SELECT value FROM counters WHERE name = 'passage'),
    (SELECT coalesce(min(seq), 0) FROM tombstones), (SELECT coalesce(max(seq), 0) FROM tombstones),
    (SELECT coalesce(min(seq), 0) FROM vectors), (SELECT coalesce(max(seq), 0) FROM vectors),
    spaces.id, provider, model, dimension, segments.id, segments.last
FROM (SELECT 1 AS one) AS always LEFT JOIN spaces ON in_use = 1 LEFT JOIN segments ON ready = 1
ORDER BY segments.first
"""


class State(NamedTuple):
    epoch: int | None  # of a database without a file: another one has another epoch
    passages: int  # the highest number
    first_tombstone: int  # 0: there is none
    last_tombstone: int
    first_vector: int  # of all spaces; 0: there is none
    last_vector: int
    used: tuple[int, Space] | None  # the space in use, with its number
    segments: tuple[tuple[int, int], ...]  # of the index of words, the oldest first: each with its last passage


def read_state(connection: Connection) -> State:
    """What the transaction sees."""
    return once(connection, "state", lambda: _read(connection))


def _read(connection: Connection) -> State:
    rows = connection.execute(_STATE).fetchall()
    epoch, passages, first, last, oldest, newest, number, provider, model, dimension, *_ = rows[0]
    used = (int(number), Space(provider, model, dimension)) if number is not None else None
    segments = tuple(row[-2:] for row in rows if row[-1] is not None)
    return State(epoch, passages, first, last, oldest, newest, used, segments)
