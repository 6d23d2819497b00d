"""`python -m bench.trace`: how many files and functions of ours a warm call passes through in the daemon."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.gateway import HELLO, ROOT, USUAL, http_entries, measured_gateway, stdio_entry, until_it_serves
from bench.load.http import HttpConnection, open_connection
from bench.load.requests import call_body, http_call
from bench.process import http_servers
from bench.servers.tools import QUERIES
from bench.traced_daemon import Called
from tests.gateway_process import GatewayProcess

WARM_UP = 5
REPEATS = 5
AFTER_S = 0.1  # the audit's last steps may follow the answer
TOOLS = 19

decode_calls = msgspec.json.Decoder(list[Called]).decode


async def trace(*, files: bool = False, functions: bool = False) -> None:
    print("One warm call of a modern client, traced in the daemon")
    print(f"  {'call':16}{'server':8}{'files':>7}{'functions':>11}{'depth':>7}")
    async with (
        http_servers(1, TOOLS) as downstream,
        _traced_gateway({**http_entries(downstream.urls), "stdio": stdio_entry()}) as daemon,
    ):
        for server in ("http0", "stdio"):
            await until_it_serves(daemon.gateway, server)
            called = await daemon.trace("tool_execute", {"toolKey": f"{server}:echo", "arguments": HELLO})
            _print_counts("tool_execute", server, called, files, functions)
        called = await daemon.trace("tool_discovery", {"query": [QUERIES[0]]})
        _print_counts("tool_discovery", "both", called, files, functions)


class _TracedDaemon:
    def __init__(self, gateway: GatewayProcess, control: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self.gateway = gateway
        self._reader, self._writer = control

    async def trace(self, tool: str, arguments: Mapping[str, Any]) -> list[Called]:
        """What every one of the repeated calls passes through: what the daemon does beside them drops out."""
        url, headers = self.gateway.url, self.gateway.headers
        request = http_call(url, "modern", tool, call_body("modern", tool, arguments), headers, None)
        connection = await open_connection(url)
        for _ in range(WARM_UP):
            await connection.exchange(request)
        traces = [await self._record(connection, request) for _ in range(REPEATS)]
        connection.transport.close()
        common = set.intersection(*({(one.file, one.function) for one in trace} for trace in traces))
        return [one for one in traces[0] if (one.file, one.function) in common]

    async def _record(self, connection: HttpConnection, request: bytes) -> list[Called]:
        await self._command(b"start\n")
        _, answer = await connection.exchange(request)
        if b'"isError":true' in answer or b'"error"' in answer:
            raise SystemExit(f"the traced call failed: {answer[:500].decode(errors='replace')}")
        await asyncio.sleep(AFTER_S)
        return await self._command(b"stop\n")

    async def _command(self, command: bytes) -> list[Called]:
        self._writer.write(command)
        return decode_calls(await self._reader.readline())


@asynccontextmanager
async def _traced_gateway(servers: Mapping[str, Any]) -> AsyncIterator[_TracedDaemon]:
    with tempfile.TemporaryDirectory(prefix="pointsman-trace-") as folder:
        control = Path(folder) / "control"
        prefix = (sys.executable, "-m", "bench.traced_daemon", str(control))
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        async with measured_gateway(servers, prefix=prefix, env={**USUAL, "PYTHONPATH": path}) as gateway:
            reader, writer = await asyncio.open_unix_connection(str(control), limit=1 << 20)
            yield _TracedDaemon(gateway, (reader, writer))
            writer.close()


def _print_counts(call: str, server: str, called: list[Called], files: bool, functions: bool) -> None:
    by_file: dict[str, list[Called]] = {}
    for one in called:
        by_file.setdefault(one.file, []).append(one)
    depth = max(one.depth for one in called)
    print(f"  {call:16}{server:8}{len(by_file):7}{len(called):11}{depth:7}", flush=True)
    for file, members in by_file.items() if files or functions else ():
        print(f"    {file}  ({len(members)})")
        for one in members if functions else ():
            print(f"      {one.function}, depth {one.depth}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.trace", description=__doc__)
    parser.add_argument("--files", action="store_true", help="list the files, in the order of their first call")
    parser.add_argument("--functions", action="store_true", help="list the functions of each file too")
    options = parser.parse_args()
    asyncio.run(trace(files=options.files, functions=options.functions))


if __name__ == "__main__":
    main()
