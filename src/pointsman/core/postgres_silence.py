"""Notices a PostgreSQL that hangs: it accepts connections and answers nothing, and libpq waits without a limit.

A statement may be long, so silence alone proves nothing. After a second of it a new connection is tried, which a server
that works answers quickly.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from typing import Any, Final, TypeVar

import psycopg
from psycopg.waiting import Ready

QUIET_S: Final = 1.0
"""How long a connection may be silent before the server is tried."""
MOST_QUIET_S: Final = 30.0
"""The same, for a long statement of a server that has answered; it doubles up to this."""
TRY_S: Final = 2
"""How long a new connection may take. psycopg allows no less."""
KNOWN_S: Final = 3.0
"""How long one failed try counts for all connections, so that each need not wait for its own."""

T = TypeVar("T")


class SilentServerError(psycopg.OperationalError):
    """The server hangs. The connection cannot be used any more."""

    def __init__(self) -> None:
        super().__init__(f"no answer within {QUIET_S + TRY_S:.0f} s")


class Silence:
    """What is known of one server. Threads share it."""

    def __init__(self, url: str, program: str) -> None:
        self._url = url
        self._program = program
        self._trying = threading.Lock()
        self._answered_at = self._hangs_until = float("-inf")

    def watched(self, waiting: Generator[Any, Any, T], info: psycopg.ConnectionInfo) -> Generator[Any, Any, T]:
        """Run what waits for a connection, which gets `Ready.NONE` every 0.1 s. Raises SilentServerError."""
        ready = None
        since, patience = time.monotonic(), QUIET_S
        hangs = False
        while True:
            try:
                state = waiting.send(ready)
            except StopIteration as done:
                result: T = done.value
                return result
            ready = yield state
            now = time.monotonic()
            if ready != Ready.NONE:
                since, patience, hangs = now, QUIET_S, False
                if ready is not None and ready & Ready.R:
                    self._hangs_until = float("-inf")
            elif hangs:  # also after the try: the answer may have come during it
                raise SilentServerError
            elif now < self._hangs_until or now - since >= patience:
                hangs = not self._answers(info)
                since, patience = time.monotonic(), min(2 * patience, MOST_QUIET_S)

    def _answers(self, info: psycopg.ConnectionInfo) -> bool:
        with self._trying:
            now = time.monotonic()
            if now < self._hangs_until:
                return False
            if now - self._answered_at >= QUIET_S:
                self._try(info)
            return time.monotonic() >= self._hangs_until

    def _try(self, info: psycopg.ConnectionInfo) -> None:
        """Of the hosts of an address, the one that is silent. A refusal is an answer."""
        try:
            psycopg.connect(
                self._url, host=info.host, port=info.port, connect_timeout=TRY_S, application_name=self._program
            ).close()
        except psycopg.errors.ConnectionTimeout:
            self._hangs_until = time.monotonic() + KNOWN_S
        except psycopg.Error:
            self._answered_at = time.monotonic()
        else:
            self._answered_at = time.monotonic()
