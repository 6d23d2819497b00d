"""Questions of a stdio server that all callers share: nobody waits long, and nobody is asked for another."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from tests.gateway_process import gateway_process
from tests.router.raw_client import speaker

ASKER = Path(__file__).parents[3] / "servers" / "asker.py"
ABLE: dict[str, Any] = {"elicitation": {}, "roots": {}}
WAIT_S = 30.0


def asker(folder: Path) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-S", str(ASKER), "legacy", str(folder / "trace")]}


def execute(tool: str) -> dict[str, Any]:
    return {"toolKey": f"s:{tool}", "arguments": {"tag": "x"}}


async def test_a_tool_that_was_never_called_does_not_wait_for_one_that_never_ends(tmp_path: Path) -> None:
    config = {"servers": {"s": asker(tmp_path)}}
    async with (
        gateway_process(tmp_path, config) as gateway,
        speaker(gateway, "legacy", capabilities=ABLE) as one,
        speaker(gateway, "legacy", capabilities=ABLE) as other,
    ):
        endless = asyncio.create_task(one.call("tool_execute", execute("stay")))
        async with asyncio.timeout(WAIT_S):
            while not (tmp_path / "trace").exists():
                await asyncio.sleep(0.02)
        answer = await other.call("tool_execute", execute("plain"))
        assert answer["content"][0]["text"] == "plain x"
        assert not endless.done()
        endless.cancel()
