"""The consent page in Chromium: a person signs in and allows a client, and another page in the browser cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from aiohttp import web

from tests.router.auth.server.office import Office, office
from tests.router.page.browser import PHONE, PICTURES, Screens
from tests.router.page.owner import Owner, owner_of

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.browser

# What a page of an attacker does; BASE is the gateway, QUERY a request that the owner never made.
ATTACK = """<!doctype html><title>waiting</title>
<iframe id="frame" src="BASE/oauth/authorize?QUERY"></iframe>
<form id="form" method="post" action="BASE/oauth/authorize" target="sink">
<input name="request" value="QUERY"><input name="decision" value="allow"><input name="servers" value="*">
<input name="project" value="-"><input name="scopes" value="read"><input name="csrf" value="guess"></form>
<iframe name="sink"></iframe>
<script>
window.onload = async () => {
  document.getElementById("form").submit();
  let read = "";
  try { read = await (await fetch("BASE/oauth/authorize?QUERY", {credentials: "include"})).text(); } catch {}
  try { read += document.getElementById("frame").contentDocument.body.textContent; } catch {}
  document.title = "done " + read.length;
};
</script>"""

# The words in tables that do not stand on one line.
BROKEN_WORDS = """() => {
  const broken = [], texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) for (const word of texts.currentNode.data.matchAll(/[^\\s-]+/g)) {
    if (!texts.currentNode.parentNode.closest("table")) continue;
    const range = document.createRange();
    range.setStart(texts.currentNode, word.index);
    range.setEnd(texts.currentNode, word.index + word[0].length);
    if (new Set([...range.getClientRects()].map(one => one.top)).size > 1) broken.push(word[0]);
  }
  return broken;
}"""


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    async with office(tmp_path_factory.mktemp("office")) as opened:
        yield opened


@pytest.fixture(scope="module")
async def owner(desk: Office) -> AsyncIterator[Owner]:
    async with owner_of(desk.gateway) as signed_in:
        yield signed_in


@asynccontextmanager
async def site(html: str = "done") -> AsyncIterator[tuple[int, asyncio.Queue[dict[str, str]]]]:
    """A web site with one page; yields its port and the queries that it gets."""
    seen: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def show(request: web.Request) -> web.Response:
        seen.put_nowait(dict(request.query))
        return web.Response(text=html, content_type="text/html")

    app = web.Application()
    app.router.add_get("/callback", show)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1], seen
    finally:
        await runner.cleanup()


async def test_a_person_signs_in_and_allows_a_client(desk: Office, screens: Screens) -> None:
    async with site() as (port, seen), _page(screens) as page:
        callback = f"http://127.0.0.1:{port}/callback"
        visitor = await desk.register(client_name="Claude", redirect_uris=[callback])
        await page.goto(f"{desk.base}/oauth/authorize?{urlencode(visitor.query())}")
        await screens.examine(page, "consent-sign-in-light")
        await page.fill("#code", desk.command("grant_link")["url"])
        await page.click("button")
        await page.wait_for_selector("text=Claude asks for access")
        await _pictures(screens, page)
        await page.select_option("#project", "attic")
        await page.check("input[value='these']")
        await page.check("input[value='shop']")
        await page.check("input[value='read write']")
        await page.click("button[value='allow']")
        await page.wait_for_url(f"{callback}?*")  # the policy of the page lets the form lead there
        answer = await asyncio.wait_for(seen.get(), 10)
        assert (answer["state"], answer["iss"]) == (visitor.state, desk.base)
        tokens = await visitor.redeem(answer["code"])
    assert tokens.status_code == 200
    grant = desk.command("grants")["grants"][0]
    assert (grant["projects"], grant["servers"]) == (["attic"], ["shop"])


async def test_grants_are_on_the_screen_of_the_tokens(desk: Office, screens: Screens) -> None:
    desk.http.cookies.clear()
    await desk.sign_in()
    await (await desk.register(client_name="On screen")).tokens()
    await screens.check("tokens-grants", "/page/tokens")


async def test_no_word_of_a_grant_is_broken_on_a_small_desktop(desk: Office, screens: Screens) -> None:
    desk.http.cookies.clear()
    await desk.sign_in()
    await (await desk.register(client_name="Here")).tokens()
    visitor = await desk.register(client_name="Claude Code (pointsman)", redirect_uris=["https://claude.ai/cb"])
    await visitor.tokens(project="attic", servers=["shop", "cellar"], scopes="read write")
    async with _page(screens) as page:
        await page.set_viewport_size({"width": 1200, "height": 900})
        await page.goto(desk.command("page_link")["url"])
        await page.goto(f"{desk.base}/page/tokens")
        assert await page.evaluate(BROKEN_WORDS) == []
        assert await page.evaluate("document.documentElement.scrollWidth") <= 1200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "evil.example"])
async def test_another_page_in_the_browser_gets_no_consent(desk: Office, screens: Screens, host: str) -> None:
    """`127.0.0.1` is another port of the same site, so that cookies are sent."""
    visitor = await desk.register(client_name="Attacker")
    before = desk.command("grants")["grants"]
    attack = ATTACK.replace("BASE", desk.base).replace("QUERY", urlencode(visitor.query()).replace("&", "&amp;"))
    async with site(attack) as (port, _), _page(screens) as page:
        await page.goto(desk.command("grant_link")["url"])
        statuses: list[int] = []
        page.on("response", lambda answer: statuses.append(answer.status) if answer.request.method == "POST" else None)
        await page.goto(f"http://{host}:{port}/callback")
        await page.wait_for_function("document.title.startsWith('done')")
        assert await page.title() == "done 0"
        assert set(statuses) <= {403}
    assert desk.command("grants")["grants"] == before
    assert ("oauth/authorize", "ok") not in {
        (method, end) for method, end, code in await desk.rows() if code == "Attacker"
    }


@asynccontextmanager
async def _page(screens: Screens) -> AsyncIterator[Page]:
    context = await screens.browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    try:
        page = await context.new_page()
        page.set_default_timeout(15_000)
        yield page
    finally:
        await context.close()


async def _pictures(screens: Screens, page: Page) -> None:
    await screens.examine(page, "consent-light")
    await page.emulate_media(color_scheme="dark")
    await page.screenshot(path=PICTURES / "consent-dark.png", full_page=True)
    await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    await screens.examine(page, "consent-phone")
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
