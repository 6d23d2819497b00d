"""What a bad server, a bad authorization server or a stranger with a browser can try, and that it leads to nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pointsman.config.sections.server import Server
from pointsman.router.auth.fetch import Reach
from pointsman.router.downstream.connection import ConnectionLostError, SignInNeededError
from pointsman.router.downstream.oauth.discovery import SignInError, find_resource
from pointsman.router.downstream.oauth.documents import (
    Challenge,
    DocumentError,
    authorization_url,
    read_challenge,
    read_resource,
    read_server,
)
from pointsman.router.downstream.oauth.token_source import TokenSource
from tests.router.downstream.http_parts import call_of
from tests.router.downstream.oauth.parts import NAME, Gateway
from tests.servers.oauth_mcp import OAuthMcp, serving_oauth, signed_in_at

ROOT = Path(__file__).parents[4]
REACH = Reach.of("https://mcp.example/mcp")


async def refused(tmp_path: Path, arrange: Callable[[OAuthMcp], object], reason: str) -> OAuthMcp:
    """The sign-in ends with this reason, and no token was asked for."""
    async with serving_oauth() as server:
        arrange(server)
        with pytest.raises(SignInError, match=reason):
            await Gateway(tmp_path, server).sign_in()
    assert not server.asked["token"]
    return server


# ---------------------------------------------------------------------- inside networks


@pytest.mark.parametrize(
    "place",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/",
        "https://[fd00:ec2::254]/",
        "https://2852039166/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_FLUSHALL",
    ],
)
async def test_resource_metadata_inside_a_network_is_not_fetched(tmp_path: Path, place: str) -> None:
    def arrange(server: OAuthMcp) -> None:
        server.resource_metadata = place

    await refused(tmp_path, arrange, "metadata for sign-in cannot be read")


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("http://example.com/metadata", "its URL is not an https URL. If it stays so, ask the server's operator"),
        (
            "https://10.0.0.1/metadata",
            "are reached. If that host is yours, and is the authorization server, set `oauth",
        ),
        ("https://10.0.0.1/`\x1b[2J\u202e" + "x" * 3000, "its URL has more than 2048 characters. If it stays so"),
    ],
)
async def test_metadata_that_cannot_be_read_are_named_to_the_owner_with_a_next_step(place: str, why: str) -> None:
    with pytest.raises(SignInError) as found:
        await find_resource("https://mcp.example/mcp", Challenge(place), Reach.of("https://mcp.example/mcp"))
    assert why in str(found.value)
    assert "/metadata" not in str(found.value)
    told = found.value.for_owner()
    assert f"The address concerned: `{place[:17]}" in told
    assert len(told) < 600
    assert "\x1b" not in told
    assert "\u202e" not in told


async def test_an_authorization_server_without_metadata_is_named_to_the_owner(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.metadata_places = ("/nowhere",)
        with pytest.raises(SignInError, match=r"it has no metadata\. If it stays so, ask") as found:
            await Gateway(tmp_path, server).sign_in()
        assert found.value.for_owner().endswith(f"The address concerned: `{server.issuer}`.")


async def test_a_registration_that_was_refused_says_what_to_set(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.registration_status = 400
        with pytest.raises(SignInError, match=r"Register one there, and set `oauth\.client_id`") as found:
            await Gateway(tmp_path, server).sign_in()
        assert f"`{server.base}/register`" in found.value.for_owner()


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://169.254.169.254/token",
        "javascript:alert(1)",
        "data:text/html,x",
        "ftp://example.com/",
        "https://user:pass@example.com/",
        "https://example.com/#fragment",
        "https://example.com/\r\nX: y",
        "//example.com/authorize",
        "",
        7,
    ],
)
@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
def test_an_endpoint_that_is_not_plain_https_is_refused(name: str, endpoint: object) -> None:
    good = {"issuer": "https://as.example", "token_endpoint": "https://as.example/token"}
    with pytest.raises(DocumentError, match=name):
        read_server(good | {name: endpoint}, "https://as.example", Reach.of("https://mcp.example/mcp"))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("client_id=evil&state=evil", r"sets what the gateway itself must set \(`client_id`, `state`\)"),
        ("tenant=1&redirect%5Furi=https://evil.example", r"\(`redirect_uri`\)"),
        ("scope", r"\(`scope`\)"),
        ("code_challenge=", r"\(`code_challenge`\)"),
        ("&".join(f"p{n}=1" for n in range(200)), "more than 50 parameters"),
    ],
)
def test_an_authorization_endpoint_cannot_set_our_parameters(query: str, reason: str) -> None:
    """Else they would be sent twice, and the authorization server would choose (RFC 6749, 3.1)."""
    with pytest.raises(DocumentError, match=reason):
        read_server(_authorizing_at(f"https://as.example/authorize?{query}"), "https://as.example", REACH)


def test_parameters_of_the_endpoint_itself_are_kept_and_not_repeated() -> None:
    place = "https://as.example/authorize?tenant=1&prompt=login"
    endpoint = read_server(_authorizing_at(place), "https://as.example", REACH).authorization_endpoint
    assert endpoint == place
    assert authorization_url(place, [("state", "s"), ("prompt", "consent")]) == f"{place}&state=s"


def _authorizing_at(endpoint: str) -> dict[str, str]:
    return {
        "issuer": "https://as.example",
        "token_endpoint": "https://as.example/token",
        "authorization_endpoint": endpoint,
    }


def test_loopback_endpoints_are_for_servers_on_loopback() -> None:
    document = {"issuer": "http://127.0.0.1:9", "token_endpoint": "http://127.0.0.1:9/token"}
    assert read_server(document, "http://127.0.0.1:9", Reach.of("http://localhost:1/mcp")).token_endpoint
    with pytest.raises(DocumentError, match="https"):
        read_server(document, "http://127.0.0.1:9", Reach.of("https://mcp.example/mcp"))


async def test_a_token_endpoint_inside_a_network_gets_no_code(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.server_metadata = {"token_endpoint": "https://10.0.0.1/token"}
        with pytest.raises(SignInError, match="inside a network"):
            await Gateway(tmp_path, server).sign_in()


def test_a_token_is_never_sent_over_plain_http() -> None:
    with pytest.raises(ValueError, match="https"):
        Server.model_validate({"url": "http://mcp.example/mcp", "oauth": "auto"})


# ---------------------------------------------------------------------- who answers


def test_metadata_of_another_resource_is_refused() -> None:
    for resource in ("https://evil.example/mcp", "https://mcp.example/other", "https://mcp.example/mcpx", None):
        with pytest.raises(DocumentError, match="another resource"):
            read_resource({"resource": resource, "authorization_servers": ["https://a"]}, "https://mcp.example/mcp")


async def test_a_server_that_names_the_resource_of_another_gets_no_token_for_it(tmp_path: Path) -> None:
    def arrange(server: OAuthMcp) -> None:
        server.resource = "https://bank.example/mcp"

    found = await refused(tmp_path, arrange, "another resource")
    assert not found.asked["register"]


async def test_metadata_of_another_issuer_is_not_used(tmp_path: Path) -> None:
    def arrange(server: OAuthMcp) -> None:
        server.server_metadata = {"issuer": "https://honest.example"}

    found = await refused(tmp_path, arrange, "another issuer")
    assert not found.asked["register"]


@pytest.mark.parametrize("error", [None, "access_denied<script>"])
async def test_an_answer_of_another_issuer_is_not_used_or_shown(tmp_path: Path, error: str | None) -> None:
    async with serving_oauth() as server:
        server.answer_iss, server.answer_error = "https://attacker.example", error
        with pytest.raises(SignInError, match="does not come from the authorization server") as refusal:
            await Gateway(tmp_path, server).sign_in()
    assert "script" not in str(refusal.value)
    assert not server.asked["token"]


async def test_a_code_goes_to_the_server_that_the_person_was_sent_to(tmp_path: Path) -> None:
    """A mix-up: between begin and end the MCP server names another authorization server."""
    async with serving_oauth() as honest, serving_oauth() as attacker:
        gateway = Gateway(tmp_path, honest)
        url, _ = await gateway.begin()
        answer = await signed_in_at(url)
        honest.server_metadata = {"token_endpoint": f"{attacker.base}/token", "issuer": attacker.issuer}
        await gateway.finish(answer)
    assert not attacker.asked["token"]
    assert len(honest.grants("authorization_code")) == 1


async def test_an_error_of_the_server_is_not_repeated(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.answer_error = "<img src=x onerror=alert(1)>"
        with pytest.raises(SignInError) as refusal:
            await Gateway(tmp_path, server).sign_in()
    assert "img" not in str(refusal.value)


async def test_a_code_for_another_sign_in_is_not_accepted(tmp_path: Path) -> None:
    """PKCE: a stranger's code, brought to our callback with the right state, cannot be redeemed."""
    async with serving_oauth() as server:
        victim, stranger = Gateway(tmp_path, server), Gateway(tmp_path, server)
        mine, _ = await victim.begin()
        theirs, _ = await stranger.begin()
        answer = await signed_in_at(mine)
        answer["code"] = (await signed_in_at(theirs))["code"]
        with pytest.raises(SignInError, match="invalid_grant"):
            await victim.finish(answer)


