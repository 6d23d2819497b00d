"""The gateway as a protected resource: what the authorization chapters of 2025-11-25 and 2026-07-28 demand of one.

A test whose docstring begins with `MUST` or `SHOULD` is about such a demand; those for clients and authorization
servers are elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.auth.issuer import PUBLIC_URL, Issuer, Json, ec_key, issuing, write
from tests.router.conftest import audit_rows
from tests.servers import workshop

MODERN, LEGACY = "2026-07-28", "2025-11-25"
WAIT_S = 30.0
META = "/.well-known/oauth-protected-resource"
EFFECTS = [
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "note", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": False}},
]


@dataclass(eq=False)
class Shop:
    """A gateway with two servers in front of which one can sign in."""

    gateway: GatewayProcess
    issuer: Issuer
    http: httpx2.AsyncClient
    trace: Path
    config: Json

    def token(self, **claims: Any) -> str:
        return self.issuer.token(**claims)

    async def send(
        self, token: str | None, method: str, params: Json | None = None, path: str = "/mcp"
    ) -> httpx2.Response:
        """A request of the modern era."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "visitor", "version": "1"},
        }
        head = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if params and "name" in params:
            head["Mcp-Name"] = params["name"]
        if token is not None:
            head["Authorization"] = f"Bearer {token}"
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": meta}}
        return await self.http.post(f"{self.gateway.base_url}{path}", json=body, headers=head)

    async def execute(self, token: str | None, tool: str, path: str = "/mcp", **arguments: Any) -> httpx2.Response:
        given = {"toolKey": tool, "arguments": arguments}
        return await self.send(token, "tools/call", {"name": "tool_execute", "arguments": given}, path)

    def executed(self) -> int:
        return len(self.trace.read_text().splitlines()) if self.trace.exists() else 0

    async def last_row(self, code: str | None = None) -> Json:
        options = ("--code", code) if code else ()
        rows = await audit_rows(self.gateway.state_dir, *options)
        return rows[-1]

    @asynccontextmanager
    async def nothing_executed(self) -> AsyncIterator[None]:
        before = self.executed()
        yield
        assert self.executed() == before


def config_of(folder: Path, issuer: Issuer) -> Json:
    (folder / "effects.json").write_text(json.dumps(EFFECTS))
    program = [workshop.__file__, str(folder / "trace.jsonl")]
    server = {
        "command": sys.executable,
        "args": ["-S", *program],
        "env": {"MORE_TOOLS": str(folder / "effects.json")},
        "trust_annotations": True,
    }
    return {
        "listen": {"public_url": PUBLIC_URL},
        "projects": {"demo": {}, "other": {}, "flat": {"exposure": "flat"}},
        "servers": {"shop": server, "demo": {**server, "projects": ["demo"]}, "flat": {**server, "projects": ["flat"]}},
        "auth": {
            "issuer": issuer.url,
            "claims": {
                "limited": {
                    "when": {"groups": "limited"},
                    "projects": [""],
                    "servers": ["*"],
                    "rates": {"calls_per_minute": 2},
                },
                "careful": {
                    "when": {"groups": "careful"},
                    "projects": [""],
                    "servers": ["*"],
                    "confirm": "destructive",
                },
                "readers": {"when": {"groups": "readers"}, "projects": ["*"], "servers": ["*"], "scopes": ["read"]},
                "staff": {"when": {"groups": "staff"}, "projects": ["*"], "servers": ["*"]},
            },
        },
    }


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    with issuing() as issuer:
        config = config_of(folder, issuer)
        async with gateway_process(folder, config) as gateway, httpx2.AsyncClient(timeout=WAIT_S) as http:
            yield Shop(gateway, issuer, http, folder / "trace.jsonl", config)


def challenge_of(response: httpx2.Response) -> dict[str, str]:
    value = response.headers["www-authenticate"]
    assert value.startswith("Bearer ")
    return dict(re.findall(r'(\w+)="([^"]*)"', value))


def error_of(response: httpx2.Response) -> str:
    return str(response.json()["error"]["message"])


def structured(response: httpx2.Response) -> Json:
    assert response.status_code == 200, response.text
    found: Json = response.json()["result"]["structuredContent"]
    return {**found, **found.get("result", {})}


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


# ---------------------------------------------------------------------- rights


async def test_an_account_without_a_rule_is_forbidden_everything(shop: Shop) -> None:
    """MUST: 403 for insufficient permissions."""
    async with shop.nothing_executed():
        refused = await shop.execute(shop.token(groups=["strangers"]), "shop:look")
    assert refused.status_code == 403
    assert "no rule of `auth`" in error_of(refused)
    assert "www-authenticate" not in refused.headers  # to sign in again would not help
    assert (await shop.last_row("denied"))["outcome"] == "denied"


async def test_a_token_without_our_scope_is_told_all_that_it_needs(shop: Shop) -> None:
    """SHOULD: 403 with insufficient_scope, the scopes and the metadata in one challenge."""
    async with shop.nothing_executed():
        refused = await shop.execute(shop.token(scope="openid email"), "shop:look")
    assert refused.status_code == 403
    expected = {"error": "insufficient_scope", "scope": "mcp", "resource_metadata": f"{PUBLIC_URL}{META}/mcp"}
    assert challenge_of(refused) == expected
    assert refused.json()["error"]["data"] == {"code": "insufficient_scope"}
    assert (await shop.last_row("insufficient_scope"))["outcome"] == "denied"


