"""`resources/subscribe` at a modern server: answered when the server has acknowledged it, or with its error."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pointsman.core.errors import CallTimeoutError, DownstreamError, ServerUnavailableError
from pointsman.core.model import Json
from pointsman.router.downstream.server.fleet import Fleet
from tests.gateway_process import gateway_process
from tests.router.downstream.http_parts import Back, front_request, until
from tests.router.downstream.server.test_fleet import Opens, config, fleet_of
from tests.router.gateway.test_resources import library
from tests.router.raw_client import speaker
from tests.servers.http_mcp import serving

URI = "note://today"


async def subscribe(fleet: Fleet, uri: str = URI) -> Json:
    server = fleet.servers.get("s")
    assert server is not None
    return await server.request("resources/subscribe", {"uri": uri}, front_request(), Back())


async def test_it_waits_for_the_acknowledgement() -> None:
    async with serving("modern") as http, fleet_of(Opens()) as fleet:
        await fleet.apply(config({"s": {"url": http.url}}))
        await fleet.settled()
        await until(lambda: http.count("subscriptions/listen") == 1)
        http.hold_acknowledged = asyncio.Event()
        subscribing = asyncio.create_task(subscribe(fleet))
        await until(lambda: http.count("subscriptions/listen") == 2)
        await asyncio.sleep(0.05)
        assert not subscribing.done()
        http.hold_acknowledged.set()
        assert await subscribing == {}
        assert await subscribe(fleet) == {}  # acknowledged already
        assert http.count("subscriptions/listen") == 2


async def test_an_error_of_the_server_is_the_error_of_the_caller_and_the_others_go_on() -> None:
    async with serving("modern") as http, fleet_of(Opens()) as fleet:
        await fleet.apply(config({"s": {"url": http.url}}))
        await fleet.settled()
        http.refuses_listen = "note://secret"
        await subscribe(fleet)
        with pytest.raises(DownstreamError, match="I will not tell"):
            await subscribe(fleet, "note://secret")
        await until(lambda: http.params[-1].get("notifications", {}).get("resourceSubscriptions") == [URI])
        await subscribe(fleet, "note://other")


async def test_a_resource_that_is_left_out_of_the_acknowledgement_is_refused() -> None:
    async with serving("modern") as http, fleet_of(Opens()) as fleet:
        await fleet.apply(config({"s": {"url": http.url}}))
        await fleet.settled()
        await until(lambda: len(http.streams) == 1)
        http.leaves_out = URI
        with pytest.raises(DownstreamError, match="does not accept this subscription"):
            await subscribe(fleet)


async def test_a_server_that_never_acknowledges_costs_the_caller_its_deadline() -> None:
    async with serving("modern") as http, fleet_of(Opens()) as fleet:
        http.hold_acknowledged = asyncio.Event()
        await fleet.apply(config({"s": {"url": http.url, "timeouts": {"call_s": 0.1}}}))
        await fleet.settled()
        with pytest.raises(CallTimeoutError):
            await subscribe(fleet)


async def test_a_connection_that_ends_ends_the_wait() -> None:
    async with serving("modern") as http, fleet_of(Opens()) as fleet:
        http.hold_acknowledged = asyncio.Event()
        await fleet.apply(config({"s": {"url": http.url}}))
        await fleet.settled()
        subscribing = asyncio.create_task(subscribe(fleet))
        await until(lambda: http.count("subscriptions/listen") >= 2)
        await http.stop()
        with pytest.raises(ServerUnavailableError):
            await subscribing


async def test_many_at_once_are_all_acknowledged() -> None:
    async with serving("modern") as http, fleet_of(Opens()) as fleet:
        await fleet.apply(config({"s": {"url": http.url}}))
        await fleet.settled()
        await asyncio.gather(*(subscribe(fleet, f"note://{number}") for number in range(20)))


async def test_many_at_once_over_stdio_are_all_acknowledged(tmp_path: Path) -> None:
    """Each one replaces the request before it, whose acknowledgement may still come and says nothing of the rest."""
    servers = {"s": library("s", "modern", "--books", "20", "--listen-s", "0.02")}
    async with gateway_process(tmp_path, {"servers": servers}) as gateway, speaker(gateway, "legacy") as client:
        uris = [book["uri"] for book in await client.every("resources/list", "resources")]
        assert len(uris) >= 20
        await asyncio.gather(*(client.result("resources/subscribe", {"uri": uri}) for uri in uris))


async def test_a_client_of_the_gateway_hears_of_the_refusal(tmp_path: Path) -> None:
    async with serving("modern") as http:
        http.refuses_listen = URI
        servers = {"servers": {"s": {"url": http.url}}}
        async with gateway_process(tmp_path, servers) as gateway, speaker(gateway, "legacy") as client:
            refused = await client.error("resources/subscribe", {"uri": f"pointsman+s+{URI}"})
            assert (refused["code"], refused["message"]) == (-32050, "I will not tell")
            http.refuses_listen = None
            await client.result("resources/subscribe", {"uri": f"pointsman+s+{URI}"})
