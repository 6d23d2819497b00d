"""The gateway as a protected resource: what the authorization chapters of 2025-11-25 and 2026-07-28 demand of one.

A test whose docstring begins with `MUST` or `SHOULD` is about such a demand; those for clients and authorization
servers are elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx2
import pytest

from tests.gateway_process import gateway_process
from tests.router.auth.issuer import PUBLIC_URL, Json, ec_key, issuing, write
from tests.router.auth.shop import LEGACY, META, WAIT_S, Shop, challenge_of, config_of, error_of, structured

# ---------------------------------------------------------------------- discovery


@pytest.mark.parametrize(
    "path", ["/mcp", "/sse", "/projects/demo/mcp", "/projects/demo/sse", "/projects/nowhere/mcp", ""]
)
async def test_each_address_has_metadata_that_name_it_exactly(shop: Shop, path: str) -> None:
    """MUST: protected-resource metadata (RFC 9728), with at least one authorization server, at a path-aware place."""
    answer = await shop.http.get(f"{shop.gateway.base_url}{META}{path}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "resource": f"{PUBLIC_URL}{path}",
        "authorization_servers": [shop.issuer.url],
        "scopes_supported": ["mcp"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Pointsman",
    }


@pytest.mark.parametrize(
    "path", ["/", "/mcp/", "/messages/", "/nothing", "/projects/a/b/mcp", "/projects//mcp", "/projects/%2e%2e/mcp", "x"]
)
async def test_what_is_no_address_of_the_gateway_has_no_metadata(shop: Shop, path: str) -> None:
    answer = await shop.http.get(f"{shop.gateway.base_url}{META}{path}")
    assert answer.status_code == 404
    assert "error_description" in answer.json()


async def test_metadata_do_not_follow_the_headers_of_a_request(shop: Shop) -> None:
    """The public address is never guessed."""
    headers = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https", "Forwarded": "host=evil.example"}
    answer = await shop.http.get(f"{shop.gateway.base_url}{META}/mcp", headers=headers)
    assert answer.json()["resource"] == f"{PUBLIC_URL}/mcp"
    refused = await shop.http.post(f"{shop.gateway.base_url}/mcp", json={}, headers=headers)
    assert "evil" not in refused.headers["www-authenticate"]


async def test_offline_access_is_no_scope_of_the_resource(shop: Shop) -> None:
    """SHOULD NOT: offline_access in scopes_supported or in a challenge."""
    answer = await shop.http.get(f"{shop.gateway.base_url}{META}/mcp")
    assert "offline_access" not in answer.text
    assert "offline_access" not in (await shop.send(None, "tools/list")).headers["www-authenticate"]


@pytest.mark.parametrize(
    ("path", "resource"),
    [("/mcp", "/mcp"), ("/projects/demo/mcp", "/projects/demo/mcp"), ("/messages/?session_id=x", "/sse")],
)
async def test_a_request_without_a_token_is_told_where_to_sign_in(shop: Shop, path: str, resource: str) -> None:
    """MUST: 401 if authorization is required. MUST (one of two): the address of the metadata in the challenge.
    SHOULD: the scope that is needed."""
    async with shop.nothing_executed():
        refused = await shop.execute(None, "shop:look", path)
    assert refused.status_code == 401
    assert challenge_of(refused) == {"resource_metadata": f"{PUBLIC_URL}{META}{resource}", "scope": "mcp"}


async def test_streams_are_told_where_to_sign_in(shop: Shop) -> None:
    for path in ("/sse", "/projects/demo/sse"):
        refused = await shop.http.get(f"{shop.gateway.base_url}{path}", headers={"Accept": "text/event-stream"})
        assert refused.status_code == 401
        assert challenge_of(refused)["resource_metadata"] == f"{PUBLIC_URL}{META}{path}"


@pytest.mark.parametrize("path", ["/health", "/metrics"])
async def test_health_and_metrics_know_who_has_signed_in(shop: Shop, path: str) -> None:
    for token, status in ((shop.token(), 200), (shop.token(aud="https://else.example"), 401)):
        answer = await shop.http.get(f"{shop.gateway.base_url}{path}", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == status
    assert challenge_of(answer)["error"] == "invalid_token"


# ---------------------------------------------------------------------- tokens


async def test_a_signed_in_caller_runs_tools_and_is_in_the_audit(shop: Shop) -> None:
    assert structured(await shop.execute(shop.token(), "shop:erase"))["coats"] == 1
    row = await shop.last_row()
    assert (row["token"], row["toolKey"], row["outcome"]) == ("@sso/alice#staff", "shop:erase", "ok")


async def test_tokens_of_the_yaml_work_as_before(shop: Shop) -> None:
    assert structured(await shop.execute(shop.gateway.token, "shop:erase"))["coats"] == 1
    assert (await shop.last_row())["token"] == "test"


async def test_both_eras_accept_the_same_token(shop: Shop) -> None:
    head = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {shop.token()}"}
    hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    opened = await shop.http.post(shop.gateway.url, json=body, headers=head)
    assert opened.status_code == 200
    head |= {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": LEGACY}
    call = {"name": "tool_execute", "arguments": {"toolKey": "shop:look"}}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    assert (await shop.http.post(shop.gateway.url, json=body, headers=head)).status_code == 200
    del head["Authorization"]
    refused = await shop.http.post(shop.gateway.url, json=body, headers=head)
    assert refused.status_code == 401, "MUST: authorization is in every request, also within a session"
    renewed = head | {"Authorization": f"Bearer {shop.token(jti='renewed')}"}
    assert (await shop.http.post(shop.gateway.url, json=body, headers=renewed)).status_code == 200
    other = head | {"Authorization": f"Bearer {shop.token(sub='mallory')}"}
    assert (await shop.http.post(shop.gateway.url, json=body, headers=other)).status_code == 404


REFUSED: dict[str, tuple[Json, str, str | None]] = {  # with the code of the row, and whom it names
    "expired": ({"exp": 1_700_000_000}, "token_expired", "@sso/alice"),
    "not yet valid": ({"nbf": 4_000_000_000}, "token_expired", "@sso/alice"),
    "another audience": ({"aud": "https://else.example/mcp"}, "token_audience", "@sso/alice"),
    "an audience that begins the same": ({"aud": f"{PUBLIC_URL}.example/mcp"}, "token_audience", "@sso/alice"),
    "no audience": ({"aud": None}, "token_audience", "@sso/alice"),
    "another issuer": ({"iss": "https://evil.example"}, "token_issuer", None),
    "no expiry": ({"exp": None}, "token_expired", "@sso/alice"),
}


@pytest.mark.parametrize(("claims", "code", "person"), REFUSED.values(), ids=REFUSED.keys())
async def test_tokens_that_are_not_valid_here_get_a_401_and_nothing_runs(
    shop: Shop, claims: Json, code: str, person: str | None
) -> None:
    """MUST: validate tokens before the request is processed. MUST: only tokens that were issued for this server, by
    their audience. MUST: 401 for invalid and expired ones. MUST NOT: accept other tokens."""
    async with shop.nothing_executed():
        refused = await shop.execute(shop.token(**claims), "shop:look")
    assert refused.status_code == 401
    assert challenge_of(refused)["error"] == "invalid_token"
    assert challenge_of(refused)["resource_metadata"] == f"{PUBLIC_URL}{META}/mcp"
    assert refused.json()["error"]["data"]["code"] == "unauthorized"
    row = await shop.last_row(code)
    assert (row["outcome"], row["token"], row["toolKey"]) == ("denied", person, "shop:look")


async def test_forged_and_unknown_tokens_get_a_401_and_nothing_runs(shop: Shop) -> None:
    forged = shop.issuer.token(ec_key("attacker"), {"kid": "ec"})
    unknown = shop.issuer.token(header={"kid": "unknown"})
    async with shop.nothing_executed():
        for token in (forged, unknown, "x.y.z", "x" * 20_000, "ptm_" + "x" * 43):
            refused = await shop.execute(token, "shop:look")
            assert refused.status_code == 401, token[:40]
            assert token not in refused.text
    assert "Sign in again. A token works, too" in error_of(refused)
    await shop.execute(forged, "shop:note")
    row = await shop.last_row("token_signature")
    assert (row["token"], row["toolKey"]) == (None, "shop:note"), "a forged token names nobody"


async def test_a_request_without_a_token_is_told_to_sign_in(shop: Shop) -> None:
    said = error_of(await shop.execute(None, "shop:look"))
    assert said.startswith("Sign in: ")
    assert "pointsman token create" in said


async def test_a_person_who_was_verified_and_refused_is_in_the_audit(shop: Shop) -> None:
    assert (await shop.execute(shop.token(sub="eve", groups=["nobody"]), "shop:look")).status_code == 403
    assert (await shop.last_row("denied"))["token"] == "@sso/eve"
    narrow = shop.token(sub="mia", groups=["readers"], scope="mcp:write")
    assert (await shop.execute(narrow, "shop:look")).status_code == 403
    assert (await shop.last_row("insufficient_scope"))["token"] == "@sso/mia"


@pytest.mark.parametrize("place", ["query", "form"])
async def test_a_token_anywhere_but_in_its_header_is_not_read(shop: Shop, place: str) -> None:
    """MUST NOT: access tokens in the query string."""
    token = shop.token()
    path = f"/mcp?access_token={token}" if place == "query" else "/mcp"
    async with shop.nothing_executed():
        refused = await shop.execute(None, "shop:look", path)
    assert refused.status_code == 401


async def test_two_tokens_are_refused(shop: Shop) -> None:
    """400 for a malformed request."""
    headers = [("Authorization", f"Bearer {shop.token()}"), ("Authorization", "Bearer other")]
    refused = await shop.http.post(shop.gateway.url, json={}, headers=headers)
    assert refused.status_code == 400


async def test_a_tokens_end_is_seen_although_another_one_of_the_person_is_valid(shop: Shop) -> None:
    """MUST: 401 for an expired token, also on a connection that was used before."""
    dying = shop.token(sub="carol", exp=int(time.time()) - 59)
    assert (await shop.execute(dying, "shop:look")).status_code == 200
    lasting = shop.token(sub="carol")
    async with asyncio.timeout(WAIT_S):
        while (await shop.execute(dying, "shop:look")).status_code != 401:
            assert (await shop.execute(lasting, "shop:look")).status_code == 200
            await asyncio.sleep(0.2)
    assert (await shop.execute(lasting, "shop:look")).status_code == 200


@pytest.mark.parametrize("path", ["/sse", "/projects/demo/sse"])
async def test_a_stream_ends_with_the_token_that_opened_it(shop: Shop, path: str) -> None:
    token = shop.token(sub=f"listener of {path}", exp=int(time.time()) - 58)
    head = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    async with (
        asyncio.timeout(WAIT_S),
        shop.http.stream("GET", f"{shop.gateway.base_url}{path}", headers=head) as stream,
    ):
        assert stream.status_code == 200
        lines = [line async for line in stream.aiter_lines()]  # until the gateway ends it
    assert any(line.startswith("event: endpoint") for line in lines)


async def test_the_callers_token_does_not_travel(shop: Shop) -> None:
    """MUST NOT: pass on the token that the client sent."""
    token = shop.token(sub="traveller")
    assert (await shop.execute(token, "shop:erase")).status_code == 200
    assert token not in shop.trace.read_text()
    assert token not in shop.gateway.stderr


# ---------------------------------------------------------------------- reloads


async def test_a_reload_takes_rights_and_sign_in_away(tmp_path: Path) -> None:
    with issuing() as issuer:
        config = config_of(tmp_path, issuer)
        async with gateway_process(tmp_path, config) as gateway, httpx2.AsyncClient(timeout=WAIT_S) as http:
            shop = Shop(gateway, issuer, http, tmp_path / "trace.jsonl", config)
            token = shop.token()
            assert (await shop.execute(token, "shop:look")).status_code == 200

            gateway.write_config(config | {"limits": {"token_calls": 8}})
            await gateway.until_logged("configuration reloaded")
            assert (await shop.execute(token, "shop:look")).status_code == 200
            assert issuer.count("/jwks") == 1

            del config["auth"]["claims"]["staff"]
            gateway.write_config(config)
            async with asyncio.timeout(WAIT_S):
                while (await shop.execute(token, "shop:look")).status_code != 403:
                    await asyncio.sleep(0.02)

            issuer.answers["/jwks"] = issuer.answers["/none"] = lambda request: write(request, 500, {})
            config["auth"]["jwks_uri"] = f"{issuer.url}/none"
            gateway.write_config(config)
            async with asyncio.timeout(WAIT_S):
                while (away := await shop.execute(token, "shop:look")).status_code != 503:
                    await asyncio.sleep(0.02)
            assert away.headers["retry-after"] == "5"
            assert "www-authenticate" not in away.headers
            assert (await shop.last_row("sign_in_unavailable"))["outcome"] == "denied"

            del config["auth"], config["listen"]
            gateway.write_config(config)
            async with asyncio.timeout(WAIT_S):
                while (refused := await shop.execute(token, "shop:look")).status_code != 401:
                    await asyncio.sleep(0.02)
            assert refused.headers["www-authenticate"] == "Bearer"
            answer = await http.get(f"{gateway.base_url}{META}/mcp")
            assert answer.status_code == 404
            assert "pointsman token create" in answer.json()["error_description"]
