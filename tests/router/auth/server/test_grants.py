"""Grants in daily life: the SDK's client signs in and calls tools, the owner lists and revokes, replicas agree."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from tests.e2e.client import BOTH_ERAS, Assistant, Mode
from tests.gateway_process import GatewayProcess, gateway_process
from tests.program import run_program
from tests.router.auth.server.office import CALLBACK, Office, Visitor, office
from tests.router.auth.server.test_clients import documents
from tests.router.page.owner import Owner, owner_of

REPLICAS = {"state": {"replicas": True}}


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    async with office(tmp_path_factory.mktemp("office"), REPLICAS) as opened:
        await opened.sign_in()
        yield opened


@pytest.fixture(scope="module")
async def owner(desk: Office) -> AsyncIterator[Owner]:
    """The owner's browser at the page."""
    async with owner_of(desk.gateway) as signed_in:
        yield signed_in


class Storage:
    """What an application keeps."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Application:
    """An application with the SDK's client, whose user is the owner."""

    def __init__(self, desk: Office) -> None:
        self.desk = desk
        self.storage = Storage()
        self.asked = 0  # times that the user was asked
        self._answer = AuthorizationCodeResult(code="", state=None)
        metadata = OAuthClientMetadata(client_name="SDK application", redirect_uris=[AnyUrl(CALLBACK)])
        self.provider = OAuthClientProvider(desk.gateway.url, metadata, self.storage, self._redirect, self._callback)

    @asynccontextmanager
    async def connected(self, mode: Mode) -> AsyncIterator[Assistant]:
        async with (
            asyncio.timeout(60),
            httpx2.AsyncClient(auth=self.provider, timeout=60) as http,
            Client(streamable_http_client(self.desk.gateway.url, http_client=http), mode=mode) as client,
        ):
            yield Assistant(client)

    async def _redirect(self, url: str) -> None:
        self.asked += 1
        visitor = Visitor(self.desk, "", CALLBACK)
        answer = await visitor.consent(await self.desk.http.get(url))
        given = parse_qs(urlsplit(answer.headers["location"]).query)
        self._answer = AuthorizationCodeResult(code=given["code"][0], state=given["state"][0], iss=given["iss"][0])

    async def _callback(self) -> AuthorizationCodeResult:
        return self._answer


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_the_sdks_client_signs_in_calls_tools_refreshes_and_is_revoked(desk: Office, mode: Mode) -> None:
    application = Application(desk)
    async with application.connected(mode) as assistant:
        assert await assistant.tool_names() == ["tool_discovery", "tool_execute"]
        assert await assistant.found("paint an object")
        assert await assistant.text("shop:paint", object="door") == "paint done"
    first = application.storage.tokens
    assert first is not None
    assert application.storage.client is not None

    application.provider.context.token_expiry_time = 1.0  # as if an hour had passed
    async with application.connected(mode) as assistant:
        assert await assistant.text("shop:colour") == "none"
    second = application.storage.tokens
    assert second is not None
    assert second.access_token != first.access_token
    assert application.asked == 1  # refreshed without its user

    grant = desk.command("grants")["grants"][0]
    assert grant["client"] == "SDK application"
    desk.command("revoke_grant", grant=grant["id"])
    visitor = Visitor(desk, "", CALLBACK)
    assert (await visitor.initialize(second.access_token)).status_code == 401
    assert (await visitor.refresh(second.refresh_token or "")).status_code == 400


async def test_a_client_with_a_metadata_document_signs_in(desk: Office) -> None:
    document = {"client_name": "Documented", "client_id": "BASE/good", "redirect_uris": ["http://127.0.0.1/callback"]}
    async with documents(good=document) as base:
        visitor = Visitor(desk, f"{base}/good", CALLBACK)
        asked = await visitor.ask()
        assert "Documented asks for access" in asked.text
        assert "<strong>127.0.0.1</strong>" in asked.text  # who vouches for it
        tokens = await visitor.redeem(visitor.answer(await visitor.consent(asked))["code"])
    assert (await visitor.initialize(tokens.json()["access_token"])).status_code == 200
    assert desk.command("grants")["grants"][0]["clientId"] == visitor.client_id


