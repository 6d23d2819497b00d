"""The embedding model of a gateway is loaded for its first client, and only where a search can need it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import Shop, workshop

pytestmark = pytest.mark.new_interpreter

PREPARED = "search is ready"


def model_is_loaded(gateway: GatewayProcess) -> bool:
    return ".safetensors" in Path(f"/proc/{gateway.pid}/maps").read_text()


@asynccontextmanager
async def opened(folder: Path, **config: Any) -> AsyncIterator[Shop]:
    given = {"servers": {"shop": workshop(folder / "trace")}, **config}
    async with gateway_process(folder, given) as gateway, httpx2.AsyncClient(timeout=60) as http:
        yield Shop(gateway, http, folder / "trace")


async def test_a_gateway_without_a_client_does_without_the_model(tmp_path: Path) -> None:
    async with opened(tmp_path) as shop:
        await shop.gateway.until_logged("pointsman has")  # all servers have listed their tools
        await shop.execute("shop:paint", {"object": "door"})
        assert not model_is_loaded(shop.gateway)


@pytest.mark.parametrize("method", ["initialize", "server/discover", "tools/list"])
async def test_the_first_client_has_the_model_loaded_before_it_searches(tmp_path: Path, method: str) -> None:
    async with opened(tmp_path) as shop:
        if method == "initialize":
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            await shop.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        else:
            await shop.request(method, {}, {})
        await shop.gateway.until_logged(f"{PREPARED} (bm25+static)")
        assert model_is_loaded(shop.gateway)


@pytest.mark.parametrize(
    ("config", "logged"),
    [
        ({"search": {"embeddings": False}}, f"{PREPARED} (bm25)"),
        ({"unassigned": {"optimization": None}, "projects": {"red": {"optimization": None}}}, ""),
    ],
    ids=["embeddings are off", "no project searches"],
)
async def test_a_model_that_no_search_needs_is_not_loaded(tmp_path: Path, config: dict[str, Any], logged: str) -> None:
    async with opened(tmp_path, **config) as shop:
        await shop.request("tools/list", {}, {})
        await shop.gateway.until_logged(logged)
        response = await shop.call("tool_discovery", {"query": ["paint"]})
        assert response.status_code == 200
        assert not model_is_loaded(shop.gateway)
        assert logged or PREPARED not in shop.gateway.stderr


async def test_a_discovery_right_after_the_ready_line_is_answered(tmp_path: Path) -> None:
    async with opened(tmp_path) as shop:
        found = (await shop.call("tool_discovery", {"query": ["paint an object"]})).json()["result"]
        [row] = await shop.rows()
    assert found["structuredContent"]["results"][0]["toolKey"] == "shop:paint"
    assert row["provider"] in ("bm25", "bm25+static")
