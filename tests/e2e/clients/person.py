"""The person in front of a client that signs in: a browser that clients open by themselves, without a screen."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from pointsman.router.owner.client import ask
from tests.gateway_process import GatewayProcess
from tests.router.page.browser import CHROMIUM_ARGUMENTS

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

STEP_MS = 20_000  # a bound against hanging
POLL_S = 0.05
# How programs find a browser: each of these, first on the PATH, writes down the address instead.
OPENERS = ("xdg-open", "open", "sensible-browser", "www-browser", "x-www-browser")
# Without a handler for https, the script that some programs bring along takes `BROWSER`.
NO_HANDLER = "xdg-mime"
OPENER = """#!/bin/sh
for address; do :; done
printf '%s\\n' "$address" >> "$OPENED"
"""

Result = TypeVar("Result")
SignIn = Callable[["Page"], Awaitable[None]]
"""What the person does on the page that a client has opened."""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("Chromium is not installed: `make chromium` installs it on Debian and Ubuntu")
    playwright = pytest.importorskip("playwright.async_api")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=program, args=CHROMIUM_ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


class Person:
    """Uses one client, with a home of its own, and signs in where that client asks to."""

    def __init__(self, browser: Browser, home: Path) -> None:
        self.home = home
        self.asked: list[str] = []  # the addresses that the client has opened, each once
        self._browser = browser
        self._opened = home / "opened"
        self._opened.touch()
        self._bin = home / "browsers"
        self._bin.mkdir()
        for name in (*OPENERS, NO_HANDLER):
            (self._bin / name).write_text(OPENER if name in OPENERS else "#!/bin/sh\n")
            (self._bin / name).chmod(0o755)

    def environment(self, env: dict[str, str]) -> dict[str, str]:
        """The environment of a client, with a browser."""
        browser = {"BROWSER": str(self._bin / "xdg-open"), "DISPLAY": ":0", "OPENED": str(self._opened)}
        return env | browser | {"PATH": f"{self._bin}{os.pathsep}{env['PATH']}"}

    async def use(self, client: Coroutine[Any, Any, Result], sign_in: SignIn) -> Result:
        """Run the client to its end, and sign in as often as it opens the browser."""
        running = asyncio.create_task(client)
        present = asyncio.create_task(self._attend(sign_in))
        try:
            await asyncio.wait([running, present], return_when=asyncio.FIRST_COMPLETED)
            if present.done():
                await present  # something was not as expected on the page
            return await running
        finally:
            for task in (running, present):
                task.cancel()
            await asyncio.gather(running, present, return_exceptions=True)

    async def _attend(self, sign_in: SignIn) -> None:
        while True:
            for address in self._opened.read_text().splitlines():
                if address not in self.asked:  # Python tries another browser where the first one ended at once
                    self.asked.append(address)
                    await self._visit(address, sign_in)
            await asyncio.sleep(POLL_S)

    async def _visit(self, address: str, sign_in: SignIn) -> None:
        context = await self._browser.new_context()
        try:
            page = await context.new_page()
            page.set_default_timeout(STEP_MS)
            await page.goto(address)
            await sign_in(page)
        finally:
            await context.close()


def as_owner(gateway: GatewayProcess, name: str) -> SignIn:
    """Prove to be the owner by a link of `pointsman grant sign-in`, and allow the client of this name everything."""

    async def sign_in(page: Page) -> None:
        link = await asyncio.to_thread(ask, gateway.state_dir, "grant_link")
        await page.fill("#code", link["url"])
        await page.click("button")
        await page.wait_for_selector("h1:not(:has-text('Are you the owner?'))")
        shown = await page.inner_text("body")
        assert f"{name} asks for access" in shown, shown
        await page.check("input[name=reach][value=all]")
        await page.locator("input[name=scopes]").last.check()
        await page.click("button[value='allow']")
        await page.wait_for_url(lambda url: not url.startswith(gateway.base_url))

    return sign_in


def with_account(issuer: str, login: str) -> SignIn:
    """Fill in the forms of `oidc-provider`: any name and password, and then yes."""

    async def sign_in(page: Page) -> None:
        while page.url.startswith(issuer):
            if await page.locator("input[name=login]").count():
                await page.fill("input[name=login]", login)
                await page.fill("input[name=password]", "x")
            async with page.expect_navigation():
                await page.click("button[type=submit]")

    return sign_in
