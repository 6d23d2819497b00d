"""Whether a connection answers: after a request without an answer it gets a ping, and is silent until one comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pointsman.core.errors import DownstreamError
from pointsman.router.downstream.connection import BudgetExceededError, Call, Connection, ConnectionLostError
from pointsman.router.serving.tasks import TaskSet

PING = {"legacy": "ping", "modern": "server/discover"}  # what any server of the era answers, if only with an error
_SLACK_S = 0.1  # two time limits of the same length may end one after the other

OnSilence = Callable[[float | None], None]
"""Called with how many seconds it has been silent, and with None once it answers again."""


class Liveness:
    """Of one connection. One ping at most is under way, and waits as long as the connection lasts."""

    __slots__ = ("_connection", "_pinging", "_tasks", "answers", "on_silence", "silent")

    def __init__(self, connection: Connection, tasks: TaskSet) -> None:
        self._connection = connection
        self._tasks = tasks
        self._pinging = False
        self.silent = False  # while it is, `answered` tells that it answers again
        self.answers = 0  # so far: unchanged means that none came in between
        self.on_silence: OnSilence = lambda silent_s: None

    def answered(self) -> None:
        """A request was answered, with a result or an error."""
        self.answers += 1
        if self.silent:
            self.silent = False
            self.on_silence(None)

    def unanswered(self, answers: int, waited_s: float, patience_s: float) -> None:
        """A request that was sent when there were so many answers had none for `waited_s`.

        If no other request was answered since, a ping is. Without an answer within `patience_s` of the request, the
        connection is silent.
        """
        if self._pinging or self.answers != answers:
            return
        self._pinging = True
        if waited_s >= patience_s - _SLACK_S:
            self._fall_silent(waited_s)
        self._tasks.spawn(self._ping(answers, waited_s, patience_s - waited_s))

    async def _ping(self, answers: int, waited_s: float, patience_s: float) -> None:
        ping = asyncio.ensure_future(self._connection.request(Call(PING[self._connection.introduction.era], {})))
        try:
            if not self.silent:
                await asyncio.wait((ping,), timeout=patience_s)
                if not ping.done() and self.answers == answers:
                    self._fall_silent(waited_s + patience_s)
            await ping
            self.answered()
        except (DownstreamError, BudgetExceededError):
            self.answered()
        except ConnectionLostError:
            pass  # its supervisor notices as well; over HTTP the next request asks again
        finally:
            ping.cancel()
            self._pinging = False

    def _fall_silent(self, silent_s: float) -> None:
        self.silent = True
        self.on_silence(silent_s)
