"""While an HTTP server restarts, its tools stay findable, and a call that was not sent waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest

from tests.gateway_process import gateway_process
from tests.router.conftest import Shop
from tests.router.downstream.http_parts import until
from tests.servers.http_mcp import HttpMcp, serving

Era = Literal["legacy", "modern"]
PATIENCE_S = 60.0  # a bound against hanging
ECHO = {"name": "echo", "description": "Repeat what it is told", "inputSchema": {"type": "object"}}
WAIT = {"name": "wait", "description": "Repeat it later", "inputSchema": {"type": "object"}}
OTHER = {**ECHO, "description": "Delete what it is told"}
CHANGED = "its definition of this tool has changed. The call was not sent."
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
ISOLATIONS = pytest.mark.parametrize("isolation", ["shared", "per-caller"])


class HttpShop(Shop):
    """A gateway with one HTTP server, `far`, that the test starts and stops."""

    async def found(self) -> tuple[set[str], str]:
        """The keys that a discovery returns, and its notice."""
        answer = await self.call("tool_discovery", {"query": ["repeat what it is told"]})
        content = answer.json()["result"]["structuredContent"]
        return {hit["toolKey"] for hit in content["results"]}, content.get("notice", "")

    async def echo(self) -> str:
        """The text of the answer, or of the error."""
        answer = await self.execute("far:echo", {"a": 1})
        error = answer.get("structuredContent", {}).get("error")
        return str(error["message"]) if error is not None else str(answer["content"][0]["text"])


@asynccontextmanager
async def http_shop(
    folder: Path, era: Era, *, limits: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[HttpMcp, HttpShop]]:
    async with asyncio.timeout(PATIENCE_S), httpx2.AsyncClient(timeout=PATIENCE_S) as http, serving(era) as server:
        server.tools = [ECHO, WAIT]
        server.has_get_stream = False  # so that only requests notice what became of the server
        config = {"servers": {"far": {"url": server.url, "pin": "off", **settings}}, "limits": limits or {}}
        async with gateway_process(folder, config) as gateway:
            shop = HttpShop(gateway, http, folder / "trace")
            assert await shop.found() == ({"far:echo", "far:wait"}, "")
            yield server, shop


# ---------------------------------------------------------------------- the session is lost


@ISOLATIONS
@pytest.mark.parametrize("list_max_age_s", [0, 3600])
async def test_a_call_that_finds_the_session_lost_is_sent_after_the_new_list(
    list_max_age_s: int, isolation: str, tmp_path: Path
) -> None:
    limits = {"list_max_age_s": list_max_age_s}
    async with http_shop(tmp_path, "legacy", limits=limits, isolation=isolation) as (server, shop):
        assert await shop.echo() == '{"a": 1}'
        server.forget_sessions()
        server.seen.clear()
        assert await shop.echo() == '{"a": 1}'
        assert server.ran == ["echo", "echo"]
        last = len(server.seen) - 1 - server.seen[::-1].index("tools/call")
        assert "tools/list" in server.seen[:last]
        assert "initialize" in server.seen[:last]


@ISOLATIONS
@pytest.mark.parametrize("list_max_age_s", [0, 3600])
@pytest.mark.parametrize("after", [[OTHER], []])
async def test_a_call_that_finds_the_session_lost_is_not_sent_to_a_tool_that_changed(
    after: list[dict[str, Any]], list_max_age_s: int, isolation: str, tmp_path: Path
) -> None:
    limits = {"list_max_age_s": list_max_age_s}
    async with http_shop(tmp_path, "legacy", limits=limits, isolation=isolation) as (server, shop):
        assert await shop.echo() == '{"a": 1}'
        server.forget_sessions()
        server.tools = after
        answer = await shop.echo()
        assert (CHANGED if after else "it no longer has this tool. The call was not sent.") in answer
        assert server.ran == ["echo"]


async def test_a_call_that_comes_while_the_session_is_renewed_is_not_sent_to_a_tool_that_changed(
    tmp_path: Path,
) -> None:
    async with http_shop(tmp_path, "legacy", limits={"list_max_age_s": 3600}) as (server, shop):
        server.forget_sessions()
        server.tools = [OTHER]
        server.hold_initialized = asyncio.Event()
        first = asyncio.create_task(shop.echo())
        await until(lambda: server.count("notifications/initialized") == 2)
        second = asyncio.create_task(shop.echo())
        await asyncio.sleep(0.1)  # room for it to arrive
        server.hold_initialized.set()
        assert CHANGED in await first
        assert CHANGED in await second
        assert server.ran == []


async def test_a_call_that_waits_in_the_queue_while_the_session_is_renewed_is_not_sent_to_a_tool_that_changed(
    tmp_path: Path,
) -> None:
    limits = {"list_max_age_s": 0, "server_calls": 1, "queue_s": 30}
    async with http_shop(tmp_path, "legacy", limits=limits) as (server, shop):
        waiting = asyncio.create_task(shop.execute("far:wait"))
        await server.arrived.acquire()
        queued = asyncio.create_task(shop.echo())
        await asyncio.sleep(0.1)  # room for it to arrive
        server.tools = [OTHER]
        server.forget_sessions()
        await shop.found()  # which has the session renewed
        server.gate.set()
        await waiting
        assert CHANGED in await queued
        assert server.ran == ["wait"]


async def test_a_server_that_loses_every_session_is_not_asked_without_end(tmp_path: Path) -> None:
    async with http_shop(tmp_path, "legacy", timeouts={"call_s": 2}) as (server, shop):
        server.forgets_calls = True
        assert "it lost our session" in await shop.echo()
        assert server.ran == []
        assert server.count("tools/call") < 10


# ---------------------------------------------------------------------- nothing listens


@ERAS
@ISOLATIONS
@pytest.mark.parametrize("list_max_age_s", [0, 3600])
async def test_calls_wait_until_the_server_listens_again(
    era: Era, isolation: str, list_max_age_s: int, tmp_path: Path
) -> None:
    limits = {"list_max_age_s": list_max_age_s}
    async with http_shop(tmp_path, era, limits=limits, isolation=isolation) as (server, shop):
        assert await shop.echo() == '{"a": 1}'
        await server.stop()
        first = asyncio.create_task(shop.echo())
        await shop.gateway.until_logged("server far: it refused the connection")
        keys, notice = await shop.found()
        assert "far:echo" in keys
        assert "These servers are restarting, and their tools are those of the last list: `far`." in notice
        second = asyncio.create_task(shop.echo())
        await asyncio.sleep(0.1)
        assert not first.done()
        assert not second.done()
        await server.start()
        assert await first == '{"a": 1}'
        assert await second == '{"a": 1}'
        assert server.ran == ["echo"] * 3


@ERAS
@ISOLATIONS
async def test_a_call_is_not_sent_to_a_tool_that_changed_while_nothing_listened(
    era: Era, isolation: str, tmp_path: Path
) -> None:
    limits = {"list_max_age_s": 3600}
    async with http_shop(tmp_path, era, limits=limits, isolation=isolation) as (server, shop):
        assert await shop.echo() == '{"a": 1}'
        await server.stop()
        call = asyncio.create_task(shop.echo())
        await shop.gateway.until_logged("server far: it refused the connection")
        server.tools = [OTHER]
        await server.start()
        assert CHANGED in await call
        assert server.ran == ["echo"]


@ERAS
async def test_a_call_that_nothing_took_in_time_does_not_claim_to_have_been_sent(era: Era, tmp_path: Path) -> None:
    async with http_shop(tmp_path, era, timeouts={"call_s": 0.5}) as (server, shop):
        await server.stop()
        answer = await shop.echo()
        assert "Server `far` is not available" in answer
        assert "it refused the connection" in answer
        assert "may have run" not in answer


@ERAS
async def test_a_call_that_was_cut_off_may_have_run_and_is_not_repeated(era: Era, tmp_path: Path) -> None:
    async with http_shop(tmp_path, era, limits={"list_max_age_s": 0}) as (server, shop):
        call = asyncio.create_task(shop.execute("far:wait"))
        await server.arrived.acquire()
        await server.stop()
        await server.start()
        error = (await call)["structuredContent"]["error"]
        assert error["code"] == "server_unavailable"
        assert "may have run" in error["message"]
        assert server.ran == ["wait"]


# ---------------------------------------------------------------------- the list finds it out


@ERAS
async def test_a_discovery_that_finds_nothing_listening_keeps_the_last_list(era: Era, tmp_path: Path) -> None:
    async with http_shop(tmp_path, era, limits={"list_max_age_s": 0}) as (server, shop):
        await server.stop()
        async with asyncio.timeout(10):
            keys, notice = await shop.found()
            while "These servers are restarting" not in notice:  # it shared a list that was fetched before the end
                assert "far:echo" in keys
                keys, notice = await shop.found()
        assert "far:echo" in keys


@ERAS
async def test_a_discovery_whose_list_is_cut_off_keeps_the_last_list(era: Era, tmp_path: Path) -> None:
    async with http_shop(tmp_path, era, limits={"list_max_age_s": 0}) as (server, shop):
        server.hold_lists = asyncio.Event()
        lists = server.count("tools/list")
        discovery = asyncio.create_task(shop.found())
        await until(lambda: server.count("tools/list") > lists)
        await server.stop()
        keys, notice = await discovery
        assert "far:echo" in keys
        assert "These servers are restarting" in notice


async def test_a_discovery_that_finds_the_session_lost_for_good_keeps_the_last_list(tmp_path: Path) -> None:
    async with http_shop(tmp_path, "legacy", limits={"list_max_age_s": 0}) as (server, shop):
        server.forget_sessions()
        server.refuses_initialize = True
        keys, notice = await shop.found()
        assert "far:echo" in keys
        assert "These servers are restarting" in notice
