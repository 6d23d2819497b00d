"""The authorization server without HTTP: what it knows of grants while they end, and without its store."""

from __future__ import annotations

import base64
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace
from starlette.applications import Starlette

from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.config.sections.value_types import SCOPES, Scope
from pointsman.core.errors import SignInUnavailableError, UnauthorizedError
from pointsman.router.audit.journal import Journal
from pointsman.router.audit.log import AuditLog
from pointsman.router.auth.server.endpoints import oauth_endpoints
from pointsman.router.auth.server.requests import AuthorizationRequest, Client, ClientError, RequestError
from pointsman.router.auth.server.server import AuthorizationServer, Choice
from pointsman.router.auth.sign_in import Access
from pointsman.router.state.key_values import StateAwayError
from pointsman.router.state.sqlite_values import FILE, SqliteKeyValues

LISTEN = {"public_url": "https://mcp.example"}
AUTH = {"auth": [{"name": "corp", "issuer": "https://id.example", "audience": "https://mcp.example/mcp"}]}
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
CLIENT = Client("https://app.example/client", "Client", ("https://app.example/cb",), "app.example")
ASKED = AuthorizationRequest(
    CLIENT, "https://app.example/cb", None, CHALLENGE, "https://mcp.example/mcp", None, ("read",)
)


def _server(folder: Path, clock: Any = None) -> AuthorizationServer:
    config = GatewayConfig.model_validate({"listen": LISTEN})
    audit = AuditLog(Journal(folder / "audit"))
    more = {} if clock is None else {"clock": clock}
    values = SqliteKeyValues(folder, **more)
    return AuthorizationServer(values, CurrentConfig(config), audit, ["k" * 32], shared=False, **more)


async def _tokens(server: AuthorizationServer, expires: float = 0.0) -> Any:
    url = await server.allow(ASKED, Choice(("",), ("*",), ("read",), expires))
    code = url.partition("code=")[2].partition("&")[0]
    return await server.exchange({"code": code, "client_id": CLIENT.id, "code_verifier": VERIFIER})


async def test_a_grant_that_is_revoked_while_it_is_looked_up_is_not_known_again(tmp_path: Path) -> None:
    server = _server(tmp_path)
    tokens = await _tokens(server)
    [grant] = await server.grants()
    assert server.rights_of(grant.identity) is not None
    ended: list[str] = []
    server.revoked = ended.append
    assert await server.revoke(grant, client="test")
    server._keep(grant)  # what a look-up that began before the revocation does at its end
    assert server.rights_of(grant.identity) is None
    assert ended == [grant.identity]
    with pytest.raises(UnauthorizedError):
        await server.identify(tokens["access_token"])


async def test_a_grant_ends_at_its_time(tmp_path: Path) -> None:
    now = [1000.0]
    server = _server(tmp_path, lambda: now[0])
    tokens = await _tokens(server, expires=1600.0)
    identity = await server.identify(tokens["access_token"])
    assert (identity.expires, identity.rights.scopes) == (1600.0, ("read",))
    now[0] = 1600.0
    assert server.rights_of(identity.id) is None
    with pytest.raises(UnauthorizedError):
        await server.identify(tokens["access_token"])


async def test_a_server_that_was_restarted_knows_its_grants(tmp_path: Path) -> None:
    tokens = await _tokens(_server(tmp_path))
    again = _server(tmp_path)
    identity = await again.identify(tokens["access_token"])
    assert again.rights_of(identity.id) == identity.rights


