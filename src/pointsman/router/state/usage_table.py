"""What callers chose after their discoveries, learnt by all gateways together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pointsman.router.state.tables import StateTables

_MOST: Final = 32_000
_OVERLAP_S: Final = 30.0  # a row becomes visible after the time that it has
_HALF_LIVES_KEPT: Final = 10

Choice = tuple[str | None, str, str]  # project, word, tool key


class Learnt(NamedTuple):
    project: str | None
    word: str
    tool: str
    weight: float
    age_s: float  # of the weight


class UsageTable:
    """All methods block and raise StateAwayError."""

    def __init__(self, tables: StateTables, half_life_s: float) -> None:
        self._tables = tables
        self._half_life_s = half_life_s
        self._read_up_to: object = None  # the database's clock

    def add(self, choices: Mapping[Choice, float]) -> None:
        """In one order, so that gateways do not wait for one another in a circle."""
        rows = sorted((project or "", word, tool, weight) for (project, word, tool), weight in choices.items())
        with self._tables.writing() as connection, connection.cursor() as cursor:
            cursor.executemany(
                """
                INSERT INTO usage AS kept VALUES (%s, %s, %s, %s, clock_timestamp())
                ON CONFLICT (project, word, tool) DO UPDATE SET at = excluded.at, weight = excluded.weight
                    + kept.weight * power(0.5, greatest(extract(epoch FROM excluded.at - kept.at), 0)::float8 / %s)
                """,
                [(*row, self._half_life_s) for row in rows],
            )

    def read(self) -> list[Learnt]:
        """What has changed since the last time, or all; the latest first."""
        with self._tables.connection() as connection:
            rows = connection.execute(
                """
                SELECT nullif(project, ''), word, tool, weight,
                    extract(epoch FROM clock_timestamp() - at)::float8, clock_timestamp()
                FROM usage WHERE %(since)s::timestamptz IS NULL OR at > %(since)s - make_interval(secs => %(overlap)s)
                ORDER BY at DESC LIMIT %(most)s
                """,
                {"since": self._read_up_to, "overlap": _OVERLAP_S, "most": _MOST},
            ).fetchall()
        if rows:
            self._read_up_to = rows[0][5]
        return [Learnt(*row[:5]) for row in rows]

    def purge(self) -> None:
        with self._tables.connection() as connection:
            connection.execute(
                "DELETE FROM usage WHERE at < clock_timestamp() - make_interval(secs => %s)",
                (_HALF_LIVES_KEPT * self._half_life_s,),
            )
