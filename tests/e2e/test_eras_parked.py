"""A call that waits for its client's answer, and somebody dies: no hang, no leak, a clear end.

The client is a modern one and speaks raw HTTP, so that each step can be stopped at. The server is a legacy child, which
asks twice: the call is parked at step 1 and, after the first answer, at step 2.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.processes import descendants, gone
from tests.e2e.test_eras import noted, stdio_asker
from tests.gateway_process import GatewayProcess, gateway_process

PATIENCE_S = 30.0
VERSION = "2026-07-28"
STEPS = (1, 2)


@dataclass
class Caller:
    """A modern client, one request at a time."""

    gateway: GatewayProcess
    http: httpx2.AsyncClient
    trace: Path

    async def call(self, previous: dict[str, Any] | None = None, tag: str = "t") -> dict[str, Any]:
        """`tool_execute s:twice`, or its retry with an answer to every question of `previous`."""
        params: dict[str, Any] = {
            "name": "tool_execute",
            "arguments": {"toolKey": "s:twice", "arguments": {"tag": tag}},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": VERSION,
                "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
                "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            },
        }
        if previous is not None:
            answer = {"action": "accept", "content": {"name": "ada"}}
            params["inputResponses"] = dict.fromkeys(previous["result"]["inputRequests"], answer)
            params["requestState"] = previous["result"]["requestState"]
        headers = {
            **self.gateway.headers,
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": "tools/call",
            "Mcp-Name": "tool_execute",
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        response = await self.http.post(self.gateway.url, json=message, headers=headers)
        if response.headers["content-type"].startswith("text/event-stream"):
            events = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
            answered: dict[str, Any] = json.loads(events[-1])
        else:
            answered = response.json()
        return answered

    async def parked_at(self, step: int, tag: str = "t") -> dict[str, Any]:
        answer = await self.call(tag=tag)
        for _ in range(step - 1):
            answer = await self.call(answer, tag)
        assert answer["result"]["resultType"] == "input_required", answer
        return answer

    async def parked_when_back(self) -> dict[str, Any]:
        """Step 1 again, as soon as the server is there again."""
        while True:
            answer = await self.call(tag="again")
            if answer["result"]["resultType"] == "input_required":
                return answer
            assert answer["result"]["structuredContent"]["error"]["code"] == "server_unavailable"
            await asyncio.sleep(0.05)

    async def until_noted(self, word: str, count: int = 1) -> None:
        while noted(self.trace, word) < count:
            await asyncio.sleep(0.02)

    def child(self) -> int:
        (pid,) = (pid for pid, command in descendants(self.gateway.pid).items() if "asker.py" in command)
        return pid


@asynccontextmanager
async def caller(folder: Path, **limits: Any) -> AsyncIterator[Caller]:
    trace = folder / "trace"
    config = {"servers": {"s": stdio_asker("legacy", trace)}, "limits": limits}
    async with (
        asyncio.timeout(PATIENCE_S * 2),
        gateway_process(folder, config) as gateway,
        httpx2.AsyncClient(timeout=PATIENCE_S) as http,
    ):
        yield Caller(gateway, http, trace)


async def test_a_parked_call_is_answered_step_by_step(tmp_path: Path) -> None:
    async with caller(tmp_path) as it:
        done = await it.call(await it.parked_at(2))
        assert done["result"]["content"][0]["text"] == "ada ada"


@pytest.mark.parametrize("step", STEPS)
async def test_a_server_that_dies_under_a_parked_call_ends_it_with_a_reason(step: int, tmp_path: Path) -> None:
    async with caller(tmp_path) as it:
        parked = await it.parked_at(step)
        os.kill(it.child(), signal.SIGKILL)
        ended = (await it.call(parked))["result"]
        assert ended["isError"] is True
        assert ended["structuredContent"]["error"]["code"] == "server_unavailable"
        again = await it.parked_when_back()
        assert (await it.call(again, "again"))["result"]["resultType"] == "input_required"


@pytest.mark.parametrize("step", STEPS)
async def test_a_client_that_never_comes_back_costs_a_parked_call_and_the_server_is_told(
    step: int, tmp_path: Path
) -> None:
    async with caller(tmp_path, parked_s=6) as it:  # no retry takes that long, not even on a busy machine
        parked = await it.parked_at(step)
        await it.until_noted("cancelled")
        late = await it.call(parked)
        assert "error" in late
        assert "requestState" in late["error"]["message"]
        assert (await it.call(await it.parked_at(2, "next"), "next"))["result"]["content"][0]["text"] == "ada ada"


@pytest.mark.parametrize("step", STEPS)
async def test_a_gateway_that_is_asked_to_end_gives_its_parked_calls_up(step: int, tmp_path: Path) -> None:
    async with caller(tmp_path) as it:
        await it.parked_at(step)
        children = set(descendants(it.gateway.pid))
        assert await it.gateway.stop() == 0
        await gone(children)
        assert noted(it.trace, "finished") == 0


@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_gateway_leaves_nothing_and_its_successor_says_that_the_call_is_lost(
    step: int, tmp_path: Path
) -> None:
    async with caller(tmp_path) as it:
        parked = await it.parked_at(step)
        children = set(descendants(it.gateway.pid))
        await it.gateway.stop(signal.SIGKILL)
        await gone(children)
        token = it.gateway.token
    config = {"servers": {"s": stdio_asker("legacy", tmp_path / "trace")}}
    async with (
        asyncio.timeout(PATIENCE_S * 2),
        gateway_process(tmp_path, config, token=token) as gateway,
        httpx2.AsyncClient(timeout=PATIENCE_S) as http,
    ):
        lost = await Caller(gateway, http, tmp_path / "trace").call(parked)
        assert "requestState" in lost["error"]["message"]
