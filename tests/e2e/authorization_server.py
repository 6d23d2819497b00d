"""An authorization server that others wrote (npm `oidc-provider`), and a person who signs in without a browser."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".foreign" / "authorization"
NODE = FOLDER / "node_modules" / "node" / "bin" / "node"
PACKAGE = FOLDER / "node_modules" / "oidc-provider"
SCRIPT = Path(__file__).parent / "authorization" / "provider.mjs"
START_S = 60.0
MAX_STEPS = 20  # redirects and forms of one sign-in

_absent = not NODE.exists() or not PACKAGE.exists()
needs_authorization_server = [
    pytest.mark.foreign,
    pytest.mark.skipif(_absent, reason="not installed: oidc-provider from npm (run `make foreign`)"),
]


@dataclass(frozen=True)
class AuthorizationServer:
    issuer: str

    async def client_token(self, resource: str, scope: str = "mcp") -> str:
        """An access token of a new client that acts for itself (client credentials)."""
        async with httpx2.AsyncClient() as http:
            metadata = {
                "grant_types": ["client_credentials"],
                "response_types": [],
                "redirect_uris": [],
                "token_endpoint_auth_method": "client_secret_post",
            }
            client = (await http.post(f"{self.issuer}/reg", json=metadata)).json()
            form = {
                "grant_type": "client_credentials",
                "client_id": client["client_id"],
                "client_secret": client["client_secret"],
                "resource": resource,
                "scope": scope,
            }
            answer = await http.post(f"{self.issuer}/token", data=form)
            assert answer.status_code == 200, answer.text
            token: str = answer.json()["access_token"]
            return token


@asynccontextmanager
async def authorization_server(folder: Path, **options: Any) -> AsyncIterator[AuthorizationServer]:
    """Run one on a free port of loopback. `options`: see `provider.mjs`."""
    (folder / "node_modules").symlink_to(FOLDER / "node_modules")  # modules are looked up beside the script
    script = folder / SCRIPT.name
    script.write_bytes(SCRIPT.read_bytes())
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), str(script), json.dumps(options)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    said = asyncio.create_task(process.stderr.read())  # it warns that it is not for production
    try:
        async with asyncio.timeout(START_S):
            line = (await process.stdout.readline()).decode()
        found = re.fullmatch(r"issuer (\S+)\n", line)
        if found is None:
            raise AssertionError(f"oidc-provider did not start: {line}{(await said).decode()}")
        yield AuthorizationServer(found[1])
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await said


async def sign_in(address: str, callback: str, login: str = "alice") -> str:
    """Follow an authorization request as a browser would, fill in its forms, and return the redirect to `callback`."""
    async with httpx2.AsyncClient(follow_redirects=False, timeout=START_S) as browser:
        answer = await browser.get(address)
        for _ in range(MAX_STEPS):
            if answer.is_redirect:
                target = urljoin(str(answer.request.url), answer.headers["location"])
                if target.startswith(callback):
                    return target
                answer = await browser.get(target)
                continue
            assert answer.status_code == 200, answer.text
            form = _Form.of(answer.text)
            fields = {**form.fields, **({"login": login, "password": "x"} if "login" in form.fields else {})}
            answer = await browser.post(urljoin(str(answer.request.url), form.action), data=fields)
    raise AssertionError(f"the sign-in did not come back to {callback}")


class _Form(HTMLParser):
    """The first form of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self._inside = False

    @classmethod
    def of(cls, page: str) -> _Form:
        form = cls()
        form.feed(page)
        assert form.action, page
        return form

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found: Mapping[str, str | None] = dict(attrs)
        if tag == "form" and not self.action:
            self.action, self._inside = found.get("action") or "", True
        elif tag == "input" and self._inside and found.get("name"):
            self.fields[found["name"] or ""] = found.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
