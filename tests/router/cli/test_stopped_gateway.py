"""A gateway that is stopped lets the owner's commands finish."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.gateway_process import gateway_process
from tests.router.cli.commands import run
from tests.router.conftest import workshop

LONG_S = 60.0


async def test_a_call_of_the_owner_may_finish_after_sigterm(tmp_path: Path) -> None:
    trace, go = tmp_path / "trace", tmp_path / "go"
    async with gateway_process(tmp_path, {"servers": {"shop": workshop(trace)}}) as gateway:
        calling = asyncio.create_task(run(tmp_path, "tools", "call", "shop:wait", f"object={go}"))
        async with asyncio.timeout(LONG_S):
            while not trace.exists():
                await asyncio.sleep(0.02)
        gateway.send_signal(signal.SIGTERM)
        await gateway.until_logged("waiting for 1 call to end")
        go.touch()
        called = await asyncio.wait_for(calling, LONG_S)
        assert await asyncio.wait_for(gateway.process.wait(), LONG_S) == 0
    assert (called.code, called.stdout) == (0, "wait done\n"), called.stderr
