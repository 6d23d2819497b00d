"""A gateway that is told to stop: `/health` says no first, calls are still taken for `listen.drain_s`, then it ends."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx2

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import Shop, workshop

DRAINING = "draining: calls are taken"


async def health(gateway: GatewayProcess, http: httpx2.AsyncClient) -> tuple[int, dict[str, bool]]:
    response = await http.get(f"{gateway.base_url}/health")
    return response.status_code, response.json()


async def test_health_says_no_while_calls_are_still_taken_and_then_the_port_closes(tmp_path: Path) -> None:
    config = {"listen": {"drain_s": 3}, "servers": {"shop": workshop(tmp_path / "trace")}}
    async with gateway_process(tmp_path, config) as gateway, httpx2.AsyncClient(timeout=20) as http:
        assert await health(gateway, http) == (200, {"ready": True})
        gateway.send_signal(signal.SIGTERM)
        await gateway.until_logged(DRAINING)
        assert await health(gateway, http) == (503, {"ready": False, "draining": True})
        async with httpx2.AsyncClient(timeout=20) as fresh:  # on a new connection, too
            done = await Shop(gateway, fresh, tmp_path / "trace").execute("shop:colour")
        assert not done.get("isError")
        assert await asyncio.wait_for(gateway.process.wait(), 30) == 0


async def test_a_second_signal_ends_a_draining_gateway_at_once(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {"listen": {"drain_s": 600}}) as gateway:
        gateway.send_signal(signal.SIGINT)
        await gateway.until_logged(DRAINING)
        gateway.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(gateway.process.wait(), 30) == 128 + signal.SIGINT


async def test_without_the_key_a_gateway_does_not_drain(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {}) as gateway:
        assert await gateway.stop() == 0
        assert DRAINING not in gateway.stderr
