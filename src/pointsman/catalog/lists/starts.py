"""Servers that start or restart: whether to wait for them, how long, and what to say of those that do not run."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from pointsman.core.model import ToolSource


def is_expected(source: ToolSource) -> bool:
    """Whether a server that is not running is worth waiting for."""
    return source.restarting or source.status.state == "starting"


async def wait_for_start(source: ToolSource | None, first_list_s: float) -> None:
    """Wait until a server is no longer restarting; if it is started for the first time, at most `first_list_s`."""
    if source is not None and source.restarting:
        await source.restarted()
    elif source is not None and source.status.state == "starting":
        with suppress(TimeoutError):
            async with asyncio.timeout(first_list_s):
                await source.first_start()


def why_not_running(source: ToolSource | None) -> str:
    if source is None:
        return "it is not running"
    status = source.status
    if status.sign_in:
        return status.reason
    words = {"starting": "it is still starting", "failed": "it failed"}.get(status.state, "it is switched off")
    return f"{words} ({status.reason})" if status.reason else words
