"""A web page elsewhere, opened in the browser that is signed in, changes and reads nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from pointsman.config.loader import load
from tests.router.page.browser import Screens

pytestmark = pytest.mark.browser

# What a page of an attacker does; BASE is the gateway. Everything that it could read ends up in its title.
ATTACK = """<!doctype html><title>waiting</title>
<iframe id="frame" src="BASE/page/servers"></iframe>
<form id="form" method="post" action="BASE/page/servers/shop/switch" target="sink">
<input name="enabled" value="no"><input name="confirmed" value="yes"><input name="csrf" value="guess"></form>
<iframe name="sink"></iframe>
<script>
const read = [];
const reads = (name, promise) => promise.then((text) => read.push(name + ":" + text)).catch(() => read.push(name));
window.onload = async () => {
  document.getElementById("form").submit();
  await reads("cors", fetch("BASE/", {credentials: "include"}).then((answer) => answer.text()));
  await reads("post", fetch("BASE/page/servers/shop/remove", {method: "POST", credentials: "include", mode: "no-cors",
    headers: {"Content-Type": "application/x-www-form-urlencoded"}, body: "confirmed=yes"}).then((a) => a.text()));
  await reads("frame", new Promise((found, lost) => {
    try { found(document.getElementById("frame").contentDocument.body.textContent); } catch { lost(); } }));
  await reads("events", new Promise((found, lost) => {
    const source = new EventSource("BASE/page/events?topics=servers", {withCredentials: true});
    source.onmessage = () => found("event"); source.onerror = () => { source.close(); lost(); } }));
  await reads("script", new Promise((found, lost) => {
    const script = document.createElement("script");
    Object.assign(script, {src: "BASE/", onload: () => found("ran"), onerror: lost});
    document.head.append(script); }));
  document.title = "done " + read.join(" ");
};
</script>"""


@asynccontextmanager
async def _attacker(base: str) -> AsyncIterator[int]:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text=ATTACK.replace("BASE", base), content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "evil.example"])
async def test_another_page_in_the_same_browser(screens: Screens, host: str) -> None:
    """`127.0.0.1` is another port of the same site, so that the cookie is sent; `localhost` is another site."""
    owner = screens.owner
    before = owner.gateway.config_file.read_text()
    context = await screens.browser.new_context()
    try:
        page = await context.new_page()
        await page.goto(await owner.link())
        assert await page.title() == "Overview · Pointsman"
        async with _attacker(owner.gateway.base_url) as port:
            foreign = await context.new_page()
            posted: list[Any] = []
            foreign.on("response", lambda answer: posted.append(answer) if answer.request.method == "POST" else None)
            await foreign.goto(f"http://{host}:{port}/")
            await foreign.wait_for_function("document.title.startsWith('done')")
            title = await foreign.title()
        assert "Workshop" not in title
        assert title.split()[1:] == ["cors", "post:", "frame", "events", "script"] or title.split()[1:] == [
            *("cors", "post", "frame", "events", "script")
        ]
        assert posted
        assert {answer.status for answer in posted} == {403}
    finally:
        await context.close()
    assert owner.gateway.config_file.read_text() == before
    assert load(owner.gateway.config_file, {}).servers["shop"].enabled
    assert not [change for change in await owner.changes() if change[1].startswith(("server/", "configuration/"))]


async def test_a_rebound_name_gets_nothing(screens: Screens) -> None:
    port = screens.owner.gateway.base_url.rpartition(":")[2]
    context = await screens.browser.new_context()
    try:
        page = await context.new_page()
        for path in ("/", "/page/servers", (await screens.owner.link()).partition(port)[2]):
            answer = await page.goto(f"http://evil.example:{port}{path}")
            assert answer is not None
            assert answer.status == 421
            assert "Workshop" not in await page.content()
        assert await context.cookies() == []
    finally:
        await context.close()


async def test_hostile_texts_are_text_in_a_browser(screens: Screens) -> None:
    """Names, descriptions and audit texts of servers and clients; an alert or an element would be noticed."""
    async with screens.page() as page:
        alerts: list[str] = []
        page.on("dialog", lambda dialog: alerts.append(dialog.message))
        for path in ("/", "/page/servers", "/page/servers/hostile"):
            await page.goto(screens.owner.gateway.base_url + path)
            assert await page.locator("main img").count() == 0
            assert "49" not in await page.inner_text("h1")
        assert "<img src=x" in await page.inner_text("h1")
        assert alerts == []
