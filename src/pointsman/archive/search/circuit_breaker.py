"""A circuit breaker for embedding providers: after a failure, queries fail fast until a cooldown has passed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from pointsman.archive.embedding.base import EmbeddingError

COOLDOWN_S = 30.0

Result = TypeVar("Result")


class CircuitBreaker:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open_until = 0.0
        self._reason: str | None = None  # of the last failure; None while the breaker is closed

    def run(self, embed: Callable[[], Result]) -> Result:
        """Raises EmbeddingError: from `embed`, or again with its message until the cooldown has passed."""
        if self._reason is not None and self._clock() < self._open_until:
            raise EmbeddingError(self._reason)
        try:
            result = embed()
        except EmbeddingError as error:
            self._open_until, self._reason = self._clock() + COOLDOWN_S, str(error)
            raise
        self._reason = None
        return result
