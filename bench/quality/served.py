"""`python -m bench.quality.served FILE`: the tools of a set, each server of the set at a path of its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench.servers.answers import TTL_MS, Answers, fresh
from bench.servers.http import HttpServer


class Served(Answers):
    def __init__(self, tools: list[dict[str, Any]]) -> None:
        super().__init__()
        self._results["tools/list"] = {"tools": tools, **fresh(TTL_MS)}


def by_server(tools: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    servers: dict[str, list[dict[str, Any]]] = {}
    for tool in tools:
        shown = {key: tool[key] for key in ("name", "description", "inputSchema")}
        shown["inputSchema"] = {"type": "object", **(shown["inputSchema"] or {})}  # clients reject a list without it
        servers.setdefault(tool["server"], []).append(shown)
    return servers


async def main(file: Path) -> None:
    lines = [line for line in file.read_bytes().splitlines() if line.strip()]
    servers: list[Answers] = [
        Served(tools) for tools in by_server([msgspec.json.decode(line) for line in lines]).values()
    ]
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: HttpServer(servers), "127.0.0.1", 0, backlog=1024)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until the parent process closes its end


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
