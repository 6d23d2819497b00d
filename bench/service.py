"""A search of 1,000 tools through the search service on loopback: the whole list goes over the wire each time."""

from __future__ import annotations

import gzip
import json
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from bench.gateway import USUAL
from bench.process import cpu_ms, rss_mb
from bench.search import A_SERVER, tools
from bench.servers.tools import QUERIES
from pointsman.providers.base import ToolDocument
from tests.search_api_process import SearchApiProcess, search_api_process

SIZES = (100, 1_000, 5_000)
SEARCHES = 150


@asynccontextmanager
async def measured_service() -> AsyncIterator[tuple[SearchApiProcess, httpx2.AsyncClient]]:
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as folder:
        async with (
            search_api_process(Path(folder), {}, env=USUAL) as service,
            httpx2.AsyncClient(base_url=service.url, headers=service.headers, timeout=60) as http,
        ):
            yield service, http


def tool_infos(documents: Sequence[ToolDocument]) -> list[dict[str, Any]]:
    """As a gateway sends them."""
    return [
        {
            "toolKey": document.tool_key,
            "toolName": document.tool_name,
            "serverName": document.server_name,
            "description": document.description,
            "inputSchema": document.input_schema,
        }
        for document in documents
    ]


async def ask(http: httpx2.AsyncClient, queries: Sequence[str], infos: str, most: int, zipped: bool) -> dict[str, Any]:
    """One search; `infos` is the list of tools in JSON."""
    body = f'{{"query": {json.dumps(queries)}, "tools": {infos}, "maxResults": {most}}}'.encode()
    headers = {"Content-Type": "application/json"}
    if zipped:
        body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
    response = await http.post("/catalog/search", content=body, headers=headers)
    response.raise_for_status()
    answer: dict[str, Any] = response.json()
    return answer


async def service() -> None:
    print("A search through the search service, in ms, as a client sees it; `changed`: one server of 20 tools is new")
    print(f"  {'tools':>7}{'body':>7}{'KB':>7}{'first':>9}{'changed':>9}{'p50':>7}{'p95':>7}{'p99':>7}{'CPU ms':>8}")
    async with measured_service() as (process, http):
        await ask(http, ["anything"], json.dumps(tool_infos(tools(1, "warm"))), 5, False)  # loads the model
        for size in SIZES:
            for zipped in (False, True):
                await _measure(process, http, size, zipped)
        print(f"  {rss_mb(process.process.pid):.0f} MB RSS after all of them")


async def _measure(process: SearchApiProcess, http: httpx2.AsyncClient, size: int, zipped: bool) -> None:
    server = f"zipped {size}" if zipped else f"plain {size}"  # so that neither finds the other's list in the cache
    catalog = tools(size, server)
    infos = json.dumps(tool_infos(catalog))
    changed = json.dumps(tool_infos((*tools(A_SERVER, f"changed {server}"), *catalog[A_SERVER:])))

    async def timed(query: str, listed: str) -> float:
        began = time.perf_counter()
        await ask(http, [query], listed, 5, zipped)
        return (time.perf_counter() - began) * 1000

    first, other = await timed("anything", infos), await timed("anything", changed)
    before = cpu_ms(process.process.pid)
    times = sorted([await timed(f"{QUERIES[n % len(QUERIES)]} number {n}", infos) for n in range(SEARCHES)])
    spent = (cpu_ms(process.process.pid) - before) / SEARCHES
    p50, p95, p99 = (times[int(len(times) * part)] for part in (0.5, 0.95, 0.99))
    sent = len(gzip.compress(infos.encode(), 1) if zipped else infos) / 1000
    print(f"  {size:7,}{'gzip' if zipped else 'plain':>7}{sent:7.0f}{first:9.1f}{other:9.1f}", end="")
    print(f"{p50:7.2f}{p95:7.2f}{p99:7.2f}{spent:8.2f}", flush=True)
