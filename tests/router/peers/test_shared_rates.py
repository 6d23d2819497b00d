"""Gateways on one PostgreSQL count rates together, and each by itself while it is away."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from tests.gateway_process import GatewayProcess
from tests.postgres import Postgres
from tests.router.peers.cluster import cluster
from tests.router.raw_client import speaker

pytestmark = pytest.mark.replicas

LONG_S = 120.0
LIMIT = 30


async def codes(gateway: GatewayProcess, number: int) -> list[str | None]:
    async with speaker(gateway, "modern") as one:
        calls = [one.call("tool_execute", {"toolKey": "modern:plain"}) for _ in range(number)]
        answers = await asyncio.gather(*calls)
    return [each["structuredContent"]["error"]["code"] if each.get("isError") else None for each in answers]


async def test_a_rate_over_three_gateways_admits_what_one_admits(own_postgres: Postgres, tmp_path: Path) -> None:
    database = own_postgres.new_database()
    rates = {"calls_per_day": LIMIT}
    async with asyncio.timeout(LONG_S), cluster(tmp_path, 3, database=database, rates=rates) as replicas:
        each = await asyncio.gather(*(codes(gateway, LIMIT // 2) for gateway in replicas.gateways))
        found = [*itertools.chain(*each)]
        assert (found.count(None), found.count("rate_limited")) == (LIMIT, LIMIT // 2)
        await asyncio.to_thread(own_postgres.stop)
        admitted = [given.count(None) for given in each]
        own = max(admitted)
        gateway = replicas.gateways[admitted.index(own)]
        alone = await codes(gateway, LIMIT)
        assert alone.count(None) == LIMIT - own, "it goes on from what it has admitted itself"
        assert alone.count("rate_limited") == own
        await gateway.until_logged("rates are counted by this gateway alone")
