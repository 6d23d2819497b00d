"""A call that has ended leaves nothing behind, however it ended: its arguments are free at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bench.process import rss_mb
from tests.gateway_process import gateway_process
from tests.router.conftest import workshop
from tests.router.raw_client import ERAS, Era, Json, Speaker, speaker

ARGUMENT_MB = 2
CALLS = 25
ALLOWED_MB = ARGUMENT_MB * CALLS / 2  # kept by every call, the arguments alone would take twice as much
LATE_S = 0.1  # long enough for the gateway to watch whether the client is still there

Call = Callable[[Speaker, Path], Awaitable[Json]]


def execute(tool: str, path: Path) -> Json:
    arguments = {"object": str(path), "ballast": "x" * (ARGUMENT_MB << 20)}
    return {"name": "tool_execute", "arguments": {"toolKey": f"shop:{tool}", "arguments": arguments}}


async def fails(one: Speaker, path: Path) -> Json:
    return await one.message("tools/call", execute("refuse", path))


async def times_out(one: Speaker, path: Path) -> Json:
    return await one.message("tools/call", execute("hang", path))


async def takes_long(one: Speaker, path: Path) -> Json:
    path.unlink(missing_ok=True)
    asyncio.get_running_loop().call_later(LATE_S, path.touch)
    return await one.message("tools/call", execute("wait", path))


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("call", "said"),
    [(fails, "-32"), (times_out, "timeout"), (takes_long, "content")],
    ids=["fails", "times out", "takes long"],
)
async def test_the_arguments_of_a_call_are_freed_with_it(era: Era, call: Call, said: str, tmp_path: Path) -> None:
    call_s = 0.3 if call is times_out else 1
    config: dict[str, Any] = {"servers": {"shop": workshop(tmp_path / "trace", timeouts={"call_s": call_s})}}
    file = tmp_path / "file"
    async with gateway_process(tmp_path, config) as gateway, speaker(gateway, era) as one:
        for _ in range(3):  # until buffers and lazily loaded modules have their size
            assert said in str(await call(one, file))
        before = rss_mb(gateway.pid)
        for _ in range(CALLS):
            await call(one, file)
        assert rss_mb(gateway.pid) - before < ALLOWED_MB
