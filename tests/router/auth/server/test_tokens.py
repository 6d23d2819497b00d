"""Codes, access tokens and refresh tokens of the gateway's own authorization server: each for its client, once."""

from __future__ import annotations

import httpx2
import pytest

from pointsman.router.downstream.oauth.documents import read_challenge
from tests.router.auth.server.office import Office, Visitor, stranger

# ---------------------------------------------------------------------- codes


async def test_a_code_that_comes_again_takes_back_what_it_gave(desk: Office, visitor: Visitor) -> None:
    code = await visitor.code()
    tokens = (await visitor.redeem(code)).json()
    again = await visitor.redeem(code)
    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    assert (await visitor.initialize(tokens["access_token"])).status_code == 401
    assert (await visitor.refresh(tokens["refresh_token"])).json()["error"] == "invalid_grant"
    assert ("oauth/token", "denied", "code_reused") in await desk.rows()


@pytest.mark.parametrize("verifier", [None, "short", "p" * 43, "x" * 129, "w" * 42 + "!"])
async def test_a_code_needs_the_verifier(visitor: Visitor, verifier: str | None) -> None:
    answer = await visitor.redeem(await visitor.code(), code_verifier=verifier)
    assert answer.status_code == 400
    assert answer.json()["error"] in ("invalid_request", "invalid_grant")


async def test_the_challenge_itself_is_no_verifier(visitor: Visitor) -> None:
    """As it would be with the method `plain`."""
    answer = await visitor.redeem(await visitor.code(), code_verifier=visitor.challenge)
    assert answer.json()["error"] == "invalid_grant"


async def test_a_code_belongs_to_its_client_and_resource(desk: Office, visitor: Visitor) -> None:
    other = await desk.register(client_name="Other")
    answer = await visitor.redeem(await visitor.code(), client_id=other.client_id)
    assert answer.json()["error"] == "invalid_grant"
    answer = await visitor.redeem(await visitor.code(), redirect_uri="http://127.0.0.1:43118/callback")
    assert answer.json()["error"] == "invalid_grant"
    answer = await visitor.redeem(await visitor.code(), resource=f"{desk.base}/projects/attic/mcp")
    assert answer.json()["error"] == "invalid_target"


# ---------------------------------------------------------------------- refresh tokens


async def test_a_refresh_token_that_was_stolen_ends_the_grant(desk: Office, visitor: Visitor) -> None:
    first = await visitor.tokens()
    second = (await visitor.refresh(first["refresh_token"])).json()
    assert second["refresh_token"] != first["refresh_token"]
    assert (await visitor.initialize(second["access_token"])).status_code == 200
    stolen = await visitor.refresh(first["refresh_token"])
    assert (stolen.status_code, stolen.json()["error"]) == (400, "invalid_grant")
    assert (await visitor.initialize(second["access_token"])).status_code == 401
    assert (await visitor.refresh(second["refresh_token"])).json()["error"] == "invalid_grant"
    assert ("oauth/token", "denied", "refresh_token_reused") in await desk.rows()


async def test_a_refresh_narrows_the_next_access_token_and_not_the_grant(desk: Office, visitor: Visitor) -> None:
    first = await visitor.tokens()
    narrow = (await visitor.refresh(first["refresh_token"], scope="mcp:read admin")).json()
    assert narrow["scope"] == "mcp:read"
    assert (await visitor.initialize(narrow["access_token"])).status_code == 200
    wide = (await visitor.refresh(narrow["refresh_token"])).json()
    assert wide["scope"] == "mcp"
    refused = await visitor.refresh(wide["refresh_token"], scope="admin")
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_scope")
    desk.command("revoke_grant", grant=desk.command("grants")["grants"][0]["id"])
    assert (await visitor.initialize(narrow["access_token"])).status_code == 401


async def test_a_refresh_gives_no_scope_that_the_owner_has_not_given(visitor: Visitor) -> None:
    first = await visitor.tokens(scopes="read")
    second = (await visitor.refresh(first["refresh_token"], scope="mcp")).json()
    assert second["scope"] == "mcp:read"
    refused = await visitor.refresh(second["refresh_token"], scope="mcp:destructive")
    assert refused.json()["error"] == "invalid_scope"


async def test_a_refresh_token_is_its_clients_alone(desk: Office, visitor: Visitor) -> None:
    tokens = await visitor.tokens()
    other = await desk.register(client_name="Other")
    assert (await visitor.refresh(tokens["refresh_token"], client_id=other.client_id)).status_code == 400
    assert (await visitor.refresh(tokens["refresh_token"], client_id=None)).status_code == 400
    wrong = await visitor.refresh(tokens["refresh_token"], resource=f"{desk.base}/sse")
    assert wrong.json()["error"] == "invalid_target"
    assert (await visitor.refresh(tokens["refresh_token"])).status_code == 200


async def test_secrets_are_no_other_secrets(desk: Office, visitor: Visitor) -> None:
    tokens = await visitor.tokens()
    assert (await visitor.initialize(tokens["refresh_token"])).status_code == 401
    assert (await visitor.refresh(tokens["access_token"])).json()["error"] == "invalid_grant"
    assert (await visitor.redeem(tokens["refresh_token"])).json()["error"] == "invalid_grant"
    assert (await visitor.refresh(desk.gateway.token)).json()["error"] == "invalid_grant"


