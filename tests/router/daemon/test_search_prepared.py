"""The embedding model of a gateway is loaded beside its start, and only where a search can need it."""

from __future__ import annotations

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


async def test_the_model_is_loaded_without_any_request(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {"servers": {}}) as gateway:
        await gateway.until_logged(f"{PREPARED} (bm25+static)")
        assert model_is_loaded(gateway)


@pytest.mark.parametrize(
    ("config", "logged"),
    [
        ({"search": {"embeddings": False}}, f"{PREPARED} (bm25)"),
        ({"unassigned": {"optimization": None}, "projects": {"red": {"optimization": None}}}, ""),
    ],
    ids=["embeddings are off", "no project searches"],
)
async def test_a_model_that_no_search_needs_is_not_loaded(tmp_path: Path, config: dict[str, Any], logged: str) -> None:
    config = {"servers": {"shop": workshop(tmp_path / "trace")}, **config}
    async with gateway_process(tmp_path, config) as gateway, httpx2.AsyncClient(timeout=60) as http:
        await gateway.until_logged(logged)
        response = await Shop(gateway, http, tmp_path / "trace").call("tool_discovery", {"query": ["paint"]})
        assert response.status_code == 200
        assert not model_is_loaded(gateway)
        assert logged or PREPARED not in gateway.stderr


async def test_a_discovery_right_after_the_ready_line_is_answered(tmp_path: Path) -> None:
    config = {"servers": {"shop": workshop(tmp_path / "trace")}}
    async with gateway_process(tmp_path, config) as gateway, httpx2.AsyncClient(timeout=60) as http:
        shop = Shop(gateway, http, tmp_path / "trace")
        found = (await shop.call("tool_discovery", {"query": ["paint an object"]})).json()["result"]
        [row] = await shop.rows()
    assert found["structuredContent"]["results"][0]["toolKey"] == "shop:paint"
    assert row["provider"] in ("bm25", "bm25+static")
