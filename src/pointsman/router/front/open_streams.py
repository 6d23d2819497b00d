"""The streams that stay open without a request under way: they end with their caller's rights, and with us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pointsman.core.model import Caller


class OpenStreams:
    def __init__(self) -> None:
        self._ends: dict[asyncio.Future[None], Caller] = {}

    @contextmanager
    def entered(self, caller: Caller) -> Iterator[asyncio.Future[None]]:
        """Yields a future that is done when the stream shall end."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends[ended] = caller
        try:
            yield ended
        finally:
            del self._ends[ended]

    def count(self, token_id: str) -> int:
        """How many streams of a token are open."""
        return sum(caller.token_id == token_id and not ended.done() for ended, caller in self._ends.items())

    def callers(self) -> set[Caller]:
        return set(self._ends.values())

    def end(self, which: Callable[[Caller], bool]) -> None:
        for ended, caller in list(self._ends.items()):
            if which(caller) and not ended.done():
                ended.set_result(None)

    def end_all(self) -> None:
        self.end(lambda caller: True)
