"""A gateway whose callers have accounts of their own at two servers, and persons with browsers."""

from __future__ import annotations

import asyncio
import hashlib
import html
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, types
from mcp.client.context import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client

from pointsman.router.owner.client import ask
from tests.e2e.client import SESSION_S, Assistant, Mode
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.auth.server.office import free_port
from tests.router.conftest import audit_rows
from tests.router.page.owner import hidden_fields
from tests.servers.account_mcp import ACCOUNT, AccountMcp, JwtIssuer, serving
from tests.servers.oauth_mcp import signed_in_at

LOOPBACK = "http://127.0.0.1:1/callback"
OWN_TOKEN = "ptm_" + "o" * 43
LINK = re.compile(r"http://\S+/oauth/connect/[0-9a-f]{32}\.[\w-]{43}")
NEXT = re.compile(r'class="button primary" href="([^"]+)"')


def secret_of(name: str) -> str:
    return "ptm_" + hashlib.sha256(name.encode()).hexdigest()


def next_url(page: httpx2.Response) -> str:
    """Where a page leads to sign in."""
    found = NEXT.search(page.text)
    assert found is not None, page.text
    return html.unescape(found[1])


@dataclass
class Browser:
    """A browser, and the account that its person has wherever it signs in."""

    http: httpx2.AsyncClient
    account: str
    origin: str

    async def open(self, link: str) -> httpx2.Response:
        return await self.http.get(link)

    async def agree(
        self, link: str, shown: httpx2.Response | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Send the form of a link's page."""
        page = shown or await self.open(link)
        return await self.http.post(
            link, data=hidden_fields(page.text), headers={"Origin": self.origin, **(headers or {})}
        )

    async def decline(self, link: str) -> httpx2.Response:
        """Say no on a link's page."""
        fields = hidden_fields((await self.open(link)).text)
        return await self.http.post(link, data={**fields, "answer": "no"}, headers={"Origin": self.origin})

    async def follow(self, page: httpx2.Response) -> httpx2.Response:
        """Sign in where the page leads to, and come back."""
        return await self.http.get(await self.returned(next_url(page)))

    async def returned(self, url: str) -> str:
        """The address to which an authorization server sends this person back."""
        answer = await self.http.get(url, headers={ACCOUNT: self.account})
        assert answer.status_code == 302, answer.text
        return str(answer.headers["Location"])

    async def connect(self, link: str) -> httpx2.Response:
        """All of it: agree, and sign in wherever that leads."""
        page = await self.agree(link)
        while page.status_code == 200 and NEXT.search(page.text):
            page = await self.follow(page)
        return page


@dataclass
class Office:
    gateway: GatewayProcess
    tracker: AccountMcp
    board: AccountMcp
    vault: AccountMcp
    issuer: JwtIssuer
    folder: Path
    config: Mapping[str, Any]
    public: str  # the address that browsers use: of the first gateway, if there are several

    async def ask(self, operation: str, **parameters: Any) -> Any:
        return await asyncio.to_thread(ask, self.gateway.state_dir, operation, **parameters)

    async def login(self, server: str) -> None:
        """The gateway's own sign-in, for lists."""
        begun = await self.ask("begin_sign_in", server=server, redirectUri=LOOPBACK)
        answer = await signed_in_at(begun["url"])
        await self.ask("finish_sign_in", state=answer.pop("state"), answer=answer)

    @asynccontextmanager
    async def browser(self, account: str, *, owner: bool = False) -> AsyncIterator[Browser]:
        async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
            if owner:
                entered = await http.get((await self.ask("page_link"))["url"])
                assert entered.status_code == 303, entered.text
            yield Browser(http, account, self.public)

    def jwt(self, account: str) -> str:
        return self.issuer.token(account, f"{self.public}/mcp")

    @asynccontextmanager
    async def caller(
        self, token: str, mode: Mode = "auto", elicited: Any = None, project: str | None = None
    ) -> AsyncIterator[Assistant]:
        headers = {"Authorization": f"Bearer {token}"} | ({"X-Pointsman-Project": project} if project else {})
        async with (
            asyncio.timeout(SESSION_S),
            httpx2.AsyncClient(headers=headers, timeout=SESSION_S) as http,
            Client(
                streamable_http_client(self.gateway.url, http_client=http), mode=mode, elicitation_callback=elicited
            ) as client,
        ):
            yield Assistant(client)

    async def link(self, token: str, server: str = "tracker", **arguments: Any) -> str:
        """The link that a caller gets whose client cannot be asked."""
        async with self.caller(token) as caller:
            answer = await caller.execute(f"{server}:echo", **arguments)
        assert answer.is_error, answer
        error = (answer.structured_content or {})["error"]
        assert error["code"] == "sign_in_required", error
        found = LINK.search(error["message"])
        assert found is not None, error
        return found[0]

    async def reload(self, **changed: Any) -> None:
        """Have another configuration in effect."""
        self.gateway.write_config({**self.config, **changed})
        await self.ask("reload")

    async def refused(self, method: str = "server/caller-sign-in") -> list[tuple[str | None, str]]:
        """Token and code of the sign-ins that were refused, the latest first."""
        rows = await audit_rows(self.gateway.state_dir, "--kind", "change")
        found = [(row["token"], row["code"]) for row in rows if row["method"] == method and row["outcome"] == "denied"]
        return found[::-1]

    async def forget(self, server: str = "tracker") -> None:
        """End all accounts of callers."""
        for one in (await self.ask("credentials", server=server))["credentials"]:
            await self.ask("end_credential", server=server, credential=one["id"])


def opens(browser: Browser, asked: list[str]) -> Any:
    """A client whose person opens the links that it is asked to, and signs in."""

    async def elicited(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        asked.append(params.url)
        page = await browser.connect(params.url)
        assert page.status_code == 200, page.text
        return types.ElicitResult(action="accept")

    return elicited


def entry(server: AccountMcp, **more: Any) -> dict[str, Any]:
    return {"url": server.url, "oauth": "auto", "credentials": "per-caller", "era": server.era, **more}


@asynccontextmanager
async def office(folder: Path) -> AsyncIterator[Office]:
    async with offices([folder]) as [found]:
        yield found


@asynccontextmanager
async def offices(folders: Sequence[Path], state: Mapping[str, Any] | None = None) -> AsyncIterator[list[Office]]:
    """A gateway in each folder, in front of the same servers. `state`: what they share."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    tracker, board, vault, issuer = AccountMcp("modern"), AccountMcp("legacy"), AccountMcp("modern"), JwtIssuer()
    for key in ("lists", "of-laptop", "of-ada"):
        vault.access[key], vault.account_of[key] = "", key
    async with serving(tracker, board, vault, issuer), AsyncExitStack() as stack:
        config = _config(tracker, board, vault, issuer, base) | ({"state": state} if state else {})
        found: list[Office] = []
        for folder in folders:
            args = ["--port", "0" if found else str(port)]
            starting = gateway_process(folder, config, token=OWN_TOKEN, args=args, without=("tracker", "board"))
            gateway = await stack.enter_async_context(starting)
            found.append(Office(gateway, tracker, board, vault, issuer, folder, config, base))
        await found[0].login("tracker")
        await found[0].login("board")
        yield found


def _config(tracker: AccountMcp, board: AccountMcp, vault: AccountMcp, issuer: JwtIssuer, base: str) -> dict[str, Any]:
    names = ("laptop", "desktop", "phone")
    digests = {name: hashlib.sha256(secret_of(name).encode()).hexdigest() for name in names}
    return {
        "servers": {
            "tracker": entry(tracker),
            "board": entry(board, name="Board <b>&"),
            "vault": {
                "url": vault.url,
                "era": "modern",
                "headers": {"authorization": "Bearer lists"},
                "credentials": "per-caller",
                "caller_headers": {
                    "laptop": {"Authorization": "Bearer of-laptop"},
                    "@sso/ada": {"Authorization": "Bearer of-ada"},
                    "phone": {"Authorization": "Bearer revoked"},
                    "@sso/eve": {"Authorization": "Bearer revoked"},
                },
            },
        },
        "tokens": {name: {"sha256": sha, "projects": ["*"], "servers": ["*"]} for name, sha in digests.items()},
        "listen": {"public_url": base, "drain_s": 0},
        "auth": {"issuer": issuer.issuer, "claims": {"all": {"when": "*", "projects": ["*"], "servers": ["*"]}}},
    }
