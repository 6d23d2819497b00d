"""A gateway with `search.semantic`: its audit names the encoder, and a restart reads the vectors from disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2

from pointsman.providers.semantic.vector_store import FILE
from tests.gateway_process import gateway_process
from tests.providers.semantic.installed import with_encoder
from tests.router.conftest import Shop, workshop

pytestmark = with_encoder()
READY = "sentence encoder: ready for"


async def test_the_encoder_ranks_is_named_in_the_audit_and_costs_a_restart_nothing(tmp_path: Path) -> None:
    config = {"servers": {"shop": workshop(tmp_path / "trace")}, "search": {"semantic": True}}
    async with gateway_process(tmp_path, config) as gateway, httpx2.AsyncClient(timeout=60) as http:
        shop = Shop(gateway, http, tmp_path / "trace")
        await shop.search_prepared()
        await gateway.until_logged(READY)
        assert ", 0 known" in gateway.stderr
        async with asyncio.timeout(60):
            while (await _discover(shop))["provider"] != "bm25+static+minilm":
                await asyncio.sleep(0.05)
        metrics = (await http.get(f"{gateway.base_url}/metrics", headers=gateway.headers)).text
        health = (await http.get(f"{gateway.base_url}/health", headers=gateway.headers)).json()
    assert "pointsman_search_tools_not_encoded 0.0" in metrics
    assert 'provider="bm25+static+minilm"' in metrics
    assert "semantic_search" not in health
    async with gateway_process(tmp_path, config) as gateway:
        await gateway.until_logged(READY)
        assert "sentence encoder: 0 tools to encode" in gateway.stderr


async def test_a_damaged_file_of_vectors_does_not_keep_the_gateway_from_starting(tmp_path: Path) -> None:
    config = {"servers": {"shop": workshop(tmp_path / "trace")}, "search": {"semantic": True}}
    async with gateway_process(tmp_path, config) as gateway:
        await gateway.until_logged(READY)
        state = gateway.state_dir
    (state / FILE).write_bytes(b"nonsense" * 1_000)
    async with gateway_process(tmp_path, config) as gateway:
        await gateway.until_logged(READY)
        assert "is corrupt" in gateway.stderr


async def _discover(shop: Shop) -> dict[str, object]:
    assert (await shop.call("tool_discovery", {"query": ["colour an object"]})).status_code == 200
    rows = await shop.rows()
    return rows[-1]
