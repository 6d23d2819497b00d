"""People sign in at an authorization server that others wrote, and use the gateway with what it gave them."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.e2e.authorization_server import (
    AuthorizationServer,
    authorization_server,
    needs_authorization_server,
    sign_in,
)
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import audit_rows
from tests.servers import workshop

pytestmark = needs_authorization_server

CALLBACK = "http://127.0.0.1:9/callback"
SESSION_S = 60.0


class Person:
    """Keeps what the SDK's client is given, and signs in when it is sent to a browser. Fits `TokenStorage`."""

    def __init__(self, login: str) -> None:
        self.login = login
        self.asked: list[dict[str, list[str]]] = []
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        self._came_back = ""

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info

    async def open_browser(self, address: str) -> None:
        self.asked.append(parse_qs(urlsplit(address).query))
        self._came_back = await sign_in(address, CALLBACK, self.login)

    async def callback(self) -> AuthorizationCodeResult:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self._came_back).query).items()}
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))

    def provider(self, url: str) -> OAuthClientProvider:
        metadata: dict[str, Any] = {
            "redirect_uris": [CALLBACK],
            "client_name": "a client",
            "application_type": "native",
            "token_endpoint_auth_method": "none",
        }
        return OAuthClientProvider(
            url, OAuthClientMetadata.model_validate(metadata), self, self.open_browser, self.callback
        )


@dataclass(frozen=True)
class World:
    gateway: GatewayProcess
    server: AuthorizationServer


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("world")
    (folder / "issuer").mkdir()
    port = free_port()
    async with authorization_server(folder / "issuer") as server:
        entry = {"command": sys.executable, "args": ["-S", workshop.__file__, str(folder / "trace")]}
        config = {
            "listen": {"public_url": f"http://127.0.0.1:{port}"},
            "projects": {"demo": {}},
            "servers": {"shop": entry, "own": {**entry, "projects": ["demo"]}},
            "auth": {
                "issuer": server.issuer,
                "name": "corp",
                "claims": {"staff": {"when": {"groups": "staff"}, "projects": ["*"], "servers": ["*"]}},
            },
        }
        async with gateway_process(folder, config, args=("--port", str(port))) as gateway:
            yield World(gateway, server)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def signed_in(person: Person, url: str) -> AsyncIterator[Client]:
    async with (
        asyncio.timeout(SESSION_S),
        httpx2.AsyncClient(auth=person.provider(url), timeout=SESSION_S) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("path", "tool", "suffix"), [("/mcp", "shop:erase", ""), ("/projects/demo/mcp", "own:erase", "@demo")]
)
async def test_a_person_signs_in_and_runs_a_tool(world: World, path: str, tool: str, suffix: str) -> None:
    person, url = Person("alice"), f"{world.gateway.base_url}{path}"
    async with signed_in(person, url) as client:
        answer = await client.call_tool("tool_execute", {"toolKey": tool, "arguments": {}})
    assert not answer.is_error, answer
    [asked] = person.asked
    assert asked["resource"] == [url]
    assert "mcp" in asked["scope"][0].split()
    rows = await audit_rows(world.gateway.state_dir)
    assert (rows[-1]["token"], rows[-1]["outcome"]) == (f"@corp/alice#staff{suffix}", "ok")


async def test_a_token_of_the_same_server_for_another_resource_is_refused(world: World) -> None:
    url = world.gateway.url
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    async with httpx2.AsyncClient() as http:
        for resource, status in ((url, 200), ("https://else.example/mcp", 401), (f"{url}/more", 401)):
            token = await world.server.client_token(resource)
            headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
            answer = await http.post(url, json=body, headers=headers)
            assert answer.status_code == status, answer.text
    assert "issued for another service" in answer.json()["error"]["message"]


async def test_a_client_that_may_only_read_steps_up(world: World) -> None:
    """The SDK's client answers `insufficient_scope` by signing in again with the scopes that the challenge names."""
    person = Person("bob")
    narrow = await world.server.client_token(world.gateway.url, "mcp:read")
    person.tokens = OAuthToken(access_token=narrow, token_type="Bearer", expires_in=600)
    async with signed_in(person, world.gateway.url) as client:
        answer = await client.call_tool("tool_execute", {"toolKey": "shop:erase", "arguments": {}})
    assert not answer.is_error, answer
    [asked] = person.asked
    assert {"mcp:read", "mcp:destructive"} <= set(asked["scope"][0].split())
