"""Hot reload of a whole gateway: only what changed is touched, nothing under way is lost, a broken edit is refused."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.e2e.processes import descendants
from tests.gateway_process import gateway_process
from tests.router.conftest import Shop, workshop


@asynccontextmanager
async def open_shop(folder: Path, servers: dict[str, Any]) -> AsyncIterator[Shop]:
    async with gateway_process(folder, {"servers": servers}) as gateway, httpx2.AsyncClient(timeout=20) as http:
        yield Shop(gateway, http, folder / "trace")


def children(shop: Shop) -> dict[str, int]:
    """The workshops that run, by the file that each of them writes to."""
    return {
        command.split()[-1].rpartition("/")[2]: pid
        for pid, command in descendants(shop.gateway.pid).items()
        if "workshop.py" in command
    }


async def health_of(shop: Shop) -> dict[str, Any]:
    response = await shop.http.get(shop.gateway.base_url + "/health", headers=shop.gateway.headers)
    health: dict[str, Any] = response.json()
    return health


async def until_running(shop: Shop, *server_ids: str) -> None:
    async with asyncio.timeout(30):
        while True:
            servers = (await health_of(shop))["servers"]
            if servers.keys() == set(server_ids) and all(each["state"] == "running" for each in servers.values()):
                return
            await asyncio.sleep(0.02)


async def test_only_servers_that_changed_are_started_stopped_or_restarted(tmp_path: Path) -> None:
    trace = {name: tmp_path / name for name in ("kept", "changed", "dropped", "new")}
    before = {name: workshop(trace[name]) for name in ("kept", "changed", "dropped")}
    async with open_shop(tmp_path, before) as shop:
        await until_running(shop, "kept", "changed", "dropped")
        first = children(shop)
        after = {
            "kept": workshop(trace["kept"], name="New name", tool_permissions={"erase": False}),
            "changed": workshop(trace["changed"], env={"COLOUR": "red"}),
            "new": workshop(trace["new"]),
        }
        shop.gateway.write_config({"servers": after})
        await until_running(shop, "kept", "changed", "new")
        async with asyncio.timeout(30):
            while (second := children(shop)).keys() != {"kept", "changed", "new"} or second["changed"] == first[
                "changed"
            ]:
                await asyncio.sleep(0.02)
        assert second["kept"] == first["kept"]
        found = (await shop.call("tool_discovery", {"query": ["paint an object"]})).json()["result"]
        assert {hit["serverName"] for hit in found["structuredContent"]["results"]} == {"New name", "changed", "new"}
        assert (await shop.execute("kept:erase"))["structuredContent"]["error"]["code"] == "unknown_tool"


async def test_a_call_under_way_survives_the_restart_of_its_server(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    entry = workshop(tmp_path / "trace", timeouts={"call_s": 60})
    async with open_shop(tmp_path, {"shop": entry}) as shop:
        await until_running(shop, "shop")
        waiting = asyncio.create_task(shop.execute("shop:wait", {"object": str(lock)}))
        async with asyncio.timeout(30):
            while not shop.ran():
                await asyncio.sleep(0.02)
        shop.gateway.write_config({"servers": {"shop": entry | {"env": {"COLOUR": "red"}}}})
        async with asyncio.timeout(30):
            while (await shop.execute("shop:colour"))["content"][0]["text"] != "red":
                await asyncio.sleep(0.02)
        assert not waiting.done()
        lock.touch()
        assert (await waiting)["content"][0]["text"] == "wait done"


async def test_reloads_under_load_lose_no_call(tmp_path: Path) -> None:
    entry = workshop(tmp_path / "trace")
    async with open_shop(tmp_path, {"shop": entry}) as shop:
        await until_running(shop, "shop")
        over = asyncio.Event()

        async def keep_calling() -> int:
            calls = 0
            while not over.is_set():
                assert not (result := await shop.execute("shop:paint", {"object": "door"})).get("isError"), result
                calls += 1
            return calls

        callers = [asyncio.create_task(keep_calling()) for _ in range(4)]
        for edit in range(5):
            restarted = entry | {"env": {"COLOUR": f"shade-{edit}"}}
            shop.gateway.write_config({"servers": {"shop": restarted}})
            async with asyncio.timeout(30):
                while (await shop.execute("shop:colour"))["content"][0]["text"] != f"shade-{edit}":
                    await asyncio.sleep(0.02)
        over.set()
        assert sum([await caller for caller in callers]) > 0


async def test_a_broken_edit_is_refused_in_words_and_the_running_configuration_stays(tmp_path: Path) -> None:
    entry = workshop(tmp_path / "trace")
    async with open_shop(tmp_path, {"shop": entry}) as shop:
        await until_running(shop, "shop")
        good = shop.gateway.config_file.read_text()
        shop.gateway.config_file.write_text(good.replace('"servers"', '"serverz"'))
        async with asyncio.timeout(30):
            while "serverz" not in shop.gateway.stderr:
                await asyncio.sleep(0.02)
        assert "did you mean `servers`?" in shop.gateway.stderr
        health = await health_of(shop)
        assert health["ready"] is True
        assert "config validate" in health["configuration"]
        assert str(tmp_path) not in json.dumps(health)
        assert not (await shop.execute("shop:paint", {"object": "door"})).get("isError")
        shop.gateway.config_file.write_text(good)
        async with asyncio.timeout(30):
            while (
                "configuration"
                in (await shop.http.get(shop.gateway.base_url + "/health", headers=shop.gateway.headers)).json()
            ):
                await asyncio.sleep(0.02)


async def test_a_file_that_is_emptied_or_written_piece_by_piece_takes_nothing_away(tmp_path: Path) -> None:
    entry = workshop(tmp_path / "trace")
    async with open_shop(tmp_path, {"shop": entry}) as shop:
        await until_running(shop, "shop")
        good = shop.gateway.config_file.read_text()
        shop.gateway.config_file.write_text("")
        async with asyncio.timeout(30):
            while "is empty" not in shop.gateway.stderr:
                await asyncio.sleep(0.02)
        assert not (await shop.execute("shop:paint", {"object": "door"})).get("isError")
        shop.gateway.config_file.write_text(good)
        async with asyncio.timeout(30):
            while "configuration" in await health_of(shop):
                await asyncio.sleep(0.02)
        assert not (await shop.execute("shop:paint", {"object": "door"})).get("isError")


async def test_sighup_reads_what_the_file_names_again(tmp_path: Path) -> None:
    secret = tmp_path / "colour"
    secret.write_text("red")
    entry = workshop(tmp_path / "trace", env={"COLOUR": "${file:" + str(secret) + "}"})
    async with open_shop(tmp_path, {"shop": entry}) as shop:
        await until_running(shop, "shop")
        assert (await shop.execute("shop:colour"))["content"][0]["text"] == "red"
        secret.write_text("blue")
        shop.gateway.send_signal(signal.SIGHUP)
        async with asyncio.timeout(30):
            while (await shop.execute("shop:colour"))["content"][0]["text"] != "blue":
                await asyncio.sleep(0.02)
