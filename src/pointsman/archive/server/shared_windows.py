"""Windows of rate limits in PostgreSQL, which several archives share."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, LiteralString

from pointsman.core.postgres import NewerSchemaError, Postgres, PostgresAwayError, psycopg

RETRY_S: Final = 5.0  # after a failure; until then no call waits for a connection
_PURGE_EVERY: Final = 1_000  # calls
_VERSIONS: tuple[LiteralString, ...] = (
    """
    CREATE TABLE rate_limit_windows (
        tool text NOT NULL, caller text NOT NULL, calls timestamptz[] NOT NULL, PRIMARY KEY (tool, caller)
    );
    """,
)
# Of calls at once, each waits for the row and sees what those before it have counted.
_COUNT: LiteralString = """
    INSERT INTO rate_limit_windows AS kept VALUES (%(tool)s, %(caller)s, ARRAY[clock_timestamp()])
    ON CONFLICT (tool, caller) DO UPDATE SET calls = clock_timestamp() || ARRAY(
        SELECT call FROM unnest(kept.calls) AS call WHERE call > clock_timestamp() - interval '60 s')
    WHERE (SELECT count(*) FROM unnest(kept.calls) AS call WHERE call > clock_timestamp() - interval '60 s') < %(limit)s
    RETURNING 1
"""
_WAIT: LiteralString = """
    SELECT extract(epoch FROM min(call) + interval '60 s' - clock_timestamp())::float8
    FROM rate_limit_windows, unnest(calls) AS call
    WHERE tool = %(tool)s AND caller = %(caller)s AND call > clock_timestamp() - interval '60 s'
"""

logger = logging.getLogger(__name__)


class WindowsAwayError(Exception):
    """They cannot be used now."""


class SharedWindows:
    """Calls in any minute, by tool and caller. Threads share it."""

    def __init__(self, postgres: Postgres, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._postgres = postgres
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._ready = False
        self._away_until = float("-inf")
        self._counted = 0

    def close(self) -> None:
        self._postgres.close()

    def count(self, tool: str, caller: str, limit: int) -> float | None:
        """Count a call; or, if the limit is reached, do not, and return the seconds until one is free.

        Raises WindowsAwayError.
        """
        if self._monotonic() < self._away_until:
            raise WindowsAwayError
        values = {"tool": tool, "caller": caller.replace("\0", "\ufffd"), "limit": limit}
        try:
            self._prepare()
            with self._postgres.connection() as connection:
                self._away_until = float("-inf")
                if connection.execute(_COUNT, values).fetchone() is not None:
                    return None
                row = connection.execute(_WAIT, values).fetchone()
                return float(row[0]) if row and row[0] is not None else 0.0
        except (PostgresAwayError, NewerSchemaError, psycopg.Error) as error:
            if self._away_until == float("-inf"):
                logger.warning("rate limits are counted by this archive alone: %s", error)
            self._away_until = self._monotonic() + RETRY_S
            raise WindowsAwayError from error

    def _prepare(self) -> None:
        """Make the table, and from time to time delete windows that are over."""
        with self._lock:
            if not self._ready:
                self._postgres.migrate("rate limits", _VERSIONS)
                self._ready = True
            self._counted += 1
            purge = self._counted % _PURGE_EVERY == 0
        if purge:
            with self._postgres.connection() as connection:
                connection.execute(
                    "DELETE FROM rate_limit_windows WHERE calls[1] < clock_timestamp() - interval '60 s'"
                )
