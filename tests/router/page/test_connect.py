"""The page of a sign-in link in Chromium: a person connects an account, and another page in the browser cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.router.accounts.office import Office, office, secret_of
from tests.router.page.browser import PHONE, PICTURES, Screens
from tests.router.page.owner import Owner, owner_of
from tests.router.page.test_consent import site

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.browser

# What a page of an attacker does; LINK is a link that the attacker has asked for.
ATTACK = """<!doctype html><title>waiting</title>
<iframe id="frame" src="LINK"></iframe>
<form id="form" method="post" action="LINK" target="sink"><input name="csrf" value="guess"></form>
<iframe name="sink"></iframe>
<script>
window.onload = async () => {
  document.getElementById("form").submit();
  let read = "";
  try { read = await (await fetch("LINK", {credentials: "include"})).text(); } catch {}
  try { read += document.getElementById("frame").contentDocument.body.textContent; } catch {}
  document.title = "done " + read.length;
};
</script>"""


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    async with office(tmp_path_factory.mktemp("accounts")) as opened:
        yield opened


@pytest.fixture(scope="module")
async def owner(desk: Office) -> AsyncIterator[Owner]:
    async with owner_of(desk.gateway) as signed_in:
        yield signed_in


@asynccontextmanager
async def _page(screens: Screens, account: str = "") -> AsyncIterator[Page]:
    """A page of a browser that is nobody's yet; its person has this account wherever it signs in."""
    named = {"X-Account": account} if account else {}
    context = await screens.browser.new_context(reduced_motion="reduce", extra_http_headers=named)
    try:
        page = await context.new_page()
        page.set_default_timeout(15_000)
        yield page
    finally:
        await context.close()


async def _pictures(screens: Screens, page: Page, name: str) -> None:
    await screens.examine(page, f"{name}-light")
    await page.emulate_media(color_scheme="dark")
    await page.screenshot(path=PICTURES / f"{name}-dark.png", full_page=True)
    size = page.viewport_size
    await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    await screens.examine(page, f"{name}-phone")
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    await page.emulate_media(color_scheme="light")
    if size is not None:
        await page.set_viewport_size(size)


async def test_a_person_shows_who_it_is_and_connects_an_account(desk: Office, screens: Screens) -> None:
    async with _page(screens, "ada") as page:
        await page.goto(await desk.link(desk.jwt("ada"), "board"))
        await _pictures(screens, page, "connect")
        await page.click("button")
        await page.wait_for_selector("text=First, show who you are")
        await _pictures(screens, page, "connect-next")
        await page.click("a.primary")
        await page.wait_for_selector(f"text={urlsplit(desk.board.url).netloc}")
        await page.click("a.primary")
        await page.wait_for_selector("text=account is connected")
        await _pictures(screens, page, "connected")
    async with desk.caller(desk.jwt("ada")) as caller:
        await caller.text("board:echo", n=1)
    assert desk.board.accounts_for(n=1) == ["ada"]


async def test_the_owner_connects_an_account_for_a_token_and_nobody_else_can(desk: Office, screens: Screens) -> None:
    link = await desk.link(secret_of("laptop"))
    async with _page(screens, "victim") as page:
        await page.goto(link)
        await page.click("button")
        await page.wait_for_selector("text=Are you the owner?")
        await _pictures(screens, page, "connect-owner")
        await page.goto((await desk.ask("page_link"))["url"])  # the owner, after all
        await page.goto(link)
        await page.click("button")
        await page.click("a.primary")
        await page.wait_for_selector("text=account is connected")


async def test_accounts_are_on_the_screen_of_their_server_and_end_there(desk: Office, screens: Screens) -> None:
    async with desk.browser("eve") as browser:
        await browser.connect(await desk.link(desk.jwt("eve"), "board"))
    await screens.check("server-accounts", "/page/servers/board")
    async with screens.page() as page:
        await page.goto(f"{desk.gateway.base_url}/page/servers/board")
        await page.click("text=Revoke >> nth=-1")
        await page.click("button.danger")
        await page.wait_for_selector("text=is revoked")
    listed = (await desk.ask("credentials", server="board"))["credentials"]
    assert "@sso/eve" not in [one["who"] for one in listed]


async def test_somebody_else_is_told_so(desk: Office, screens: Screens) -> None:
    async with _page(screens, "victim") as page:
        await page.goto(await desk.link(desk.jwt("mallory")))
        await page.click("button")
        await page.click("a.primary")
        await page.wait_for_selector("text=You are somebody else")
        await _pictures(screens, page, "connect-refused")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_another_page_in_the_browser_connects_nothing(desk: Office, screens: Screens, host: str) -> None:
    """`127.0.0.1` is another port of the same site, so that cookies are sent."""
    link = await desk.link(secret_of("desktop"))
    async with site(ATTACK.replace("LINK", link)) as (port, _), _page(screens) as page:
        await page.goto((await desk.ask("page_link"))["url"])
        await page.goto(link)  # so that its cookie is there
        await page.goto(f"http://{host}:{port}/callback")
        await page.wait_for_function("document.title.startsWith('done')")
        assert await page.title() == "done 0"
        assert (await page.goto(link)).status == 200  # type: ignore[union-attr]  # it is still unused
    listed = (await desk.ask("credentials", server="tracker"))["credentials"]
    assert "desktop" not in [one["who"] for one in listed]
