"""`/metrics` with workers: a scrape has the series of all of them, whichever it reaches, by the reader's rights."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway_process import GatewayProcess
from tests.router.peers.cluster import TOKEN, Cluster
from tests.router.peers.test_scenarios import execute
from tests.router.peers.test_workers import (
    CONNECTIONS,
    LONG_S,
    counter,
    numbered_processes_of,
    pytestmark,
    spread,
    workers,
)

__all__ = ["pytestmark"]

FEW = "ptm_" + "f" * 43  # may use one server only


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@pytest.fixture(scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("metrics")
    tokens = {
        "all": {"sha256": digest(TOKEN), "projects": ["*"], "servers": ["*"]},
        "few": {"sha256": digest(FEW), "projects": ["*"], "servers": ["modern"]},
    }
    async with workers(folder, servers={"counter": counter(folder)}, tokens=tokens) as cluster:
        yield cluster


async def scrape(gateway: GatewayProcess, token: str | None = TOKEN) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples by name, on a connection of its own."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(timeout=LONG_S, headers=headers) as http:
        answer = await http.get(f"{gateway.base_url}/metrics")
    assert answer.status_code == 200, answer.text
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    assert answer.text.count("# TYPE pointsman_calls_total ") == 1
    return found


def total(samples: list[tuple[dict[str, str], float]], **labels: str) -> float:
    return sum(value for found, value in samples if labels.items() <= found.items())


async def call(gateway: GatewayProcess, tool: str, times: int) -> None:
    async with spread(gateway, "modern") as one:
        for number in range(times):
            await one.result("tools/call", execute(tool, str(number)))


async def test_every_scrape_has_the_series_of_all_workers(two: Cluster) -> None:
    gateway = two.gateways[0]
    before = total((await scrape(gateway)).get("pointsman_calls_total", []), tool="plain")
    await call(gateway, "modern:plain", CONNECTIONS)
    for _ in range(CONNECTIONS // 2):
        found = await scrape(gateway)
        assert total(found["pointsman_calls_total"], tool="plain") == before + CONNECTIONS
        assert total(found["pointsman_call_duration_seconds_count"], tool="plain") == before + CONNECTIONS
        assert {one["worker"] for one, _ in found["pointsman_calls_total"]} == {"1", "2"}
        assert [(one["worker"], value) for one, value in found["pointsman_worker_up"]] == [("1", 1.0), ("2", 1.0)]
        assert {one["worker"] for one, _ in found["process_resident_memory_bytes"]} == {"1", "2"}


async def test_a_reader_sees_only_its_own_servers_at_all_workers(two: Cluster) -> None:
    gateway = two.gateways[0]
    await call(gateway, "counter:count", CONNECTIONS)
    for token, expected in ((FEW, {"modern"}), (None, set[str]())):
        found = await scrape(gateway, token)
        assert {one["server"] for one, _ in found["pointsman_calls_total"]} <= expected | {"other"}
        assert {one["server"] for one, _ in found.get("pointsman_server_state", [])} == expected
    every = {one["server"] for one, _ in (await scrape(gateway))["pointsman_server_state"]}
    assert every == {"legacy", "modern", "news", "counter"}
    async with httpx2.AsyncClient(timeout=LONG_S, headers={"Authorization": "Bearer wrong"}) as http:
        assert (await http.get(f"{gateway.base_url}/metrics")).status_code == 401


async def test_a_worker_that_does_not_answer_is_left_out(two: Cluster) -> None:
    frozen = (await numbered_processes_of(two))[1]
    http = await _connection_to(two, "1")
    os.kill(frozen, signal.SIGSTOP)
    try:
        text = (await http.get("/metrics")).text
    finally:
        os.kill(frozen, signal.SIGCONT)
        await http.aclose()
    assert 'pointsman_worker_up{worker="1"} 1.0' in text
    assert 'pointsman_worker_up{worker="2"} 0.0' in text
    assert 'pointsman_sessions{worker="1"}' in text
    assert 'pointsman_sessions{worker="2"}' not in text


async def _connection_to(cluster: Cluster, folder: str) -> httpx2.AsyncClient:
    """A client whose connection the kernel gave to this worker."""
    gateway = cluster.gateways[0]
    (socket,) = (cluster.state_dir / "replicas" / folder).glob("????????.sock")
    async with asyncio.timeout(LONG_S):
        while True:
            http = httpx2.AsyncClient(base_url=gateway.base_url, timeout=LONG_S, headers=gateway.headers)
            if (await http.get("/health")).json()["replicas"]["this"] == socket.stem:
                return http
            await http.aclose()
