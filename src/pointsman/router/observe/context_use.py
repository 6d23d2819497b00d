"""Counts what the two tools put into models' contexts: how often clients listed them, and the answers of discovery."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from pointsman.core.model import Caller, Json

MAX_CALLERS = 1000  # the least recently used are evicted, with their counts
MAX_CLIENTS = 32  # of one caller
REPEAT_S = 60.0  # a client that lists its tools again within this time still has the same conversation


class Used(Struct):
    """What one caller's clients received."""

    lists: int = 0  # each stands for one conversation
    answers: int = 0  # of discovery
    answer_chars: int = 0
    last_listed: dict[str, float] = field(default_factory=dict)  # by the client's name


class ContextUse:
    """Bounded, in memory, and lost when the daemon ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._used: OrderedDict[Caller, Used] = OrderedDict()

    @property
    def by_caller(self) -> Mapping[Caller, Used]:
        return self._used

    def listed(self, caller: Caller, client: str) -> None:
        """A client was given the two tools instead of all tools that the caller may use."""
        used, now = self._of(caller), self._clock()
        last = used.last_listed.pop(client, None)
        if last is None or now - last > REPEAT_S:
            used.lists += 1
        used.last_listed[client] = now
        if len(used.last_listed) > MAX_CLIENTS:
            del used.last_listed[next(iter(used.last_listed))]

    def answered(self, caller: Caller, answer: Json) -> None:
        """A discovery was answered. Its text counts; `structuredContent` repeats it for programs."""
        used = self._of(caller)
        used.answers += 1
        used.answer_chars += sum(len(block.get("text", "")) for block in answer["content"])

    def _of(self, caller: Caller) -> Used:
        used = self._used.setdefault(caller, Used())
        self._used.move_to_end(caller)
        if len(self._used) > MAX_CALLERS:
            self._used.popitem(last=False)
        return used