# ---------------------------------------------------------------------- large, slow and broken answers


def says(body: bytes, status: int = 200, kind: str = "application/json") -> Callable[[Any], Awaitable[web.Response]]:
    async def answer(given: Any) -> web.Response:
        return web.Response(body=body, status=status, content_type=kind)

    return answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (says(b'{"access_token": "' + b"x" * 70_000 + b'", "token_type": "Bearer"}'), "more than 65536 bytes"),
        (says(b'{"access_token": "' + b"x" * 20_000 + b'", "token_type": "Bearer"}'), "no bearer token"),
        (says(b'{"access_token": "a\\r\\nX-Evil: y", "token_type": "Bearer"}'), "no bearer token"),
        (says(b'{"access_token": "a b", "token_type": "Bearer"}'), "no bearer token"),
        (says(b'{"access_token": "a", "token_type": "mac"}'), "no bearer token"),
        (says(b'{"access_token": "a", "token_type": "DPoP"}'), "bound to a key .*oauth.client_id"),
        (says(b'{"access_token": "", "token_type": "Bearer"}'), "no bearer token"),
        (says(b'{"access_token": ["a"], "token_type": "Bearer"}'), "no bearer token"),
        (says(b"{}"), "no bearer token"),
        (says(b"[]"), "not a JSON object"),
        (says(b"<html>", kind="text/html"), "not JSON"),
        (says(b'{"error": "<script>alert(1)</script>"}', 400), r"\(HTTP 400\)"),
        (says(b'{"error": "invalid_client"}', 401), r"\(invalid_client\)"),
        (says(b"", 302), "redirects"),
    ],
)
async def test_a_broken_token_answer_is_refused(
    tmp_path: Path, answer: Callable[[Any], Awaitable[web.Response]], reason: str
) -> None:
    async with serving_oauth() as server:
        server.token_answer = answer
        with pytest.raises(SignInError, match=reason):
            await Gateway(tmp_path, server).sign_in()
        with pytest.raises(SignInNeededError):
            async with Gateway(tmp_path, server).connected():
                pass


