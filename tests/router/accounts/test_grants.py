"""A client that the owner has allowed in gets an account only from the owner's browser."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.client import Assistant
from tests.router.accounts.office import LINK, LOOPBACK, Browser, entry
from tests.router.auth.server.office import Office, office
from tests.servers.account_mcp import AccountMcp, serving
from tests.servers.oauth_mcp import signed_in_at


async def test_the_owner_connects_an_account_for_a_grant(tmp_path: Path) -> None:
    tracker = AccountMcp("legacy")
    async with serving(tracker), office(tmp_path, {"servers": {"tracker": entry(tracker)}}) as at:
        begun = await asyncio.to_thread(at.command, "begin_sign_in", server="tracker", redirectUri=LOOPBACK)
        answer = await signed_in_at(begun["url"])
        state = answer.pop("state")
        await asyncio.to_thread(at.command, "finish_sign_in", state=state, answer=answer)
        await at.sign_in()
        visitor = await at.register()
        access = (await visitor.tokens())["access_token"]
        refused = await _call(at, access)
        found = LINK.search(refused)
        assert found is not None, refused
        async with httpx2.AsyncClient(timeout=30) as http:
            stranger = Browser(http, "victim", at.base)
            page = await stranger.agree(found[0])
            assert (page.status_code, "pointsman grant sign-in" in page.text) == (403, True)
        assert "is connected" in (await Browser(at.http, "owner", at.base).connect(found[0])).text
        assert '"isError":true' not in await _call(at, access, n=1)
        (listed,) = at.command("credentials", server="tracker")["credentials"]
    assert tracker.accounts_for(n=1) == ["owner"]
    assert listed["who"].startswith("@grant/")


async def _call(at: Office, access: str, **arguments: int) -> str:
    headers = {"Authorization": f"Bearer {access}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(at.gateway.url, http_client=http)) as client,
    ):
        return (await Assistant(client).execute("tracker:echo", **arguments)).model_dump_json()
