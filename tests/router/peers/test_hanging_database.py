"""A PostgreSQL that hangs is away, like one that refuses connections: nothing waits for it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_process import GatewayProcess, own_environment
from tests.postgres import Postgres
from tests.router.peers.cluster import cluster
from tests.router.raw_client import speaker

pytestmark = pytest.mark.replicas

LONG_S = 180.0
NOTICED_S = 8.0  # 3 s, and what a busy machine takes
DRAINED_S = 25.0


async def seconds(gateway: GatewayProcess, tool: str, says: str = "") -> float:
    """How long a call takes whose answer has this text."""
    began = time.monotonic()
    async with speaker(gateway, "modern") as one:
        arguments = {"query": "harbour"} if tool.startswith("archive:") else {}
        answer = await one.call("tool_execute", {"toolKey": tool, "arguments": arguments})
    assert says in json.dumps(answer)
    return time.monotonic() - began


async def test_calls_the_archive_tail_and_a_drain_do_not_wait_for_it(own_postgres: Postgres, tmp_path: Path) -> None:
    config: dict[str, Any] = {"rates": {"calls_per_minute": 1000}, "servers": {"archive": {"bundled": "archive"}}}
    async with (
        asyncio.timeout(LONG_S),
        cluster(tmp_path, 2, database=own_postgres.new_database(), **config) as replicas,
    ):
        first, second = replicas.gateways
        for gateway in replicas.gateways:
            await seconds(gateway, "archive:search_index", '"results"')
        tail = await tailing(first)
        assert tail.stderr is not None
        with own_postgres.hanging():
            began = time.monotonic()
            assert max(
                await asyncio.gather(*(seconds(first, "archive:search_index", "store is away") for _ in "12"))
            ) < (
                2 * NOTICED_S  # the rate is counted before
            )
            said = (await tail.stderr.readline()).decode()
            assert "PostgreSQL cannot be reached" in said
            assert time.monotonic() - began < 2 * NOTICED_S
            assert await seconds(second, "archive:search_index", "store is away") < 2 * NOTICED_S
            await first.until_logged("rates are counted by this gateway alone")
            assert await seconds(first, "archive:search_index", "store is away") < NOTICED_S
            began = time.monotonic()
            await second.stop()
            assert time.monotonic() - began < DRAINED_S
        tail.send_signal(signal.SIGINT)
        await tail.communicate()


async def tailing(gateway: GatewayProcess) -> asyncio.subprocess.Process:
    state_dir = gateway.state_dir
    tail = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", "audit", "tail", "-f", "--json", "--state-dir", str(state_dir)),
        cwd=state_dir.parent,
        env=own_environment(state_dir.parent),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert tail.stdout is not None
    await tail.stdout.readline()
    return tail
