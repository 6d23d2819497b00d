"""A gateway at which clients sign in, its owner, and a client without a library: plain HTTP, so that it can cheat."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2

from pointsman.router.owner.client import ask
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import audit_rows, workshop
from tests.router.page.owner import hidden_fields

CALLBACK = "http://127.0.0.1:43117/callback"


def free_port() -> int:
    """A port that is free now: the gateway has to know its own address before it starts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def office(folder: Path, config: Mapping[str, Any] | None = None) -> AsyncIterator[Office]:
    port = free_port()
    settings = {
        "servers": {
            "shop": workshop(folder / "trace", trust_annotations=True),
            "cellar": workshop(folder / "trace", projects=["attic"]),
        },
        "projects": {"attic": {}, "roof": {}},
        "listen": {"public_url": f"http://127.0.0.1:{port}", "drain_s": 0},
        **(config or {}),
    }
    args = ["--port", str(port)]
    async with gateway_process(folder, settings, args=args) as gateway, httpx2.AsyncClient(timeout=30) as http:
        yield Office(gateway, http, settings)


@dataclass
class Office:
    """`http` is the owner's browser; clients and strangers use `stranger`."""

    gateway: GatewayProcess
    http: httpx2.AsyncClient
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def base(self) -> str:
        return self.gateway.base_url

    def command(self, operation: str, **parameters: Any) -> Any:
        return ask(self.gateway.state_dir, operation, **parameters)

    async def sign_in(self) -> None:
        entered = await self.http.get(self.command("grant_link")["url"])
        assert entered.status_code in (200, 303), entered.text

    async def register(self, **metadata: Any) -> Visitor:
        """A client that registers itself."""
        asked = {"client_name": "Test client", "redirect_uris": [CALLBACK], **metadata}
        answer = await stranger("POST", f"{self.base}/oauth/register", json=asked)
        assert answer.status_code == 201, answer.text
        return Visitor(self, answer.json()["client_id"], asked["redirect_uris"][0])

    async def rows(self) -> list[tuple[str, str, str]]:
        """Method, outcome and code of the rows about sign-ins."""
        rows = await audit_rows(self.gateway.state_dir, "--kind", "change")
        return [(row["method"], row["outcome"], row["code"]) for row in rows if row["method"].startswith("oauth/")]


async def stranger(method: str, url: str, **more: Any) -> httpx2.Response:
    """A request of somebody without cookies."""
    async with httpx2.AsyncClient(timeout=30) as http:
        return await http.request(method, url, **more)


@dataclass
class Visitor:
    """A client that asks for access."""

    office: Office
    client_id: str
    redirect_uri: str
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    state: str = field(default_factory=lambda: secrets.token_urlsafe(8))

    @property
    def challenge(self) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()

    def query(self, **changed: str | None) -> dict[str, str]:
        fields: dict[str, str | None] = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": self.challenge,
            "code_challenge_method": "S256",
            "resource": f"{self.office.base}/mcp",
            **changed,
        }
        return {name: value for name, value in fields.items() if value is not None}

    async def ask(self, **changed: str | None) -> httpx2.Response:
        """Open the request in the owner's browser."""
        return await self.office.http.get(f"{self.office.base}/oauth/authorize?{urlencode(self.query(**changed))}")

    async def consent(self, asked: httpx2.Response, **chosen: Any) -> httpx2.Response:
        """Send the form of the consent page. Extra headers by `headers`."""
        assert asked.status_code == 200, asked.text
        headers = {"Origin": self.office.base, **chosen.pop("headers", {})}
        reach = "these" if "servers" in chosen else "all"
        form = {**hidden_fields(asked.text), **_widest(asked.text), **choices(asked.text), "reach": reach}
        form |= {"decision": "allow", **chosen}
        return await self.office.http.post(f"{self.office.base}/oauth/authorize", data=form, headers=headers)

    async def code(self, **chosen: Any) -> str:
        """The code that a consent gives."""
        answered = await self.consent(await self.ask(**chosen.pop("query", {})), **chosen)
        return self.answer(answered)["code"]

    def answer(self, response: httpx2.Response) -> dict[str, str]:
        """What the redirect to this client says. `iss` and `state` are checked as a client does."""
        assert response.status_code == 303, response.text
        target = response.headers["location"]
        assert target.startswith(self.redirect_uri), target
        answer = {name: value for name, [value] in parse_qs(urlsplit(target).query).items()}
        assert answer.pop("iss") == self.office.base
        assert answer.pop("state") == self.state
        return answer

    async def redeem(self, code: str, **changed: str | None) -> httpx2.Response:
        fields: dict[str, str | None] = {
            "grant_type": "authorization_code",
            "code": code,
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
            "resource": f"{self.office.base}/mcp",
            **changed,
        }
        return await self.token(fields)

    async def refresh(self, secret: str, **changed: str | None) -> httpx2.Response:
        return await self.token(
            {"grant_type": "refresh_token", "refresh_token": secret, "client_id": self.client_id, **changed}
        )

    async def token(self, fields: Mapping[str, str | None]) -> httpx2.Response:
        given = {name: value for name, value in fields.items() if value is not None}
        return await stranger("POST", f"{self.office.base}/oauth/token", data=given)

    async def tokens(self, **chosen: Any) -> dict[str, Any]:
        answer = await self.redeem(await self.code(**chosen))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def initialize(self, access: str, path: str = "/mcp") -> httpx2.Response:
        """What the gateway says to the access token."""
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "visitor", "version": "1"},
            },
        }
        headers = {"Authorization": f"Bearer {access}", "Accept": "application/json, text/event-stream"}
        return await stranger("POST", self.office.base + path, json=message, headers=headers)


def _widest(text: str) -> dict[str, str]:
    """What a trusting owner chooses where the form has nothing chosen: all that the client asks for."""
    offered = re.findall(r'<input type="radio" name="scopes" value="([^"]*)"', text)
    return {"scopes": offered[-1]} if offered else {}


def choices(text: str) -> dict[str, Any]:
    """What the form would send as it is shown."""
    chosen: dict[str, Any] = {}
    for name, value in re.findall(
        r'<input type="(?:checkbox|radio)" name="([^"]+)" value="([^"]*)" checked(?: required)?>', text
    ):
        chosen.setdefault(unescape(name), []).append(unescape(value))
    selected = re.search(r'<option value="([^"]*)" selected>', text)
    if selected:
        chosen["project"] = unescape(selected[1])
    expires = re.search(r'name="expires" value="([^"]*)"', text)
    return chosen | ({"expires": unescape(expires[1])} if expires else {})
