"""The owner's browser without a browser: signs in by a link, and sends the forms of the page."""

from __future__ import annotations

import asyncio
import html
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from pointsman.router.owner.client import ask
from tests.gateway_process import GatewayProcess, gateway_process
from tests.program import run_program
from tests.router.conftest import audit_rows, from_file, workshop

HOSTILE = "<img src=x onerror=alert(1)>{{7*7}}"  # must only ever be text
_CSRF = re.compile(r'name="csrf" value="([^"]+)"')
_FIELD = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')


@dataclass
class Owner:
    """A browser that is signed in, or not yet."""

    gateway: GatewayProcess
    http: httpx2.AsyncClient
    csrf: str = ""

    async def link(self) -> str:
        """A new link, as `pointsman open` prints it."""
        made = await asyncio.to_thread(ask, self.gateway.state_dir, "page_link")
        return str(made["url"])

    async def sign_in(self) -> None:
        entered = await self.http.get(await self.link())
        assert entered.status_code == 303, entered.text
        self.csrf = csrf_of((await self.get("/")).text)

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.http.get(self.gateway.base_url + path, headers=headers)

    async def post(self, path: str, fields: Mapping[str, Any] | None = None, **headers: str) -> httpx2.Response:
        """Send a form as the page's own script or a browser does. The answer is not followed."""
        form = {"csrf": self.csrf, **(fields or {})}
        origin = {"Origin": self.gateway.base_url} | headers
        return await self.http.post(self.gateway.base_url + path, data=form, headers=origin)

    async def confirm(self, path: str, fields: Mapping[str, Any] | None = None) -> httpx2.Response:
        """Send a form, look at what it asks, and confirm that."""
        asked = await self.post(path, fields)
        assert asked.status_code == 200, asked.text
        return await self.http.post(
            self.gateway.base_url + path, data=hidden_fields(asked.text), headers={"Origin": self.gateway.base_url}
        )

    async def flash(self) -> str:
        """What the page says at the top, once."""
        found = re.search(r'<div class="flash [^"]*" role="status">(.*?)</div>', (await self.get("/")).text, re.DOTALL)
        return html.unescape(found[1]) if found else ""

    async def changes(self) -> list[tuple[str, str, str]]:
        """Client, method and code of the changes in the audit."""
        rows = await audit_rows(self.gateway.state_dir, "--kind", "change")
        return [(row["client"], row["method"], row["code"]) for row in rows]


async def command(owner: Owner, *words: str) -> str:
    """What a command of the owner prints."""
    ended = await run_program(
        *(sys.executable, "-P", "-m", "pointsman", *words, "--state-dir", str(owner.gateway.state_dir)),
        cwd=owner.gateway.state_dir,
        limit_s=60,
    )
    assert ended.code == 0, ended.err
    return ended.out


def csrf_of(text: str) -> str:
    found = _CSRF.search(text)
    assert found is not None, text
    return html.unescape(found[1])


def hidden_fields(text: str) -> dict[str, Any]:
    """The hidden fields of the form in the main part: what its button would send."""
    fields: dict[str, Any] = {}
    for name, value in _FIELD.findall(text.partition("<main")[2]):
        fields.setdefault(html.unescape(name), []).append(html.unescape(value))
    return fields


def small_config(folder: Path) -> dict[str, Any]:
    """Servers that run, one that fails, one that is switched off, and one whose every text is hostile."""
    hostile = [{"name": "poke", "description": HOSTILE, "title": HOSTILE, "inputSchema": {"type": "object"}}]
    return {
        "projects": {"attic": {"name": HOSTILE}},
        "servers": {
            "shop": workshop(folder / "trace", name="Workshop", tool_permissions={"erase": False}),
            "hostile": from_file(folder / "hostile.json", "h", {"tools": hostile}, name=HOSTILE, projects=["attic"]),
            "gone": {"command": "no-such-program-anywhere"},
            "noisy": {"command": "sh", "args": ["-c", "echo begun: no configuration >&2; exit 1"]},
            "off": workshop(folder / "trace", enabled=False),
        },
    }


@asynccontextmanager
async def owner_of(gateway: GatewayProcess) -> AsyncIterator[Owner]:
    async with httpx2.AsyncClient(timeout=30) as http:
        owner = Owner(gateway, http)
        await owner.sign_in()
        yield owner


@asynccontextmanager
async def running_page(folder: Path, config: Mapping[str, Any] | None = None) -> AsyncIterator[Owner]:
    """A gateway with a page, and its owner signed in."""
    async with gateway_process(folder, config or small_config(folder)) as gateway, owner_of(gateway) as owner:
        yield owner