# ---------------------------------------------------------------------- revocation


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_a_client_revokes_its_grant(desk: Office, visitor: Visitor, kind: str) -> None:
    tokens = await visitor.tokens()
    assert (await visitor.initialize(tokens["access_token"])).status_code == 200
    form = {"token": tokens[kind], "client_id": visitor.client_id}
    assert (await stranger("POST", f"{desk.base}/oauth/revoke", data=form)).status_code == 200
    assert (await visitor.initialize(tokens["access_token"])).status_code == 401
    assert (await visitor.refresh(tokens["refresh_token"])).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_a_client_cannot_revoke_what_is_another_clients(desk: Office, visitor: Visitor, kind: str) -> None:
    tokens = await visitor.tokens()
    other = await desk.register(client_name="Other")
    for client_id in (other.client_id, "nobody"):
        form = {"token": tokens[kind], "client_id": client_id}
        answer = await stranger("POST", f"{desk.base}/oauth/revoke", data=form)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    assert (await visitor.initialize(tokens["access_token"])).status_code == 200
    assert ("oauth/revoke", "denied", "invalid_grant") in await desk.rows()


async def test_what_does_not_exist_is_revoked_all_the_same(desk: Office) -> None:
    for token in ("ptm_at_" + "a" * 43, "nothing", desk.gateway.token):
        answer = await stranger("POST", f"{desk.base}/oauth/revoke", data={"token": token})
        assert (answer.status_code, answer.content) == (200, b"")


async def test_the_owner_revokes_a_grant(desk: Office, visitor: Visitor) -> None:
    tokens = await visitor.tokens()
    assert (await visitor.initialize(tokens["access_token"])).status_code == 200
    grant = desk.command("grants")["grants"][0]
    assert desk.command("revoke_grant", grant=grant["id"]) == {"id": grant["id"], "client": "Test client"}
    assert (await visitor.initialize(tokens["access_token"])).status_code == 401
    assert (await visitor.refresh(tokens["refresh_token"])).json()["error"] == "invalid_grant"
    assert ("oauth/revoke", "ok", f"grants.{grant['id']}") in await desk.rows()


# ---------------------------------------------------------------------- more scopes


async def _execute(desk: Office, access: str, tool: str, path: str = "/mcp") -> httpx2.Response:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "visitor", "version": "1"},
    }
    params = {"name": "tool_execute", "arguments": {"toolKey": tool, "arguments": {}}, "_meta": meta}
    headers = {
        "Authorization": f"Bearer {access}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "tool_execute",
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return await stranger("POST", desk.base + path, json=message, headers=headers)


def _wanted(answer: httpx2.Response) -> str | None:
    """The scopes that a 403 names; None: it is none, and the tool does not exist."""
    if answer.status_code == 403:
        said = read_challenge(answer.headers["www-authenticate"])
        assert said.error == "insufficient_scope"
        assert said.resource_metadata
        return said.scope
    assert answer.json()["result"]["structuredContent"]["error"]["code"] == "unknown_tool", answer.text
    return None


async def test_a_client_that_asked_for_less_is_told_all_scopes_that_a_tool_needs(
    desk: Office, visitor: Visitor
) -> None:
    tokens = await visitor.tokens(query={"scope": "mcp:read"}, servers=["shop"])
    access = tokens["access_token"]
    assert _wanted(await _execute(desk, access, "shop:erase")) == "mcp:read mcp:destructive"
    assert _wanted(await _execute(desk, access, "shop:no_such_tool")) is None
    stepped_up = await visitor.tokens(query={"scope": "mcp:read mcp:destructive"}, servers=["shop"])
    assert (await _execute(desk, stepped_up["access_token"], "shop:erase")).status_code == 200


async def test_tools_of_servers_and_projects_outside_of_the_grant_do_not_exist(desk: Office, visitor: Visitor) -> None:
    access = (await visitor.tokens(query={"scope": "mcp:read"}, project="attic", servers=["cellar"]))["access_token"]
    path = "/projects/attic/mcp"
    assert _wanted(await _execute(desk, access, "cellar:erase", path)) == "mcp:read mcp:destructive"
    assert _wanted(await _execute(desk, access, "shop:erase", path)) is None


async def test_what_the_owner_refused_does_not_exist(desk: Office, visitor: Visitor) -> None:
    tokens = await visitor.tokens(scopes="read", servers=["shop"])
    assert tokens["scope"] == "mcp:read"
    assert _wanted(await _execute(desk, tokens["access_token"], "shop:erase")) is None
    renewed = (await visitor.refresh(tokens["refresh_token"])).json()
    assert _wanted(await _execute(desk, renewed["access_token"], "shop:erase")) is None


async def test_a_token_that_a_refresh_has_narrowed_is_told_what_it_lacks(desk: Office, visitor: Visitor) -> None:
    tokens = await visitor.tokens(servers=["shop"])
    narrow = (await visitor.refresh(tokens["refresh_token"], scope="mcp:read")).json()
    assert _wanted(await _execute(desk, narrow["access_token"], "shop:erase")) == "mcp:read mcp:destructive"
    wide = (await visitor.refresh(narrow["refresh_token"])).json()
    assert (await _execute(desk, wide["access_token"], "shop:erase")).status_code == 200
