"""Rate limits: calls in any minute (moving window), counted for each caller and tool."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from pointsman.archive.settings import DEFAULT_RATE_LIMITS, RATE_LIMITS, SettingsError
from pointsman.archive.tools.base import ToolError

if TYPE_CHECKING:
    from limits.strategies import MovingWindowRateLimiter

    from pointsman.archive.server.shared_windows import SharedWindows


class RateLimits:
    """Thread-safe. The first call that is counted here loads the library, which takes 0.1 s."""

    def __init__(
        self, per_minute: Mapping[str, int], tools: Collection[str], shared: SharedWindows | None = None
    ) -> None:
        """`shared`: counts for several archives. While it is away, each counts alone.

        Raises SettingsError for a tool that does not exist.
        """
        for tool in per_minute:
            if tool not in tools and tool not in DEFAULT_RATE_LIMITS:
                raise SettingsError(f"{RATE_LIMITS}: no tool `{tool}`; the tools are {', '.join(sorted(tools))}")
        self._per_minute = per_minute
        self._shared = shared
        self._loading = threading.Lock()
        self._limiter: MovingWindowRateLimiter | None = None

    def close(self) -> None:
        if self._shared is not None:
            self._shared.close()

    def count(self, tool: str, caller: str) -> None:
        """Raises ToolError: the limit is reached. Refused calls do not count."""
        limit = self._per_minute.get(tool, 0)
        if limit == 0:
            return
        left_s = self._count(tool, caller, limit)
        if left_s is None:
            return
        wait_s = max(1, math.ceil(left_s))
        raise ToolError(
            f"Rate limit exceeded for {tool}",
            help=f"The limit is {limit} calls a minute. Try again in {wait_s} s.",
            as_object=True,
            code="rate_limited",
            retryAfterSeconds=wait_s,
        )

    def _count(self, tool: str, caller: str, limit: int) -> float | None:
        """Count a call, or return the seconds until one is free."""
        if self._shared is not None:
            from pointsman.archive.server.shared_windows import WindowsAwayError

            with suppress(WindowsAwayError):
                return self._shared.count(tool, caller, limit)
        from limits import RateLimitItemPerMinute

        item, limiter = RateLimitItemPerMinute(limit), self._loaded()
        if limiter.hit(item, tool, caller):
            return None
        return limiter.get_window_stats(item, tool, caller).reset_time - time.time()

    def _loaded(self) -> MovingWindowRateLimiter:
        with self._loading:
            if self._limiter is None:
                from limits.storage import MemoryStorage
                from limits.strategies import MovingWindowRateLimiter

                self._limiter = MovingWindowRateLimiter(MemoryStorage())
            return self._limiter
