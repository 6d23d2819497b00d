"""Each caller signs in to a server with its own account, by a link that connects nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from mcp import types
from mcp.client.context import ClientRequestContext

from tests.e2e.client import BOTH_ERAS, Mode
from tests.router.accounts.office import Office, office, opens, secret_of


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    async with office(tmp_path_factory.mktemp("accounts")) as found:
        yield found


@pytest.fixture
async def at(shared: Office) -> Office:
    for server in (shared.tracker, shared.board):
        server.refuses.clear()
        server.calls.clear()
    await shared.forget("tracker")
    await shared.forget("board")
    return shared


@pytest.mark.parametrize("mode", BOTH_ERAS)
@pytest.mark.parametrize("server", ["tracker", "board"])
async def test_a_client_is_asked_to_open_a_link_and_the_call_goes_on(at: Office, mode: Mode, server: str) -> None:
    asked: list[str] = []
    async with at.browser("ada") as browser, at.caller(at.jwt("ada"), mode, opens(browser, asked)) as caller:
        await caller.text(f"{server}:echo", n=1)
        await caller.text(f"{server}:echo", n=2)
    used = at.tracker if server == "tracker" else at.board
    assert [account for account, _ in used.calls] == ["ada", "ada"]
    assert len(asked) == 1
    assert asked[0].startswith(f"{at.gateway.base_url}/oauth/connect/")