async def test_a_token_endpoint_that_never_answers_costs_its_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman.router.downstream.oauth.tokens.TOKEN_S", 0.2)

    async def never(given: Any) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        async with gateway.connected() as connection:
            server.expire_all()
            server.token_answer = never
            with pytest.raises(ConnectionLostError, match="within"):
                await connection.request(call_of("echo"))


@pytest.mark.parametrize(
    "metadata",
    [{"padding": "x" * 70_000}, {"scopes_supported": ["s" * 300] * 300}],
    ids=["too large", "scopes that are none"],
)
async def test_a_huge_document_is_refused(tmp_path: Path, metadata: dict[str, Any]) -> None:
    def arrange(server: OAuthMcp) -> None:
        server.server_metadata = metadata

    await refused(tmp_path, arrange, "more than 65536 bytes")


@pytest.mark.parametrize(
    ("registration", "reason"),
    [
        ({"client_id": None}, "without a client id"),
        ({"client_id": "x" * 3000}, "without a client id"),
        ({"token_endpoint_auth_method": "private_key_jwt"}, "cannot be used"),
        ({"token_endpoint_auth_method": "client_secret_basic", "client_secret": None}, "cannot be used"),
    ],
)
async def test_a_broken_registration_is_refused(tmp_path: Path, registration: dict[str, Any], reason: str) -> None:
    def arrange(server: OAuthMcp) -> None:
        server.registration = registration

    await refused(tmp_path, arrange, reason)