async def test_without_its_store_nobody_signs_in_and_nobody_has_to_sign_in_again(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()  # no file can be there
    server = _server(tmp_path)
    with pytest.raises(SignInUnavailableError):
        await server.identify("ptm_at_" + "a" * 43)
    with pytest.raises(StateAwayError):
        await server.refresh({"refresh_token": "ptm_rt_" + "a" * 43, "client_id": "c"})
    with pytest.raises(RequestError):
        await server.allow(ASKED, Choice(("",), ("*",), ("read",), 0.0))


async def test_a_grant_is_for_the_address_at_which_it_was_given(tmp_path: Path) -> None:
    server = _server(tmp_path)
    tokens = await _tokens(server)
    refresh = {"refresh_token": tokens["refresh_token"], "client_id": CLIENT.id}
    for changed in ({"listen": {"public_url": "https://other.example"}}, {}, {**AUTH, "listen": LISTEN}):
        server._current.replace(GatewayConfig.model_validate(changed))
        [grant] = await server.grants()
        assert not server.is_accepted(grant)
        with pytest.raises(UnauthorizedError, match="Sign in again"):
            await server.identify(tokens["access_token"])
        with pytest.raises(ClientError) as refused:
            await server.refresh(refresh)
        assert refused.value.code == "invalid_grant"
        assert bool(server.off) == (server.issuer == "")
    server._current.replace(GatewayConfig.model_validate({"listen": LISTEN}))
    assert server.off == ""
    assert await server.identify(tokens["access_token"])
    assert await server.refresh(refresh)  # refused before, and not used up


async def test_an_access_token_with_fewer_scopes_ends_with_its_grant(tmp_path: Path) -> None:
    server = _server(tmp_path)
    url = await server.allow(ASKED, Choice(("",), ("*",), ("read", "write"), 0.0))
    code = url.partition("code=")[2].partition("&")[0]
    tokens = await server.exchange({"code": code, "client_id": CLIENT.id, "code_verifier": VERIFIER})
    asked = {"refresh_token": tokens["refresh_token"], "client_id": CLIENT.id, "scope": "mcp:read"}
    narrow = await server.identify((await server.refresh(asked))["access_token"])
    wide = await server.identify(tokens["access_token"])
    assert (narrow.rights.scopes, wide.rights.scopes) == (("read",), ("read", "write"))
    assert narrow.id == f"{wide.id}#read"
    assert server.rights_of(narrow.id) == narrow.rights
    [grant] = await server.grants()
    assert {narrow.id, wide.id} <= set(grant.identities())
    ended: list[str] = []
    server.revoked = ended.append
    await server.revoke(grant, client="test")
    assert sorted(ended) == [wide.id, narrow.id]
    assert server.rights_of(narrow.id) is None


@pytest.mark.parametrize(
    ("asked", "given", "possible"),
    [
        (("read",), ("read",), SCOPES),
        (("read", "write"), ("read",), ("read", "destructive")),  # the owner has refused `write`
        (SCOPES, ("read",), ("read",)),
        (SCOPES, SCOPES, SCOPES),
        ((), ("read",), ("read",)),  # of an earlier version
    ],
)
async def test_a_client_could_get_what_the_owner_has_not_refused(
    tmp_path: Path, asked: tuple[Scope, ...], given: tuple[Scope, ...], possible: tuple[Scope, ...]
) -> None:
    server = _server(tmp_path)
    url = await server.allow(replace(ASKED, scopes=asked), Choice(("",), ("*",), given, 0.0))
    code = url.partition("code=")[2].partition("&")[0]
    tokens = await server.exchange({"code": code, "client_id": CLIENT.id, "code_verifier": VERIFIER})
    found = await server.identify(tokens["access_token"])
    widest = server.widest(found.id)
    rights = server.rights_of(widest)
    assert rights is not None
    assert (rights.scopes, widest == found.id) == (possible, possible == given)
    assert server.widest("@sso/alice#staff") == "@sso/alice#staff"
    [grant] = await server.grants()
    await server.revoke(grant, client="test")
    assert (server.rights_of(widest), server.widest(found.id)) == (None, found.id)


async def test_a_flood_of_registrations_is_told_when_to_come_back_and_writes_few_rows(tmp_path: Path) -> None:
    server = _server(tmp_path)
    app = Starlette(routes=oauth_endpoints(server, lambda request: None, lambda endpoint: endpoint))
    asked = {"redirect_uris": ["https://app.example/cb"]}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="https://mcp.example") as http:
        answers = [await http.post("/oauth/register", json=asked) for _ in range(100)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) > 50
    assert 1 <= int(refused[0].headers["retry-after"]) <= 10
    assert f"Try again in {refused[0].headers['retry-after']} s" in refused[0].json()["error_description"]
    assert server._audit.last_seq <= 100 - len(refused) + 5


def test_a_reload_says_what_it_means_for_clients(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    plain, at_home = GatewayConfig(), GatewayConfig.model_validate({"listen": LISTEN})
    moved = GatewayConfig.model_validate({"listen": {"public_url": "https://other.example"}})
    access = Access(plain)
    access.configure(at_home)  # the gateway started without an address
    access = Access(at_home)
    access.add_own_server(_server(tmp_path), at_home)
    for config in (at_home, moved, plain, at_home):
        access.configure(config)
    assert [row.message.partition(";")[0].partition(":")[0] for row in caplog.records] == [
        "clients can sign in at https",
        "clients sign in at https",
        "clients no longer sign in at this gateway",
        "clients can sign in at https",
    ]
    assert "after the next start" in caplog.messages[0]
    assert "those that signed in at https://mcp.example have to sign in again" in caplog.messages[1]


def test_only_what_looks_like_an_access_token_is_looked_up(tmp_path: Path) -> None:
    server = _server(tmp_path)
    assert server.may_know("ptm_at_" + "a" * 43)
    for other in ("", "ptm_" + "a" * 43, "ptm_rt_" + "a" * 43, "ptm_at_" + "a" * 44, "eyJ" + "a" * 47):
        assert not server.may_know(other)
