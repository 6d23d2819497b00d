"""A client that the owner has allowed in gets an account only from the owner's browser, and loses it with its grant."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from pointsman.router.auth.server.store import IDENTITY, GrantStore
from pointsman.router.state.sqlite_values import SqliteKeyValues
from tests.e2e.client import Assistant
from tests.router.accounts.office import LINK, LOOPBACK, Browser, entry
from tests.router.auth.server.office import Office, office
from tests.router.conftest import audit_rows
from tests.servers.account_mcp import AccountMcp, serving
from tests.servers.oauth_mcp import signed_in_at


async def test_the_owner_connects_an_account_for_a_grant_and_it_ends_with_the_grant(tmp_path: Path) -> None:
    tracker = AccountMcp("legacy")
    async with serving(tracker), office(tmp_path, {"servers": {"tracker": entry(tracker)}}) as at:
        begun = await asyncio.to_thread(at.command, "begin_sign_in", server="tracker", redirectUri=LOOPBACK)
        answer = await signed_in_at(begun["url"])
        state = answer.pop("state")
        await asyncio.to_thread(at.command, "finish_sign_in", state=state, answer=answer)
        await at.sign_in()
        who = await _connected(at)
        assert tracker.accounts_for(n=1) == ["owner"]
        assert who.startswith("@grant/")
        given = {token for token, account in tracker.account_of.items() if account == "owner"}
        await asyncio.to_thread(at.command, "revoke_grant", grant=who)
        async with asyncio.timeout(30):
            while await _listed(at) or not tracker.asked["revoke"]:
                await asyncio.sleep(0.02)
        assert {one["token"] for one in tracker.asked["revoke"]} <= given
        await _check_a_grant_that_ended_elsewhere(at)
        rows = await audit_rows(at.gateway.state_dir, "--kind", "change")
    ended = [(row["token"], row["client"]) for row in rows if row["method"] == "server/logout"]
    assert ended[0] == (who, "grant revoked")


async def _check_a_grant_that_ended_elsewhere(at: Office) -> None:
    """Its account is still stored, as that of a grant that has expired."""
    who = await _connected(at)
    (values,) = at.gateway.state_dir.rglob("values.db")
    assert GrantStore(SqliteKeyValues(values.parent)).revoke(who.removeprefix(IDENTITY))
    (listed,) = await _listed(at)
    assert (listed["works"], listed["problem"]) == (False, "the grant was revoked or has ended")
    (unused,) = (await asyncio.to_thread(at.command, "unused_credentials"))["unused"]
    assert (unused["server"], unused["people"]) == ("tracker", 1)
    assert "credentials of a grant that has ended are stored and unused" in unused["text"]
    assert "--revoke-all" not in unused["text"]  # accounts of others are in use
    await asyncio.to_thread(at.command, "end_credential", server="tracker", credential=listed["id"])
    assert (await asyncio.to_thread(at.command, "unused_credentials"))["unused"] == []


async def _connected(at: Office) -> str:
    """A new client, for which the owner connects an account; nobody else can."""
    visitor = await at.register()
    access = (await visitor.tokens())["access_token"]
    refused = await _call(at, access)
    found = LINK.search(refused)
    assert found is not None, refused
    async with httpx2.AsyncClient(timeout=30) as http:
        page = await Browser(http, "victim", at.base).agree(found[0])
        assert (page.status_code, "pointsman grant sign-in" in page.text) == (403, True)
    assert "is connected" in (await Browser(at.http, "owner", at.base).connect(found[0])).text
    assert '"isError":true' not in await _call(at, access, n=1)
    (listed,) = await _listed(at)
    assert listed["works"]
    return str(listed["who"])


async def _listed(at: Office) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await asyncio.to_thread(at.command, "credentials", server="tracker"))["credentials"]
    return found


async def _call(at: Office, access: str, **arguments: int) -> str:
    headers = {"Authorization": f"Bearer {access}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(at.gateway.url, http_client=http)) as client,
    ):
        return (await Assistant(client).execute("tracker:echo", **arguments)).model_dump_json()