@pytest.mark.parametrize(
    "header",
    ["", "Basic realm=x", "Bearer", "a" * 9000, "Bearer " + 'a="' * 2000, "Bearer " + "a" * 8000, 'Bearer x="\\' * 500],
)
def test_a_challenge_that_says_nothing_says_nothing(header: str) -> None:
    said = read_challenge(header)
    assert (said.resource_metadata, said.scope, said.error) == (None, None, None)


# ---------------------------------------------------------------------- tokens at rest, and the end of a process


async def test_a_sealed_sign_in_cannot_be_moved_to_another_server_or_holder(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in("ann")
        ((key, entry),) = gateway.values.list("oauth/credential/").items()
        assert "ann" not in key
        gateway.values.put(f"oauth/credential/{NAME}/", entry.value)
        with pytest.raises(SignInNeededError, match="key that"):
            async with gateway.connected():
                pass


KILLED = """
import asyncio, sys
from pathlib import Path
from pointsman.config.sections.server import Server
from pointsman.router.downstream.oauth.settings import OAuthSettings
from pointsman.router.downstream.oauth.store import SignInStore
from pointsman.router.downstream.oauth.token_source import TokenSource
from pointsman.router.state.sqlite_values import SqliteKeyValues
url, folder, key, name = sys.argv[1:]
settings = OAuthSettings.of(Server(url=url, oauth={}, era="modern"))
store = SignInStore(SqliteKeyValues(Path(folder)), [key])
source = TokenSource(name, settings, store, lease_s=1.0)
asyncio.run(source.after_refusal(sys.stdin.readline().strip(), 401, None))
"""


async def test_a_gateway_that_is_killed_during_a_renewal_blocks_no_other(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def hold(given: Any) -> None:
        asked.set()
        await asyncio.sleep(0 if server.token_answer is None else 3600)

    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        used = f"Bearer {next(iter(server.access))}"
        server.token_answer = hold
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", KILLED, server.url, str(tmp_path), "k" * 32, NAME),
            stdin=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stdin is not None
        process.stdin.write(f"{used}\n".encode())
        async with asyncio.timeout(60):
            await asked.wait()
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        server.token_answer = None
        server.expire_all()
        source = TokenSource(NAME, gateway.source._settings, gateway.store, lease_s=1.0)
        renewed = await source.after_refusal(used, 401, None)
    assert renewed == f"Bearer {next(iter(server.access))}"


async def test_a_logout_during_a_renewal_stays_a_logout(tmp_path: Path) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def hold(given: Any) -> None:
        asked.set()
        await go.wait()

    async with serving_oauth() as server:
        server.server_metadata = {"revocation_endpoint": None}
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        async with gateway.connected() as connection:
            server.expire_all()
            server.token_answer = hold
            call = asyncio.create_task(connection.request(call_of("echo")))
            await asked.wait()
            await gateway.sign_ins.forget(NAME, gateway.entry)
            go.set()
            with pytest.raises(ConnectionLostError):
                await call
        assert await gateway.sign_ins.listed(NAME) == []