async def test_a_tool_beyond_the_scope_names_all_scopes_at_once(shop: Shop) -> None:
    """SHOULD: all scopes of the operation in a single challenge, with those that the token has."""
    token = shop.token(scope="mcp:read")
    assert (await shop.execute(token, "shop:look")).status_code == 200
    async with shop.nothing_executed():
        refused = await shop.execute(token, "shop:note")
        assert refused.status_code == 403
        assert challenge_of(refused)["scope"] == "mcp:read mcp:write"
        refused = await shop.execute(token, "shop:erase", "/projects/demo/mcp")
        assert (refused.status_code, "www-authenticate" in refused.headers) == (200, False)  # no tool of that project
        refused = await shop.execute(token, "demo:erase", "/projects/demo/mcp")
        assert challenge_of(refused)["scope"] == "mcp:read mcp:destructive"
        assert challenge_of(refused)["resource_metadata"] == f"{PUBLIC_URL}{META}/projects/demo/mcp"
    stepped_up = shop.token(scope="mcp:read mcp:write")
    assert (await shop.execute(stepped_up, "shop:note")).status_code == 200


async def test_a_flat_tool_beyond_the_scope_is_challenged_too(shop: Shop) -> None:
    token, path = shop.token(scope="mcp:read"), "/projects/flat/mcp"
    listed = await shop.send(shop.token(), "tools/list", path=path)
    assert "flat__note" in listed.text
    refused = await shop.send(token, "tools/call", {"name": "flat__note", "arguments": {}}, path)
    assert challenge_of(refused)["scope"] == "mcp:read mcp:write"


async def test_reads_beyond_the_scope_are_challenged(shop: Shop) -> None:
    refused = await shop.send(shop.token(scope="mcp:write"), "resources/list")
    assert refused.status_code == 403
    assert challenge_of(refused)["scope"] == "mcp:read mcp:write"
    assert (await shop.send(shop.token(scope="mcp:read"), "resources/list")).status_code == 200


async def test_a_broader_scope_implies_the_narrower_ones(shop: Shop) -> None:
    """MUST: account for scope hierarchies."""
    for tool in ("shop:look", "shop:note", "shop:erase"):
        assert structured(await shop.execute(shop.token(scope="mcp"), tool))["coats"] == 1


async def test_what_the_rule_itself_does_not_allow_does_not_exist(shop: Shop) -> None:
    """No challenge: no scope would help."""
    token = shop.token(groups=["readers"])
    assert (await shop.execute(token, "shop:look")).status_code == 200
    async with shop.nothing_executed():
        refused = structured(await shop.execute(token, "shop:erase"))
        missing = structured(await shop.execute(shop.token(scope="mcp:read"), "shop:no_such_tool"))
    assert refused["error"]["code"] == missing["error"]["code"] == "unknown_tool"


async def test_a_token_for_a_project_works_there_only(shop: Shop) -> None:
    """MUST: only tokens that are valid for the resource."""
    token = shop.token(aud=f"{PUBLIC_URL}/projects/demo/mcp")
    assert structured(await shop.execute(token, "demo:look", "/projects/demo/mcp"))["coats"] == 1
    async with shop.nothing_executed():
        assert (await shop.execute(token, "shop:look", "/projects/other/mcp")).status_code == 403
        # On the general address it acts for its one project, in which that server is not.
        assert structured(await shop.execute(token, "shop:look"))["error"]["code"] == "unknown_tool"


async def test_rates_count_a_person_whichever_token_it_sends(shop: Shop) -> None:
    who = {"sub": "busy", "groups": ["limited"]}
    first, second = shop.token(**who), shop.token(**who, scope="mcp:read")
    for token in (first, second):
        assert structured(await shop.execute(token, "shop:look"))["coats"] == 1
    async with shop.nothing_executed():
        refused = structured(await shop.execute(first, "shop:look"))
    assert refused["error"]["code"] == "rate_limited"
    assert "auth.claims.limited.rates.calls_per_minute" in json.dumps(refused)
    other = shop.token(sub="calm", groups=["limited"])
    assert structured(await shop.execute(other, "shop:look"))["coats"] == 1


async def test_a_rule_can_ask_for_a_persons_yes(shop: Shop) -> None:
    token = shop.token(groups=["careful"])
    assert structured(await shop.execute(token, "shop:look"))["coats"] == 1
    async with shop.nothing_executed():
        refused = structured(await shop.execute(token, "shop:erase"))
    assert refused["error"]["code"] == "confirmation_required"


async def test_metrics_have_no_label_for_a_person(shop: Shop) -> None:
    """Their number must not grow with those who sign in."""
    for number in range(5):
        await shop.execute(shop.token(sub=f"person-{number}"), "shop:look")
    headers = {"Authorization": f"Bearer {shop.gateway.token}"}
    answer = await shop.http.get(f"{shop.gateway.base_url}/metrics", headers=headers)
    assert "person-" not in answer.text
    assert "@sso" not in answer.text


async def test_large_results_belong_to_the_person(shop: Shop) -> None:
    """A preview's rest is read with the same identity, also with a renewed token, and with no other."""
    stored = await shop.execute(shop.token(), "shop:break", text="x" * 60_000)
    handle = re.search(r"[0-9a-f]{32}", stored.json()["result"]["content"][0]["text"])
    assert handle is not None, stored.text[:500]
    for token, found in (
        (shop.token(jti="new"), True),
        (shop.token(sub="mallory"), False),
        (shop.gateway.token, False),
    ):
        read = await shop.execute(token, "pointsman:result", handle=handle[0])
        assert ("unknown_result" not in read.text) is found, read.text[:300]


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
