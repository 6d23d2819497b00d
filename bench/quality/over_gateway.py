"""A gateway in front of servers that offer the tools of a set, queried with a sample over HTTP."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.gateway import call, measured_gateway
from bench.process import PIPE
from bench.quality.metrics import DEPTH, Figures, judge, mean
from bench.quality.served import by_server
from bench.quality.sets import ToolSet, spread
from tests.gateway_process import GatewayProcess

SAMPLE = 60
USUAL_RESULTS = 5
CHARACTERS_A_TOKEN = 4
READY_S = 120.0


@dataclass(frozen=True, slots=True)
class Seen:
    figures: Figures
    answer_tokens: list[float]  # of the text block, for `maxResults: 5`
    p50_ms: float
    p95_ms: float


async def measure(folder: Path, tools: ToolSet) -> Seen:
    names = list(by_server(list(tools.tools)))
    async with served(folder / tools.name / "tools.jsonl") as port:
        servers = {f"s{n}": {"url": f"http://127.0.0.1:{port}/{n}/mcp", "name": name} for n, name in enumerate(names)}
        async with measured_gateway(servers, {"list_max_age_s": 3600}) as gateway:
            await _until_all_are_found(gateway)
            return await _ask(gateway, tools, names)


async def _ask(gateway: GatewayProcess, tools: ToolSet, names: list[str]) -> Seen:
    figures, lengths, times = [], [], []
    for asked in spread(tools.asked, SAMPLE):
        hits = [_key(result["toolKey"], names) for result in (await _discover(gateway, asked.query, DEPTH))[1]]
        figures.append(judge(asked, hits))
        began = time.perf_counter()
        text, _ = await _discover(gateway, asked.query, USUAL_RESULTS)
        times.append((time.perf_counter() - began) * 1000)
        lengths.append(len(text) / CHARACTERS_A_TOKEN)
    times.sort()
    return Seen(mean(figures), lengths, times[len(times) // 2], times[len(times) * 95 // 100])


async def _discover(gateway: GatewayProcess, query: str, most: int) -> tuple[str, list[dict[str, Any]]]:
    answer = msgspec.json.decode(await call(gateway, "tool_discovery", {"query": [query], "maxResults": most}))
    text = answer["result"]["content"][0]["text"]
    return text, answer["result"]["structuredContent"]["results"]


async def _until_all_are_found(gateway: GatewayProcess) -> None:
    """A server that is starting, or slow to list its tools, is left out of a discovery, and a notice says so."""
    anything = {"query": ["anything at all"], "maxResults": 1}
    async with asyncio.timeout(READY_S):
        while b"tools are missing" in await call(gateway, "tool_discovery", anything):
            await asyncio.sleep(0.2)


def _key(tool_key: str, names: list[str]) -> str:
    server, _, tool = tool_key.partition(":")
    return f"{names[int(server[1:])]}:{tool}"


@asynccontextmanager
async def served(tools: Path) -> AsyncIterator[int]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.quality.served", str(tools)), stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline())
    finally:
        process.stdin.close()
        await process.wait()
