"""The fleet follows the configuration: only what changed is touched, and nothing under way is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from pointsman.config.model import GatewayConfig, Limits
from pointsman.config.sections.server import Server
from pointsman.core.errors import ServerUnavailableError
from pointsman.core.model import Caller, Json
from pointsman.core.seams import Era
from pointsman.router.downstream.connection import Connect, Connection, ConnectionLostError, OnNotification
from pointsman.router.downstream.http.connect import connect_http
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.downstream.server.own_connections import OwnConnections
from tests.router.downstream.http_parts import PATIENCE_S, Back, front_request, text_of, until
from tests.servers.http_mcp import HttpMcp, serving


class Opens:
    """Makes real HTTP connections, and counts them."""

    def __init__(self) -> None:
        self.count: dict[str, int] = {}
        self.hold: asyncio.Event | None = None

    def __call__(self, server_id: str, server: Server, limits: Limits, apps: bool = False) -> Connect:
        async def connect(on_notification: OnNotification) -> Connection:
            self.count[server_id] = self.count.get(server_id, 0) + 1
            if self.hold is not None:
                await self.hold.wait()
            assert server.url is not None
            headers = {name: value.get_secret_value() for name, value in server.headers.items()}
            return await connect_http(server.url, headers, server.era, 5.0, limits, on_notification)

        return connect


@asynccontextmanager
async def fleet_of(opens: Opens) -> AsyncIterator[Fleet]:
    fleet = Fleet(opens, clock=time.time, on_change=lambda server_id, change: None)
    async with asyncio.timeout(PATIENCE_S):
        try:
            yield fleet
        finally:
            await fleet.close(1.0)


def config(servers: dict[str, dict[str, Any]], **rest: Any) -> GatewayConfig:
    return GatewayConfig.model_validate({"servers": servers, **rest})


async def call(fleet: Fleet, server_id: str, name: str = "echo", **arguments: Any) -> Json:
    server = fleet.servers.get(server_id)
    assert server is not None
    params = {"name": name, "arguments": arguments}
    return await server.request("tools/call", params, front_request(), Back())


async def test_servers_start_are_found_by_id_and_are_removed() -> None:
    async with serving("legacy") as a, serving("modern") as b, fleet_of(Opens()) as fleet:
        await fleet.apply(config({"a": {"url": a.url}, "b": {"url": b.url, "name": "Bee"}}))
        assert {status.state for status in fleet.statuses().values()} == {"starting"}
        assert {status.reason for status in fleet.statuses().values()} == {"it has not answered yet"}
        await fleet.settled()
        assert {server_id: status.state for server_id, status in fleet.statuses().items()} == {
            "a": "running",
            "b": "running",
        }
        assert [server.name for server in fleet.servers.values()] == ["a", "Bee"]
        removed = fleet.servers.get("a")
        await fleet.apply(config({"b": {"url": b.url}}))
        assert fleet.servers.get("a") is None
        assert removed is not None
        assert removed.status.state == "stopped"
        await until(lambda: "DELETE" in a.seen)


async def test_an_entry_that_cannot_be_applied_costs_its_own_server_only() -> None:
    class Broken(Opens):
        def __call__(self, server_id: str, server: Server, limits: Limits, apps: bool = False) -> Connect:
            if server_id == "broken":
                raise RuntimeError("no way to connect")
            return super().__call__(server_id, server, limits)

    async with serving("modern") as http, fleet_of(Broken()) as fleet:
        entries = {"broken": {"url": http.url}, "last": {"url": http.url}}
        with pytest.raises(ExceptionGroup, match="`broken`"):
            await fleet.apply(config(entries))
        await fleet.settled()
        assert fleet.statuses()["last"].state == "running"
        assert fleet.statuses()["broken"].state != "running"


async def test_what_does_not_concern_the_connection_does_not_touch_it() -> None:
    opens = Opens()
    async with serving("modern") as http, fleet_of(opens) as fleet:
        await fleet.apply(config({"s": {"url": http.url}}, projects={"p": {}}))
        await fleet.settled()
        server = fleet.servers.get("s")
        assert server is not None
        before = server.generation
        entry = {
            "url": http.url,
            "name": "Renamed",
            "projects": ["p"],
            "prefix": "x",
            "tool_permissions": {"echo": False},
            "confirm": ["*:echo"],
            "questions": False,
            "pin": "locked",
            "timeouts": {"call_s": 0.05},
        }
        await fleet.apply(config({"s": entry}, projects={"p": {}}, limits={"sessions": 5}))
        await fleet.settled()
        assert fleet.servers.get("s") is server
        assert (server.name, server.timeouts.call_s, server.generation) == ("Renamed", 0.05, before)
        assert opens.count == {"s": 1}


@pytest.mark.parametrize(
    "change", [{"headers": {"X-A": "2"}}, {"era": "modern"}, {"headers": {"X-A": "1"}, "isolation": "per-caller"}]
)
async def test_what_concerns_the_connection_makes_a_new_one_for_that_server_only(change: dict[str, Any]) -> None:
    opens = Opens()
    async with serving("modern") as http, fleet_of(opens) as fleet:
        entry = {"url": http.url, "headers": {"X-A": "1"}}
        await fleet.apply(config({"s": entry, "other": entry}))
        await fleet.settled()
        server = fleet.servers.get("s")
        assert server is not None
        before = server.generation
        await fleet.apply(config({"s": entry | change, "other": entry}))
        await fleet.settled()
        assert opens.count == {"s": 2, "other": 1}
        assert fleet.servers.get("s") is server
        assert server.generation > before


async def test_a_call_under_way_survives_a_restart_and_new_calls_take_the_new_connection() -> None:
    async with serving("legacy") as old, serving("legacy") as new, fleet_of(Opens()) as fleet:
        await fleet.apply(config({"s": {"url": old.url}}))
        await fleet.settled()
        under_way = asyncio.create_task(call(fleet, "s", "wait", a="old"))
        await old.arrived.acquire()
        await fleet.apply(config({"s": {"url": new.url}}))
        await fleet.settled()
        assert text_of(await call(fleet, "s", a="new")) == '{"a": "new"}'
        assert (old.count("tools/call"), new.count("tools/call")) == (1, 1)
        assert "DELETE" not in old.seen
        old.gate.set()
        assert text_of(await under_way) == '{"a": "old"}'
        await until(lambda: "DELETE" in old.seen)


async def test_while_the_new_connection_is_being_opened_the_old_one_serves() -> None:
    opens = Opens()
    async with serving("modern") as old, serving("modern") as new, fleet_of(opens) as fleet:
        await fleet.apply(config({"s": {"url": old.url}}))
        await fleet.settled()
        opens.hold = asyncio.Event()
        await fleet.apply(config({"s": {"url": new.url}}))
        await until(lambda: opens.count == {"s": 2})
        await call(fleet, "s")
        await fleet.apply(config({"s": {"url": new.url, "headers": {"X-A": "1"}}}))  # changed again meanwhile
        await until(lambda: opens.count == {"s": 3})
        await call(fleet, "s")
        assert old.count("tools/call") == 2
        opens.hold.set()
        await fleet.settled()
        await call(fleet, "s")
        assert (old.count("tools/call"), new.count("tools/call")) == (2, 1)


async def test_a_change_that_does_not_connect_fails_with_the_reason_and_can_be_taken_back() -> None:
    async with serving("modern") as http, fleet_of(Opens()) as fleet:
        await fleet.apply(config({"s": {"url": http.url}}))
        await fleet.settled()
        await fleet.apply(config({"s": {"url": "http://127.0.0.1:9/mcp"}}))
        await fleet.settled()
        assert (fleet.statuses()["s"].state, fleet.statuses()["s"].reason) == ("failed", "it refused the connection")
        await fleet.apply(config({"s": {"url": http.url}}))
        await fleet.settled()
        await call(fleet, "s")


async def test_a_disabled_server_is_stopped_says_so_and_comes_back() -> None:
    async with serving("modern") as http, fleet_of(Opens()) as fleet:
        await fleet.apply(config({"s": {"url": http.url, "enabled": False}}))
        await fleet.settled()
        status = fleet.statuses()["s"]
        assert (status.state, status.reason) == ("stopped", "disabled in the configuration")
        with pytest.raises(ServerUnavailableError, match="disabled in the configuration"):
            await call(fleet, "s")
        await fleet.apply(config({"s": {"url": http.url}}))
        await fleet.settled()
        under_way = asyncio.create_task(call(fleet, "s", "wait", a=1))
        await http.arrived.acquire()
        await fleet.apply(config({"s": {"url": http.url, "enabled": False}}))
        with pytest.raises(ServerUnavailableError, match="disabled in the configuration"):
            await call(fleet, "s")
        http.gate.set()
        assert text_of(await under_way) == '{"a": 1}'


async def test_disabling_a_server_that_is_just_connecting_leaves_it_stopped() -> None:
    opens = Opens()
    async with serving("modern") as http, fleet_of(opens) as fleet:
        opens.hold = asyncio.Event()
        await fleet.apply(config({"s": {"url": http.url}}))
        await until(lambda: opens.count == {"s": 1})
        opens.hold.set()  # the connection could be there at the next turn of the loop
        await fleet.apply(config({"s": {"url": http.url, "enabled": False}}))
        await asyncio.sleep(0.05)
        assert fleet.statuses()["s"].state == "stopped"


async def test_a_server_that_hangs_at_its_start_holds_nobody_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    black_hole = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{black_hole.sockets[0].getsockname()[1]}/mcp"
    async with serving("modern") as http, fleet_of(Opens()) as fleet:
        await fleet.apply(config({"hung": {"url": url}, "s": {"url": http.url}}))
        await until(lambda: fleet.statuses()["s"].state == "running")
        await call(fleet, "s")
        assert fleet.statuses()["hung"].state == "starting"
    black_hole.close()


async def test_close_gives_calls_their_grace_and_ends_everything() -> None:
    async with serving("legacy") as http:
        opens = Opens()
        async with fleet_of(opens) as fleet:
            await fleet.apply(config({"s": {"url": http.url}, "dead": {"url": "http://127.0.0.1:9/"}}))
            await fleet.settled()
            under_way = asyncio.create_task(call(fleet, "s", "wait", a=1))
            await http.arrived.acquire()
            closing = asyncio.create_task(fleet.close(PATIENCE_S))
            await until(lambda: fleet.statuses()["s"].state == "stopped")
            http.gate.set()
            assert text_of(await under_way) == '{"a": 1}'
            await closing
            assert http.seen[-1] == "DELETE"


async def test_a_reload_under_load_loses_no_call() -> None:
    async with serving("legacy") as a, serving("modern") as b, fleet_of(Opens()) as fleet:
        await fleet.apply(config({"s": {"url": a.url}}))
        await fleet.settled()
        failures: list[Exception] = []
        over = False

        async def work() -> None:
            while not over:
                try:
                    await call(fleet, "s", a=1)
                except Exception as error:
                    failures.append(error)

        workers = [asyncio.create_task(work()) for _ in range(8)]
        servers: list[HttpMcp] = [b, a, b, a, b]
        for http in servers:
            await fleet.apply(config({"s": {"url": http.url}}))
            await fleet.settled()
            seen = http.count("tools/call")
            await until(lambda http=http, seen=seen: http.count("tools/call") > seen + 20)  # type: ignore[misc]
        over = True
        await asyncio.gather(*workers)
        assert failures == []


# ---------------------------------------------------------------------- isolation: per-caller


async def call_as(fleet: Fleet, token: str, name: str = "echo") -> Json:
    server = fleet.servers.get("s")
    assert server is not None
    request = replace(front_request(), caller=Caller(token, None))
    return await server.request("tools/call", {"name": name, "arguments": {}}, request, Back())


async def test_with_isolation_each_caller_has_a_connection_of_its_own() -> None:
    opens = Opens()
    async with serving("legacy") as http, fleet_of(opens) as fleet:
        await fleet.apply(config({"s": {"url": http.url, "isolation": "per-caller"}}))
        await fleet.settled()
        await asyncio.gather(*(call_as(fleet, token) for token in ("ada", "ada", "bob", "bob", "ada")))
        assert opens.count == {"s": 3}  # the shared one for lists, and two
        sessions = {headers["Mcp-Session-Id"] for headers in http.headers if "Mcp-Session-Id" in headers}
        assert len(sessions) == 3


async def test_an_own_connection_that_cannot_be_opened_costs_its_caller_one_clear_error() -> None:
    async with serving("legacy") as http, fleet_of(Opens()) as fleet:
        await fleet.apply(config({"s": {"url": http.url, "isolation": "per-caller"}}))
        await fleet.settled()
        await call_as(fleet, "ada")
        http.refuses_initialize = True
        with pytest.raises(ServerUnavailableError, match="HTTP 503"):
            await call_as(fleet, "bob")
        await call_as(fleet, "ada")


async def test_taking_the_isolation_away_lets_own_calls_finish() -> None:
    async with serving("modern") as http, fleet_of(Opens()) as fleet:
        await fleet.apply(config({"s": {"url": http.url, "isolation": "per-caller"}}))
        await fleet.settled()
        under_way = asyncio.create_task(call_as(fleet, "ada", "wait"))
        await http.arrived.acquire()
        await fleet.apply(config({"s": {"url": http.url}}))
        await fleet.settled()
        await call_as(fleet, "ada")
        http.gate.set()
        assert text_of(await under_way) == "{}"


def unheard(caller: Caller, method: str, params: Json) -> None:
    pass


def unwatched(caller: Caller) -> Collection[str]:
    return ()


async def test_an_idle_own_connection_is_closed_and_opened_again_when_needed() -> None:
    async with asyncio.timeout(PATIENCE_S), serving("legacy") as http:
        opens = Opens()
        connect = opens("s", Server(url=http.url), Limits())
        own = OwnConnections(connect, unheard, unwatched, lambda: 5.0, idle_s=0.05)
        first = await own.lease_for(Caller("ada", None))
        assert await own.lease_for(Caller("ada", None)) is first
        await until(lambda: "DELETE" in http.seen)
        assert await own.lease_for(Caller("ada", None)) is not first
        await own.stop(0)


async def test_a_watched_own_connection_is_not_idle() -> None:
    async with asyncio.timeout(PATIENCE_S), serving("legacy") as http:
        ada, bob = Caller("ada", None), Caller("bob", None)
        watched = {ada: {"a:b"}}
        connect = Opens()("s", Server(url=http.url), Limits())
        own = OwnConnections(connect, unheard, lambda caller: watched.get(caller, ()), lambda: 5.0, idle_s=0.05)
        hers = await own.lease_for(ada)
        await until(lambda: http.count("resources/subscribe") == 1)
        his = await own.lease_for(bob)
        await his.until_retired()  # it was opened later, so hers had its chance
        assert own.current_lease(ada) is hers
        watched.clear()
        await hers.until_retired()
        assert own.current_lease(ada) is None
        await own.stop(0)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_own_connection_that_is_kept_for_a_watcher_is_opened_again_until_it_is_stopped(era: Era) -> None:
    async with asyncio.timeout(PATIENCE_S), serving(era) as http:
        ada, opens = Caller("ada", None), Opens()
        connect = opens("s", Server(url=http.url), Limits())
        own = OwnConnections(connect, unheard, lambda caller: ("a:b",), lambda: 5.0)
        own.keep(ada)
        await until(lambda: own.current_lease(ada) is not None)
        first = own.current_lease(ada)
        assert first is not None
        await first.retire(0)
        await until(lambda: own.current_lease(ada) not in (None, first))
        await own.stop(0)
        assert own.current_lease(ada) is None
        assert opens.count == {"s": 2}


async def test_no_own_connection_is_opened_once_they_are_stopped() -> None:
    """Also not by a call that was waiting for the connection which the stop has retired."""
    async with asyncio.timeout(PATIENCE_S), serving("modern") as http:
        ada, opens = Caller("ada", None), Opens()
        own = OwnConnections(opens("s", Server(url=http.url), Limits()), unheard, unwatched, lambda: 5.0)
        await own.lease_for(ada)
        await own.stop(0)
        with pytest.raises(ConnectionLostError, match="it is being stopped"):
            await own.lease_for(ada)
        assert opens.count == {"s": 1}


async def test_own_connections_are_limited_in_number() -> None:
    async with asyncio.timeout(PATIENCE_S), serving("modern") as http:
        connect = Opens()("s", Server(url=http.url), Limits())
        own = OwnConnections(connect, unheard, unwatched, lambda: 5.0, most=1)
        await own.lease_for(Caller("ada", None))
        with pytest.raises(ConnectionLostError, match="1 callers have a connection of their own already"):
            await own.lease_for(Caller("bob", None))
        await own.stop(0)
