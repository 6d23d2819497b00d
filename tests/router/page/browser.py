"""Opens screens in Chromium, watches what they do, and keeps pictures of them in `.screens`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.router.page.owner import Owner

if TYPE_CHECKING:
    from playwright.async_api import Browser, ConsoleMessage, Page

CHROMIUM_ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
    "--host-resolver-rules=MAP evil.example 127.0.0.1",  # a name that was rebound to this machine
]
PICTURES = Path(__file__).parents[3] / ".screens"
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
Act = Callable[["Page"], Awaitable[None]]


class Screens:
    """One browser. Each page that it opens has a context of its own, signed in by a link of its own."""

    def __init__(self, browser: Browser, owner: Owner) -> None:
        self.browser = browser
        self.owner = owner
        self._axe = (files("axe_playwright_python") / "axe.min.js").read_text()

    @asynccontextmanager
    async def page(self, *, dark: bool = False, phone: bool = False, script: bool = True) -> AsyncIterator[Page]:
        """A page after the sign-in. At its end: no console error, no request to another host."""
        context = await self.browser.new_context(
            color_scheme="dark" if dark else "light",
            viewport=PHONE if phone else WIDE,  # type: ignore[arg-type]
            reduced_motion="reduce",
            java_script_enabled=script,
        )
        try:
            page = await context.new_page()
            page.set_default_timeout(15_000)
            said: list[str] = []
            page.on("console", lambda message: said.append(_said(message)))
            page.on("pageerror", lambda error: said.append(str(error)))
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            await page.goto(await self.owner.link())
            assert "code" not in page.url
            yield page
            assert not any(said), said
            own = urlsplit(self.owner.gateway.base_url).netloc
            assert {urlsplit(url).netloc for url in asked if not url.startswith("blob:")} == {own}
        finally:
            await context.close()

    async def check(self, name: str, path: str, act: Act | None = None) -> None:
        """Open a screen wide and light, wide and dark, and dark on a phone; look for what axe finds, and keep pictures.

        `act` does something on the page first, such as opening a part of it.
        """
        async with self.page() as page:
            await self._look(page, f"{name}-light", path, act)
            await page.emulate_media(color_scheme="dark")
            await page.screenshot(path=PICTURES / f"{name}-dark.png", full_page=True)
            await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
            await self.examine(page, f"{name}-phone")  # in dark, too: colours do not depend on the width
            width = await page.evaluate("document.documentElement.scrollWidth")
            assert width <= PHONE["width"], f"{name} is {width} pixels wide on a phone"

    async def _look(self, page: Page, name: str, path: str, act: Act | None) -> None:
        if urlsplit(page.url).path != path:
            await page.goto(self.owner.gateway.base_url + path)
        if act is not None:
            await act(page)
        await self.examine(page, name)

    async def examine(self, page: Page, name: str) -> None:
        """Keep a picture, and look for what axe finds."""
        PICTURES.mkdir(exist_ok=True)
        await page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
        await page.evaluate(self._axe)  # a script element would be refused by the page's policy
        found: dict[str, Any] = await page.evaluate("axe.run()")
        problems = [
            (each["id"], node["html"][:200], node["failureSummary"])
            for each in found["violations"]
            for node in each["nodes"][:3]
        ]
        assert problems == [], name


def _said(message: ConsoleMessage) -> str:
    return message.text if message.type in ("error", "warning") else ""
