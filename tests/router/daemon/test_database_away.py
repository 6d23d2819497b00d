"""While PostgreSQL is away, commands say it once, at once, and only what holds; then they go on."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from pointsman.router.owner.client import ask
from tests.gateway_process import GatewayProcess, own_environment
from tests.postgres import Postgres
from tests.router.daemon.test_shared_state import command, gateways

pytestmark = pytest.mark.replicas

NOTICED_S = 60.0
PROBLEMS = {"state_database", "audit_rows", "pins"}


async def until_it_has(gateway: GatewayProcess, problems: set[str]) -> None:
    async with asyncio.timeout(NOTICED_S):
        while True:
            status = await asyncio.to_thread(ask, gateway.state_dir, "status")
            if PROBLEMS & status["problems"].keys() == problems:
                return
            await asyncio.sleep(0.2)


async def findings(gateway: GatewayProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(await command(gateway, "doctor", "--json"))["findings"]
    return found


async def test_doctor_says_once_for_all_gateways_that_the_database_is_away(
    tmp_path: Path, own_postgres: Postgres
) -> None:
    async with gateways(tmp_path, own_postgres.new_database(), 3) as shops:
        async with asyncio.timeout(NOTICED_S):
            while len((await asyncio.to_thread(ask, shops[0].gateway.state_dir, "status"))["replicas"]) < 3:
                await asyncio.sleep(0.2)
        await asyncio.to_thread(own_postgres.stop)
        for shop in shops:
            await shop.execute("shop:colour")  # a row that cannot be moved
            await until_it_has(shop.gateway, PROBLEMS)
        found = await findings(shops[0].gateway)
    (problem,) = [one["message"] for one in found if one["level"] == "problem"]
    assert "PostgreSQL cannot be reached" in problem
    assert "Calls go on, and the audit stays in the journal until it is back." in problem
    gateway = [one["message"] for one in found if one["check"] == "gateway"]
    assert len(gateway) == 3
    assert all(text.endswith("is ready, and goes on without the database.") for text in gateway)


async def test_a_gateway_that_starts_while_it_is_away_says_what_cannot_be_used(
    tmp_path: Path, own_postgres: Postgres
) -> None:
    url = own_postgres.new_database()
    own_postgres.stop()
    async with gateways(tmp_path, url, 1) as [shop]:
        await until_it_has(shop.gateway, PROBLEMS)
        said = await shop.execute("shop:colour")
        assert said["structuredContent"]["error"]["code"] == "unknown_tool"
        answer = (await shop.call("tool_discovery", {"query": "colour"})).json()["result"]
        notice = json.dumps(answer["structuredContent"])
        assert "`shop` offers no tools at the moment: the gateway cannot read what was approved." in notice
        found = await findings(shop.gateway)
        texts = [await command(shop.gateway, *each) for each in (("pin", "list"), ("pin", "diff"), ("status",))]
        refused = await command(shop.gateway, "pin", "approve", "shop")
        log = await command(shop.gateway, "log")
        await asyncio.to_thread(own_postgres.start)
        await until_it_has(shop.gateway, set())
        assert not (await shop.execute("shop:colour")).get("isError")
    (problem,) = [one["message"] for one in found if one["level"] == "problem"]
    assert "Until it is back, server `shop` offers no tools, because it is not known what was approved." in problem
    assert refused.startswith("Nothing was approved: the pins cannot be used. PostgreSQL cannot be reached")
    assert "--yes" not in refused
    assert "server shop: held back until it can be read what was approved: " in log
    everything = "\n".join([notice, log, *texts, *(one["message"] for one in found)])
    assert "pin approve" not in everything
    assert "wait for approval" not in everything
    assert "Calls go on" not in everything


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_tail_goes_on_after_an_outage_and_shows_each_row_once(
    tmp_path: Path, own_postgres: Postgres, how: signal.Signals
) -> None:
    async with gateways(tmp_path, own_postgres.new_database(), 2) as shops:
        state_dir = shops[0].gateway.state_dir
        await shops[1].execute("shop:colour")
        tail = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "pointsman", "audit", "tail", "-f", "--json", "--kind", "execute"),
            *("--state-dir", str(state_dir)),
            cwd=state_dir.parent,
            env=own_environment(state_dir.parent),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert tail.stdout is not None
        assert tail.stderr is not None
        try:
            async with asyncio.timeout(NOTICED_S):
                shown = [json.loads(await tail.stdout.readline())]
                await asyncio.to_thread(own_postgres.stop, how)
                away = (await tail.stderr.readline()).decode()
                for shop in shops:
                    await shop.execute("shop:colour")
                await asyncio.to_thread(own_postgres.start)
                back = (await tail.stderr.readline()).decode()
                shown += [json.loads(await tail.stdout.readline()) for _ in range(2)]
                await shops[1].execute("shop:colour")
                shown.append(json.loads(await tail.stdout.readline()))
        finally:
            tail.send_signal(signal.SIGINT)
            rest, said = await tail.communicate()
    assert away.startswith("Could not read the state database: PostgreSQL cannot be reached")
    assert away.endswith("Rows follow when it is back.\n")
    assert back == "The state database can be read again.\n"
    assert (rest, said) == (b"", b"")
    assert len({row["seq"] for row in shown}) == 4
