"""The owner signs in to a server, by the command and on the page, and everybody sees what it needs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from aiohttp import web

from pointsman.config.loader import load
from pointsman.router.owner.client import OperationError, ask
from tests.gateway_process import gateway_process
from tests.router.cli.commands import run
from tests.router.conftest import audit_rows
from tests.router.downstream.http_parts import until
from tests.router.page.owner import Owner, owner_of
from tests.server_login import server_login
from tests.servers.oauth_mcp import PKCE, OAuthMcp, serving_oauth, signed_in_at

PUBLIC = "https://gateway.example"


@dataclass(frozen=True)
class Office:
    folder: Path
    server: OAuthMcp
    owner: Owner

    async def state(self) -> dict[str, Any]:
        listed = await asyncio.to_thread(ask, self.owner.gateway.state_dir, "servers")
        found: dict[str, Any] = listed["servers"][0]
        return found

    async def logout(self) -> None:
        await asyncio.to_thread(ask, self.owner.gateway.state_dir, "end_sign_in", server="tracker")

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """A modern `tools/call`."""
        gateway = self.owner.gateway
        client = {"protocolVersion": "2026-07-28", "clientInfo": {"name": "t", "version": "1"}}
        meta = {f"io.modelcontextprotocol/{key}": value for key, value in client.items()}
        meta["io.modelcontextprotocol/clientCapabilities"] = {}
        params = {"name": name, "arguments": arguments, "_meta": meta}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28"}
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": name, **gateway.headers}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await self.owner.http.post(gateway.url, json=message, headers=headers)
        result: dict[str, Any] = answer.json()["result"].get("structuredContent", {})
        return result


@pytest.fixture(scope="module")
async def office(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    folder = tmp_path_factory.mktemp("office")
    async with serving_oauth() as server:
        entry = {"url": server.url, "oauth": "auto"}
        config = {"servers": {"tracker": entry}, "listen": {"public_url": PUBLIC}}
        async with gateway_process(folder, config) as gateway, owner_of(gateway) as owner:
            yield Office(folder, server, owner)


@pytest.fixture
async def signed_out(office: Office) -> Office:
    await office.logout()
    return office


async def test_everybody_is_told_that_a_server_needs_sign_in(signed_out: Office) -> None:
    command = "pointsman server login tracker"
    found = await signed_out.state()
    assert (found["state"], command in found["reason"]) == ("needs sign-in", True)
    listed = await run(signed_out.folder, "server", "list")
    assert "needs sign-in" in listed.stdout
    status = await run(signed_out.folder, "status")
    assert "needs sign-in" in status.stdout
    assert command in status.stdout
    doctor = await run(signed_out.folder, "doctor", "--config", str(signed_out.owner.gateway.config_file))
    assert command in doctor.stdout
    discovered = await signed_out.call("tool_discovery", {"query": ["echo"]})
    assert "need sign-in" in discovered["notice"]
    assert "`pointsman server login NAME`" in discovered["notice"]
    called = (await signed_out.call("tool_execute", {"toolKey": "tracker:echo"}))["error"]["message"]
    assert command in called
    assert "The call did not run. Ask the operator" in called
    assert "Try again later" not in called
    executed = await signed_out.call("tool_execute", {"toolKey": "tracker:echo", "arguments": {}})
    assert command in executed["error"]["message"]
    page = (await signed_out.owner.get("/page/servers/tracker")).text
    assert "needs sign-in" in page


async def test_the_command_signs_in_and_out(signed_out: Office) -> None:
    code, out, err = await server_login(signed_out.owner.gateway.state_dir, "tracker")
    assert code == 0, err
    assert "Signed in to `tracker`." in out
    assert (await signed_out.state())["state"] == "running"
    asked = {name: values[0] for name, values in parse_qs(urlsplit(out.split()[0]).query).items()}
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/callback", asked["redirect_uri"])
    executed = await signed_out.call("tool_execute", {"toolKey": "tracker:echo", "arguments": {}})
    assert executed.get("error") is None
    assert signed_out.owner.gateway.token not in repr(signed_out.server.authorization)  # the caller's own stays here
    left = await run(signed_out.folder, "server", "logout", "tracker")
    assert "Signed out" in left.stdout
    assert (await signed_out.state())["state"] == "needs sign-in"
    methods = [row["method"] for row in await audit_rows(signed_out.owner.gateway.state_dir, "--kind", "change")]
    assert {"server/login", "server/logout"} <= set(methods)


async def test_a_sign_in_that_its_authorization_server_has_ended_is_said_by_all_and_logged_once(
    signed_out: Office,
) -> None:
    gateway, server, echo = signed_out.owner.gateway, signed_out.server, {"toolKey": "tracker:echo", "arguments": {}}
    code, _, err = await server_login(gateway.state_dir, "tracker")
    assert code == 0, err
    assert (await signed_out.call("tool_execute", echo)).get("error") is None
    before = len(gateway.stderr)
    server.access.clear()
    server.refresh.clear()
    asked = [signed_out.call("tool_execute", echo) for _ in range(3)]
    answers = await asyncio.gather(*asked, signed_out.call("tool_discovery", {"query": ["echo"]}))
    assert (await signed_out.state())["state"] == "needs sign-in"
    for answer in answers[:3]:
        assert "pointsman server login tracker` (its authorization server has ended it)" in answer["error"]["message"]
        assert "link" not in answer["error"]["message"]
    await until(lambda: "pointsman server login tracker" in gateway.stderr[before:])
    await run(signed_out.folder, "server", "list")  # meanwhile all else of it is read, too
    logged = gateway.stderr[before:]
    assert logged.count("pointsman server login tracker") == 1, logged
    assert "Traceback" not in logged
    assert "ERROR" not in logged


async def test_the_command_waits_for_its_own_answer_only(signed_out: Office) -> None:
    state_dir = signed_out.owner.gateway.state_dir
    begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def browse(link: str) -> None:
        begun.set_result(link)
        redirect = parse_qs(urlsplit(link).query)["redirect_uri"][0]
        async with httpx2.AsyncClient(trust_env=False) as browser:
            for bad in ("?state=guess&code=x", "?code=x", "/more?state=guess", "?state=a&state=b"):
                assert (await browser.get(redirect + bad)).status_code == 404
            answer = await signed_in_at(link)
            assert (await browser.get(redirect, params=answer)).status_code == 200

    code, _, err = await server_login(state_dir, "tracker", browse=browse)
    assert code == 0, err


@pytest.mark.parametrize("name", ["nothing", "trakcer"])
async def test_an_unknown_server_is_named(office: Office, name: str) -> None:
    ran = await run(office.folder, "server", "login", name)
    assert ran.code == 2
    assert f"There is no server `{name}`" in ran.stderr


async def test_the_page_signs_in(signed_out: Office) -> None:
    owner = signed_out.owner
    shown = await owner.post("/page/servers/tracker/login")
    assert shown.status_code == 200, shown.text
    link = re.search(r'href="(http[^"]+/authorize[^"]+)"', shown.text)
    assert link is not None
    answer = await signed_in_at(unescape(link[1]))
    async with httpx2.AsyncClient(trust_env=False) as stranger:  # another browser, which has no cookie
        refused = await stranger.get(f"{owner.gateway.base_url}/page/signed-in", params=answer)
    assert refused.status_code == 403
    rows = await audit_rows(owner.gateway.state_dir, "--kind", "change", "--outcome", "denied")
    assert (rows[-1]["method"], rows[-1]["code"]) == ("server/login", "other_browser")
    assert (await signed_out.state())["state"] == "needs sign-in"
    done = await owner.http.get(f"{owner.gateway.base_url}/page/signed-in", params=answer)
    assert done.status_code == 200
    assert "Signed in to tracker" in done.text
    assert (await signed_out.state())["state"] == "running"
    again = await owner.http.get(f"{owner.gateway.base_url}/page/signed-in", params=answer)
    assert again.status_code == 403


async def key_bound(given: dict[str, Any]) -> web.Response:
    return web.json_response({"access_token": "a", "token_type": "DPoP"})


@pytest.mark.parametrize(
    ("switches", "code"),
    [
        ({"answer_iss": "https://attacker.example"}, "other_issuer"),
        ({"server_metadata": {"authorization_response_iss_parameter_supported": True}}, "other_issuer"),
        ({"server_metadata": {"issuer": "https://honest.example"}}, "other_issuer"),
        ({"server_metadata": {"token_endpoint": "https://10.0.0.1/token"}}, "address_refused"),
        ({"server_metadata": {"token_endpoint": "file:///etc/passwd"}}, "address_refused"),
        ({"named_issuer": "https://169.254.169.254"}, "address_refused"),
        ({"resource_metadata": "https://169.254.169.254/latest"}, "address_refused"),
        ({"resource": "https://bank.example/mcp"}, "other_resource"),
        ({"server_metadata": {PKCE: None}}, "no_pkce"),
        ({"token_answer": key_bound}, "key_bound_token"),
        ({"answer_error": "access_denied"}, "access_denied"),
        ({"answer_error": "<script>"}, "sign_in_failed"),
    ],
)
async def test_a_refused_sign_in_has_a_row_by_either_way(
    signed_out: Office, switches: dict[str, Any], code: str
) -> None:
    before = [(switch, getattr(signed_out.server, switch)) for switch in switches]
    for switch, value in switches.items():
        setattr(signed_out.server, switch, value)
    try:
        await refused_by_command(signed_out)
        await refused_on_page(signed_out)
    finally:
        for switch, value in before:
            setattr(signed_out.server, switch, value)
    rows = await audit_rows(signed_out.owner.gateway.state_dir, "--kind", "change", "--outcome", "denied")
    found = [(row["method"], row["code"], row["serverId"], row["client"]) for row in rows[-2:]]
    assert found == [("server/login", code, "tracker", client) for client in ("pointsman cli", "page")]


async def refused_by_command(office: Office) -> None:
    """What the command asks the gateway, without its process."""
    with pytest.raises(OperationError):
        await sign_in(office.owner.gateway.state_dir)


async def sign_in(state_dir: Path) -> None:
    returns = "http://127.0.0.1:1/callback"
    begun = await asyncio.to_thread(ask, state_dir, "begin_sign_in", server="tracker", redirectUri=returns)
    answer = await signed_in_at(begun["url"])
    state = answer.pop("state")
    await asyncio.to_thread(ask, state_dir, "finish_sign_in", state=state, answer=answer)


async def refused_on_page(office: Office) -> None:
    shown = await office.owner.post("/page/servers/tracker/login")
    link = re.search(r'href="(http[^"]+/authorize[^"]+)"', shown.text)
    if link is None:
        return
    answer = await signed_in_at(unescape(link[1]))
    done = await office.owner.http.get(f"{office.owner.gateway.base_url}/page/signed-in", params=answer)
    assert done.status_code == 403


async def test_the_client_document_is_at_the_public_url(office: Office) -> None:
    answer = await office.owner.get("/oauth/client.json")
    document = answer.json()
    assert document["client_id"] == f"{PUBLIC}/oauth/client.json"
    assert document["client_name"] == "Pointsman"
    returns = [f"{PUBLIC}/page/signed-in", f"{PUBLIC}/oauth/callback", "http://127.0.0.1/callback"]
    assert document["redirect_uris"] == returns
    assert document["token_endpoint_auth_method"] == "none"


async def test_a_client_document_comes_before_a_registration(signed_out: Office) -> None:
    server = signed_out.server
    server.server_metadata = {"client_id_metadata_document_supported": True}
    before = len(server.registered)
    try:
        code, out, err = await server_login(signed_out.owner.gateway.state_dir, "tracker")
    finally:
        server.server_metadata = {}
    assert code == 0, err
    assert parse_qs(urlsplit(out.split()[0]).query)["client_id"] == [f"{PUBLIC}/oauth/client.json"]
    assert len(server.registered) == before


async def test_no_output_holds_a_token(office: Office) -> None:
    await server_login(office.owner.gateway.state_dir, "tracker")
    secrets = [*office.server.access, *office.server.refresh]
    shown = [office.owner.gateway.stderr]
    shown += [(await run(office.folder, *words)).stdout for words in (("status", "--json"), ("server", "list"))]
    shown += [(await office.owner.get(path)).text for path in ("/page/servers/tracker", "/metrics", "/health")]
    assert secrets
    assert not [secret for secret in secrets if any(secret in text for text in shown)]


async def test_a_server_is_added_with_a_sign_in(office: Office) -> None:
    """Without a gateway on its folder, `server test` says that only a gateway signs in."""
    folder = office.folder / "other"
    folder.mkdir()
    file = folder / "pointsman.yaml"
    file.write_text("servers: {}\n")
    added = await run(folder, "server", "add", "far", "--oauth", "https://far.example/mcp", "--config", str(file))
    assert added.code == 0, added.stderr
    assert "pointsman server login far" in added.stderr
    entry = load(file, {}).servers["far"]
    assert entry.oauth is not None
    tried = await run(folder, "server", "test", "far", "--config", str(file))
    assert "only a running gateway signs in" in tried.stderr


async def test_a_server_added_to_a_running_gateway_needs_its_sign_in_and_that_is_no_failure(office: Office) -> None:
    async with serving_oauth() as server:
        file = str(office.owner.gateway.config_file)
        added = await run(office.folder, "server", "add", "far", "--oauth", server.url, "--config", file)
        assert added.code == 0, added.stderr
        assert "Next, sign in to it: `pointsman server login far`." in added.stderr
        code, out, err = await server_login(office.owner.gateway.state_dir, "far")
        assert (code, "Signed in to `far`." in out) == (0, True), err
        removed = await run(office.folder, "server", "remove", "far", "--config", file)
        assert removed.code == 0, removed.stderr


async def test_the_page_adds_a_server_with_a_sign_in_and_edits_that(office: Office) -> None:
    owner, file = office.owner, office.owner.gateway.config_file
    async with serving_oauth() as server:
        typed = {"name": "near", "url": server.url, "oauth": "auto"}
        added = await owner.confirm("/page/servers/add", typed)
        assert added.headers["location"] == "/page/servers/near", added.text
        assert "Next, sign in to <code>near</code> here." in await owner.flash()
        page = (await owner.get("/page/servers/near")).text
        assert '<option value="auto" selected>' in page
        assert "/page/servers/near/login" in page
        same = await owner.post("/page/servers/near/edit", {"title": "", "oauth": "auto"})
        assert "Nothing was changed" in same.text
        assert (await owner.confirm("/page/servers/near/edit", {"title": "", "oauth": "none"})).status_code == 303
        assert load(file, {}).servers["near"].oauth is None
        own = {"url": server.url, "oauth": {"client_id": "mine"}}
        tracker = {"url": office.server.url, "oauth": "auto"}
        owner.gateway.write_config({"servers": {"tracker": tracker, "near": own}, "listen": {"public_url": PUBLIC}})
        await asyncio.to_thread(ask, owner.gateway.state_dir, "reload")
        assert '<option value="own" selected>' in (await owner.get("/page/servers/near")).text
        kept = await owner.confirm("/page/servers/near/edit", {"title": "Near", "oauth": "own"})
        assert kept.status_code == 303
        entry = load(file, {}).servers["near"]
        assert entry.oauth is not None
        assert (entry.name, entry.oauth.client_id) == ("Near", "mine")
        assert (await owner.confirm("/page/servers/near/remove")).status_code == 303
