"""A sign-in that its authorization server has ended: everybody is told so at once, and nobody waits for a restart."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from pointsman.config.model import Limits
from pointsman.config.sections.server import Timeouts
from pointsman.core.errors import ServerUnavailableError
from pointsman.router.downstream.connection import Call, Connection, OnNotification, SignInNeededError
from pointsman.router.downstream.http.connect import connect_http
from pointsman.router.downstream.server.own_connections import OwnConnections
from pointsman.router.downstream.server.server import DownstreamServer
from pointsman.router.downstream.server.supervisor import BackoffPolicy, Supervisor
from tests.router.downstream.http_parts import PATIENCE_S, Back, front_request, until
from tests.router.downstream.oauth.parts import Gateway
from tests.servers.http_mcp import serving
from tests.servers.oauth_mcp import OAuthMcp, serving_oauth

Era = Literal["legacy", "modern"]
ERAS: list[Era] = ["legacy", "modern"]
LOGIN = "run `pointsman server login tracker`"


def new_server() -> DownstreamServer:
    return DownstreamServer(
        "tracker",
        "Tracker",
        Timeouts(),
        generations=itertools.count(1),
        clock=lambda: 0.0,
        on_change=lambda server_id, change: None,
    )


class Running:
    """A server with its supervisor, signed in."""

    def __init__(self, gateway: Gateway, http: OAuthMcp) -> None:
        self._gateway, self._http = gateway, http
        self.server = new_server()
        self.connections: list[Connection] = []

    async def connect(self, on_notification: OnNotification) -> Connection:
        connection = await connect_http(
            self._http.url, {}, self._gateway.entry.era, 5.0, Limits(), on_notification, authorizer=self._gateway.source
        )
        self.connections.append(connection)
        return connection

    async def call(self) -> object:
        return await self.server.request("tools/call", {"name": "echo", "arguments": {}}, front_request(), Back())

    def end_sign_in(self) -> None:
        """Access and refresh tokens are worth nothing from now on."""
        self._http.access.clear()
        self._http.refresh.clear()


@asynccontextmanager
async def running(folder: Path, era: Era) -> AsyncIterator[Running]:
    async with asyncio.timeout(PATIENCE_S), serving_oauth(era) as http:
        gateway = Gateway(folder, http)
        await gateway.sign_in()
        found = Running(gateway, http)
        supervisor = Supervisor(found.server, found.connect, BackoffPolicy(sleep=_never))
        supervisor.start()
        try:
            await until(lambda: found.server.status.state == "running")
            yield found
        finally:
            await supervisor.stop(0)


async def _never(seconds: float) -> None:
    """A delay that does not end, so that no further attempt can correct the state."""
    await asyncio.Event().wait()


def check_needs_sign_in(server: DownstreamServer, generation: int) -> None:
    assert server.status.shown == "needs sign-in"
    assert LOGIN in server.status.reason
    assert not server.restarting
    assert not server.keeps_list_of(generation)


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_finds_it_ends_and_the_state_says_so(tmp_path: Path, era: Era) -> None:
    async with running(tmp_path, era) as found:
        await found.call()
        generation = found.server.generation
        found.end_sign_in()
        with pytest.raises(ServerUnavailableError, match=r"has ended it.*The call did not run"):
            await found.call()
        check_needs_sign_in(found.server, generation)


@pytest.mark.parametrize("era", ERAS)
async def test_requests_that_find_it_together_have_the_same_reason(tmp_path: Path, era: Era) -> None:
    async with running(tmp_path, era) as found:
        generation = found.server.generation
        found.end_sign_in()
        lists = (found.server.tools_page(None) for _ in range(3))
        calls = (found.call() for _ in range(3))
        ends = await asyncio.gather(*lists, *calls, return_exceptions=True)
        assert all(isinstance(end, ServerUnavailableError) for end in ends), ends
        assert all(LOGIN in str(end) and "link" not in str(end) for end in ends)
        check_needs_sign_in(found.server, generation)


@pytest.mark.parametrize("era", ERAS)
async def test_the_state_is_right_also_if_no_caller_found_it(tmp_path: Path, era: Era) -> None:
    """As for the request that listens for changes."""
    async with running(tmp_path, era) as found:
        generation = found.server.generation
        found.end_sign_in()
        with pytest.raises(SignInNeededError):
            await found.connections[0].request(Call("tools/list", {}))
        await until(lambda: found.server.status.state == "failed")
        check_needs_sign_in(found.server, generation)


async def test_connections_of_callers_who_share_the_sign_in_offer_no_link(tmp_path: Path) -> None:
    """`isolation: per-caller` without `credentials: per-caller`: signing in is the operator's matter."""
    async with running(tmp_path, "modern") as found:
        server = found.server
        server.own = OwnConnections(found.connect, server.notice_from, server.subscribed.of, lambda: 5.0)
        await found.call()
        found.end_sign_in()
        for _ in range(2):  # on a connection that is open, and on one that cannot be opened
            with pytest.raises(ServerUnavailableError, match=LOGIN) as refused:
                await found.call()
            assert "link" not in str(refused.value)
        await server.own.stop(0)


async def test_an_attempt_that_finds_it_ends_the_wait_for_a_restart() -> None:
    server = new_server()
    async with serving("legacy") as http:
        lease = server.attach(await connect_http(http.url, {}, "auto", 5.0, Limits(), server.notice))
        generation = server.generation
        server.detach(lease, "it was ended by SIGKILL")
        waiting = asyncio.create_task(server.restarted())
        await asyncio.sleep(0)
        assert server.restarting
        server.fail(SignInNeededError(f"it needs sign-in: {LOGIN}"))
        check_needs_sign_in(server, generation)
        await waiting
        await lease.retire(0)


async def test_a_gateway_that_signs_in_by_itself_waits_no_longer_and_asks_no_person() -> None:
    server = new_server()
    async with serving("legacy") as http:
        lease = server.attach(await connect_http(http.url, {}, "auto", 5.0, Limits(), server.notice))
        server.detach(lease, SignInNeededError("its authorization server gives us no token", person=False))
        assert (server.status.shown, server.restarting) == ("failed", False)
        await lease.retire(0)
