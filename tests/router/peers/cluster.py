"""Three replicas on one state folder or on one database, the servers behind them, and what stands in front."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpx2

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.peers.forwarder import forwarding
from tests.router.peers.proxies import caddy, haproxy
from tests.servers.asker_http import AskerHttp, asker_http
from tests.servers.http_mcp import HttpMcp, serving

TOKEN = "ptm_" + "r" * 40
NEWS = "pointsman+news+note://a"  # a resource of the server `news`, as clients see it
KEY = "0123456789abcdef" * 4
COUNT = 3


@dataclass(frozen=True)
class Cluster:
    gateways: list[GatewayProcess]
    legacy: AskerHttp
    modern: AskerHttp
    news: HttpMcp
    trace: Path
    folder: Path
    port: int  # of the proxy, whichever it is
    settings: dict[str, Any]  # of each replica

    @property
    def ports(self) -> list[int]:
        return [int(gateway.base_url.rpartition(":")[2]) for gateway in self.gateways]

    @property
    def state_dir(self) -> Path:
        return self.gateways[0].state_dir

    @property
    def through(self) -> GatewayProcess:
        """What clients see: one gateway, at the proxy's address."""
        return replace(self.gateways[0], url=f"http://127.0.0.1:{self.port}/mcp")

    def proxy(self, kind: str) -> Any:
        """A context manager that stands in front of the replicas inside its block."""
        if kind == "forwarder":
            return forwarding(self.port, self.ports)
        return (haproxy if kind == "haproxy" else caddy)(self.folder, self.port, self.ports)

    def noted(self, word: str) -> list[str]:
        """The tags of the calls for which a server has written this word."""
        lines = self.trace.read_text().splitlines() if self.trace.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(word + " ")]

    async def until_noted(self, word: str, tag: str) -> None:
        async with asyncio.timeout(30):
            while tag not in self.noted(word):
                await asyncio.sleep(0.02)


@asynccontextmanager
async def cluster(
    folder: Path,
    count: int = COUNT,
    *,
    database: str | None = None,
    environments: Sequence[Mapping[str, str]] = (),
    **config: Any,
) -> AsyncIterator[Cluster]:
    """`database`: PostgreSQL, with a state folder for each replica. `environments`: of the first replicas."""
    trace, port = folder / "trace", _free_port()
    async with AsyncExitStack() as stack:
        legacy = await stack.enter_async_context(asker_http("legacy", trace))
        modern = await stack.enter_async_context(asker_http("modern", trace))
        news = await stack.enter_async_context(serving("legacy"))
        state = {"replicas": True} if database is None else {"database": database, "request_keys": [KEY]}
        listen = {"allowed_hosts": [f"127.0.0.1:{port}"], "allowed_origins": [f"http://127.0.0.1:{port}"], "drain_s": 0}
        settings = {
            "listen": listen | config.pop("listen", {}),
            "state": state | config.pop("state", {}),
            "servers": {
                "legacy": {"url": legacy.url, "era": "legacy"},
                "modern": {"url": modern.url, "era": "modern"},
                "news": {"url": news.url, "era": "legacy"},
            },
            **config,
        }
        folders = [folder if database is None else folder / str(number) for number in range(count)]
        for own in folders:
            own.mkdir(exist_ok=True)
        starting = [
            asyncio.ensure_future(stack.enter_async_context(gateway_process(own, settings, token=TOKEN, env=env)))
            for own, env in zip_longest(folders, environments)
        ]
        gateways = list(await asyncio.gather(*starting))
        await _until_all_know_one_another(gateways)
        yield Cluster(gateways, legacy, modern, news, trace, folder, port, settings)


async def _until_all_know_one_another(gateways: list[GatewayProcess]) -> None:
    async with httpx2.AsyncClient() as http, asyncio.timeout(30):
        for gateway in gateways:
            while True:
                assert gateway.process.returncode is None, gateway.stderr
                health = (await http.get(gateway.base_url + "/health", headers=gateway.headers)).json()
                if health["replicas"]["living"] == len(gateways):
                    break
                await asyncio.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