async def test_the_owner_sees_and_revokes_grants_on_the_page(desk: Office, owner: Owner) -> None:
    tokens = await (visitor := await desk.register(client_name="On the page")).tokens()
    shown = (await owner.get("/page/tokens")).text
    assert "On the page" in shown
    grant = desk.command("grants")["grants"][0]["id"]
    revoked = await owner.confirm(f"/page/grants/{grant}/revoke")
    assert revoked.status_code == 303
    assert (await visitor.initialize(tokens["access_token"])).status_code == 401
    assert await owner.flash() == "The access of On the page is revoked."
    assert "On the page" not in (await owner.get("/page/tokens")).text
    assert (await owner.post("/page/grants/nothing/revoke")).status_code == 404


async def test_the_commands_list_and_revoke_grants(desk: Office, tmp_path: Path) -> None:
    await (await desk.register(client_name="By command")).tokens(project="attic")
    grant = desk.command("grants")["grants"][0]["id"]
    listed = await _pointsman(desk, "grant", "list")
    [line] = [line for line in listed.splitlines() if grant in line]
    assert line.split()[:5] == [grant, "By", "command", "127.0.0.1:43117", "attic"]
    assert (await _pointsman(desk, "grant", "revoke", grant)) == ""
    assert grant not in await _pointsman(desk, "grant", "list")
    assert "No grant `" in await _pointsman(desk, "grant", "revoke", grant, code=2)
    assert (await _pointsman(desk, "grant", "sign-in")).startswith(f"{desk.base}/oauth/sign-in?code=")


async def test_replicas_know_tokens_and_revocations_of_one_another(desk: Office) -> None:
    visitor = await desk.register(client_name="Everywhere")
    tokens = await visitor.tokens()
    folder = desk.gateway.config_file.parent
    async with gateway_process(folder, desk.settings, token=desk.gateway.token) as other:
        elsewhere = Visitor(Office(other, desk.http), visitor.client_id, CALLBACK)
        assert (await elsewhere.initialize(tokens["access_token"])).status_code == 200
        fresh = (await elsewhere.refresh(tokens["refresh_token"])).json()
        assert (await visitor.initialize(fresh["access_token"])).status_code == 200
        stolen = await visitor.refresh(tokens["refresh_token"])  # used there, used again here
        assert stolen.json()["error"] == "invalid_grant"
        await _until_refused(elsewhere, fresh["access_token"])
        await _until_refused(visitor, fresh["access_token"])


async def test_while_clients_cannot_sign_in_the_commands_say_so(desk: Office) -> None:
    tokens = await (visitor := await desk.register(client_name="Waits")).tokens()
    [line] = [line for line in (await _pointsman(desk, "grant", "list")).splitlines() if "Waits" in line]
    assert line.split()[1:5] == ["Waits", "127.0.0.1:43117", "-", "*"]  # without a project
    desk.gateway.write_config({**desk.settings, "listen": {"drain_s": 0}})
    await desk.gateway.until_logged("clients no longer sign in at this gateway")
    refused = await _pointsman(desk, "grant", "sign-in", code=1)
    assert "Clients cannot sign in at this gateway: `listen.public_url` is no longer set." in refused
    listed = await _pointsman(desk, "grant", "list", notes=True)
    assert "No grant is accepted now" in listed
    assert (await visitor.initialize(tokens["access_token"])).status_code == 401
    desk.gateway.write_config(desk.settings)
    await desk.gateway.until_logged("grants for this address are accepted again")
    assert (await visitor.initialize(tokens["access_token"])).status_code == 200


async def _until_refused(visitor: Visitor, access: str) -> None:
    async with asyncio.timeout(30):
        while (await visitor.initialize(access)).status_code != 401:
            await asyncio.sleep(0.05)


async def _pointsman(desk: Office, *words: str, code: int = 0, notes: bool = False) -> str:
    gateway: GatewayProcess = desk.gateway
    ended = await run_program(
        *(sys.executable, "-P", "-m", "pointsman", *words, "--state-dir", str(gateway.state_dir)),
        cwd=gateway.state_dir,
        limit_s=60,
    )
    assert ended.code == code, ended.err
    return ended.err if code or notes else ended.out
