"""Sessions that a client has ended: no gateway restores them from their ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pointsman.router.state.tables import StateTables

_MOST: Final = 100_000
_OVERLAP_S: Final = 30.0  # a row becomes visible after the time that it has


class EndedSessions:
    """Digests of ids. All methods block and raise StateAwayError."""

    def __init__(self, tables: StateTables) -> None:
        self._tables = tables
        self._read_up_to: object = None  # the database's clock

    def add(self, digests: Iterable[bytes], life_s: float) -> None:
        with self._tables.writing() as connection, connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO ended_sessions VALUES (%s, clock_timestamp() + make_interval(secs => %s)) "
                "ON CONFLICT DO NOTHING",
                [(digest, life_s) for digest in sorted(digests)],
            )

    def read(self) -> list[tuple[bytes, float]]:
        """What was ended since the last time, or in all: each with the seconds for which it is to be known."""
        with self._tables.connection() as connection:
            rows = connection.execute(
                """
                SELECT digest, extract(epoch FROM until - clock_timestamp())::float8, clock_timestamp()
                FROM ended_sessions WHERE until > clock_timestamp()
                    AND (%(since)s::timestamptz IS NULL OR ended > %(since)s - make_interval(secs => %(overlap)s))
                ORDER BY ended DESC LIMIT %(most)s
                """,
                {"since": self._read_up_to, "overlap": _OVERLAP_S, "most": _MOST},
            ).fetchall()
        if rows:
            self._read_up_to = rows[0][2]
        return [(bytes(digest), left_s) for digest, left_s, _ in rows]

    def purge(self) -> None:
        with self._tables.connection() as connection:
            connection.execute("DELETE FROM ended_sessions WHERE until <= clock_timestamp()")
