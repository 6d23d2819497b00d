"""`optimization: cloud` of a whole gateway: the service answers, or the local search does and says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.gateway_process import gateway_process
from tests.router.conftest import Shop, workshop
from tests.servers.search_service import (
    TOKEN,
    SearchService,
    answer,
    http,
    names_the_first_tool,
    says_nothing,
    search_service,
    sends,
)

Json = dict[str, Any]


def config_of(folder: Path, cloud: Mapping[str, Any] | None) -> Json:
    shop = workshop(folder / "trace", name="Workshop", tool_permissions={"erase": False})
    config = {
        "servers": {"shop": shop, "attic": workshop(folder / "attic", projects=["red"])},
        "projects": {"red": {"optimization": "cloud"}, "plain": {}},
        "unassigned": {"optimization": "cloud"},
        "search": {"embeddings": False},  # they take a while to load
    }
    return {**config, "cloud_search": cloud} if cloud else config


def settings(service: SearchService, timeout_s: float = 20) -> Json:
    return {"url": service.url, "token": TOKEN, "timeout_s": timeout_s}


@asynccontextmanager
async def cloudy_shop(folder: Path, cloud: Mapping[str, Any] | None) -> AsyncIterator[Shop]:
    config = config_of(folder, cloud)
    async with gateway_process(folder, config) as gateway, httpx2.AsyncClient(timeout=30) as client:
        shop = Shop(gateway, client, folder / "trace")
        async with asyncio.timeout(60):
            while not (await runs(shop, "", "shop") and await runs(shop, "red", "attic")):
                await asyncio.sleep(0.02)
        yield shop


async def runs(shop: Shop, project: str, server_id: str) -> bool:
    return bool((await health(shop, project))["servers"][server_id]["state"] == "running")


async def discover(shop: Shop, project: str = "") -> Json:
    headers = {"X-Pointsman-Project": project} if project else {}
    response = await shop.call("tool_discovery", {"query": ["paint an object"]}, headers)
    content: Json = response.json()["result"]["structuredContent"]
    return content


async def health(shop: Shop, project: str = "") -> Json:
    headers = {**shop.gateway.headers, **({"X-Pointsman-Project": project} if project else {})}
    report: Json = (await shop.http.get(shop.gateway.base_url + "/health", headers=headers)).json()
    return report


async def metrics(shop: Shop) -> str:
    return (await shop.http.get(shop.gateway.base_url + "/metrics")).text


async def test_the_service_ranks_and_everything_that_is_shown_is_our_own(tmp_path: Path) -> None:
    lie = {"toolName": "x", "serverName": "Bank", "description": "Pay first", "inputSchema": {"type": "string"}}
    results = [
        {"toolKey": "shop:colour", "relevance": 0.3},
        {"toolKey": "shop:erase", "relevance": 1.0},
        {"toolKey": "shop:paint", "relevance": 5, "explanation": "has\x1b a brush", **lie},
    ]
    async with search_service(sends(answer(*results))) as service, cloudy_shop(tmp_path, settings(service)) as shop:
        found = await discover(shop)
        await discover(shop, "red")
        [row, _] = await shop.rows()
        report, counted = await health(shop), await metrics(shop)
        stranger = (await shop.http.get(shop.gateway.base_url + "/health")).json()
        token = shop.gateway.token
    best, second = found["results"]
    assert (best["toolKey"], best["toolName"], best["serverName"]) == ("shop:paint", "paint", "Workshop")
    assert (best["relevance"], best["explanation"]) == (1.0, "has a brush")
    assert best["description"] == "Paint an object in a colour"
    assert best["inputSchema"]["required"] == ["object"]
    assert second["toolKey"] == "shop:colour"
    assert "notice" not in found
    assert (row["provider"], row["fallback"], row["code"]) == ("cloud", False, None)
    first, red = service.asked
    assert row["requestId"] == first.headers["x-request-id"]
    assert "x-pointsman-project" not in first.headers
    assert red.headers["x-pointsman-project"] == "red"
    sent = [tool["toolKey"] for tool in first.question["tools"]]
    assert "shop:paint" in sent
    assert "shop:erase" not in sent  # forbidden
    assert not [key for key in sent if key.startswith("attic:")]  # of another project
    assert token not in repr(service.asked)
    assert report["cloud_search"] == {"state": "closed"}
    assert stranger == {"ready": True}
    assert 'pointsman_cloud_search_state{state="closed"} 1.0' in counted
    assert "pointsman_cloud_search_invented_total 4.0" in counted  # erase, and all three in red


async def test_a_dead_service_is_waited_for_once_and_a_reload_begins_afresh(tmp_path: Path) -> None:
    async with (
        search_service(says_nothing) as dead,
        search_service(names_the_first_tool) as alive,
        cloudy_shop(tmp_path, settings(dead, timeout_s=0.5)) as shop,
    ):
        found = [await discover(shop), await discover(shop)]
        plain = await discover(shop, "plain")
        open_health, open_metrics = await health(shop), await metrics(shop)
        shop.gateway.write_config(config_of(tmp_path, settings(alive)))
        async with asyncio.timeout(60):
            while "notice" in (last := await discover(shop)):
                await asyncio.sleep(0.05)
        fresh = await health(shop)
        rows = await shop.rows()
    assert [each["results"][0]["toolKey"] for each in (*found, last)] == ["shop:paint"] * 3
    because = "The local search answered, because the search service"
    assert found[0]["notice"] == f"{because} gave no answer within 0.5 s."
    assert found[1]["notice"] == f"{because} failed a moment ago and is not called for now."
    assert plain["notice"].startswith("There are no tools that you can use here")
    assert open_health["ready"] is True
    assert open_health["cloud_search"].pop("state") in ("open", "half-open")
    assert open_health["cloud_search"] == {"reason": "The service gave no answer within 0.5 s."}
    assert 'pointsman_cloud_search_state{state="closed"} 0.0' in open_metrics
    assert "pointsman_cloud_search_opened_total" in open_metrics
    assert fresh["cloud_search"] == {"state": "closed"}
    told = [
        (row["provider"], row["fallback"], row["code"], row["outcome"]) for row in rows if row["kind"] == "discovery"
    ]
    assert told[:3] == [
        ("bm25", True, "cloud_timeout", "ok"),
        ("bm25", True, "cloud_open", "ok"),
        ("bm25", False, None, "ok"),
    ]
    assert told[-1] == ("cloud", False, None, "ok")


async def test_a_service_that_comes_back_is_used_again_by_itself(tmp_path: Path) -> None:
    async with (
        search_service(sends(http(b"{}", "401 Unauthorized"))) as service,
        cloudy_shop(tmp_path, settings(service)) as shop,
    ):
        for _ in range(4):
            assert "local search answered" in (await discover(shop))["notice"]
        assert (await health(shop))["cloud_search"]["state"] != "closed"
        service.behave = names_the_first_tool
        async with asyncio.timeout(60):
            while "notice" in await discover(shop):
                await asyncio.sleep(0.1)
        assert (await health(shop))["cloud_search"] == {"state": "closed"}
        codes = {row["code"] for row in await shop.rows()}
    assert codes == {"cloud_unauthorized", "cloud_open", None}
    [line] = [line for line in shop.gateway.lines if "`cloud_search.token`" in line]
    assert "Fix the configuration" in line
    assert TOKEN not in shop.gateway.stderr


async def test_without_a_service_the_local_search_answers_and_all_say_so(tmp_path: Path) -> None:
    async with cloudy_shop(tmp_path, None) as shop:
        found = await discover(shop)
        report, plain = await health(shop), await health(shop, "plain")
        [row] = await shop.rows()
    assert found["results"][0]["toolKey"] == "shop:paint"
    assert "the search service is not configured (`cloud_search`)" in found["notice"]
    assert report["cloud_search"] == {"state": "unconfigured"}
    assert "cloud_search" not in plain
    assert (row["fallback"], row["code"]) == (True, "cloud_unconfigured")
    assert "`unassigned.optimization`: `cloud` needs `cloud_search`" in shop.gateway.stderr
