"""The first screen."""

from __future__ import annotations

import gzip

import pytest

from pointsman.router.owner.client import ask
from tests.router.page.browser import Screens
from tests.router.page.owner import HOSTILE, Owner, command


async def test_says_which_servers_are_ready_and_why_others_are_not(owner: Owner) -> None:
    text = (await owner.get("/")).text
    assert "2 of 4" in text
    assert "there is no such program" in text


async def test_hostile_names_are_text(owner: Owner) -> None:
    for path in ("/", "/page/servers"):
        text = (await owner.get(path)).text
        assert "<img src=x" not in text
        assert "49" not in text.partition("&lt;img src=x")[2][:60]
    assert HOSTILE not in text


async def test_page_with_everything_is_small(owner: Owner) -> None:
    page = await owner.get("/")
    static = [owner.gateway.base_url + path for path in set(_static_paths(page.text))]
    contents = [(await owner.http.get(url)).content for url in static]
    assert len(static) == 3
    assert len(gzip.compress(page.content + b"".join(contents))) < 25 * 1024


def _static_paths(text: str) -> list[str]:
    return [part.partition('"')[0] for part in text.split('="')[1:] if part.startswith("/page/static/")]


@pytest.mark.browser
async def test_looks_right_in_a_browser(screens: Screens) -> None:
    await screens.check("overview", "/")


@pytest.mark.browser
async def test_shows_a_call_without_a_reload(screens: Screens) -> None:
    async with screens.page() as page:
        before = await page.text_content(".figure:nth-child(2) small")
        assert before is not None
        ask(screens.owner.gateway.state_dir, "call", tool="shop:colour", arguments={})
        await page.wait_for_function(
            "before => document.querySelector('.figure:nth-child(2) small').textContent !== before", arg=before
        )


async def test_refused_clients_and_first_steps_are_at_the_top(owner: Owner) -> None:
    answer = await owner.http.post(
        owner.gateway.url,
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        headers={"Accept": "application/json, text/event-stream", "Authorization": "Bearer ptm_wrong"},
    )
    assert answer.status_code == 401
    text = (await owner.get("/")).text
    assert text.index("Refused clients") < text.index("Servers that are not ready") < text.index("Calls a minute")
    assert "sends no token, or one that is unknown" in text
    assert "Let a model find a tool" in text


async def test_what_the_owner_does_is_no_step_of_a_client(owner: Owner) -> None:
    ask(owner.gateway.state_dir, "call", tool="shop:colour", arguments={})
    assert (await owner.post("/page/lab", {"queries": "a colour"})).status_code == 200
    text = (await owner.get("/")).text
    for step in ("Connect a client", "Let a model find a tool", "Let it call one"):
        assert f'<a href="#connect">{step}</a>' in text


@pytest.mark.browser
async def test_a_rejected_file_is_told_without_a_reload(screens: Screens) -> None:
    file = screens.owner.gateway.config_file
    before = file.read_text()
    async with screens.page() as page:
        try:
            file.write_text("servers: [")
            await page.wait_for_selector("#alerts :text('The last edit was rejected')")
        finally:
            file.write_text(before)
        await page.wait_for_selector("#alerts :text('The last edit was rejected')", state="detached")


@pytest.mark.browser
async def test_what_was_typed_stays_in_a_form_that_is_refused(screens: Screens) -> None:
    context = await screens.browser.new_context()  # the console names each refusal
    page = await context.new_page()
    try:
        await page.goto(await screens.owner.link())
        await page.goto(screens.owner.gateway.base_url + "/page/servers")
        typed = '{"mcpServers": {"tracker": {"url": "http://127.0.0.1:9/${TOKEN}"}}}'
        await page.fill("#text", typed)
        await page.click("text=Read it")
        await page.wait_for_selector("#lost:text('is not accepted here')")
        assert await page.input_value("#text") == typed
        assert await page.evaluate("document.getElementById('lost').getBoundingClientRect().top") >= 0
    finally:
        await context.close()


@pytest.mark.browser
async def test_an_open_screen_goes_away_when_all_browsers_are_signed_out(screens: Screens) -> None:
    owner = screens.owner
    context = await screens.browser.new_context()
    page = await context.new_page()
    try:
        await page.goto(await owner.link())
        await page.wait_for_selector("#figures")
        await command(owner, "page", "logout")
        await page.wait_for_selector("body.bare", timeout=30_000)
    finally:
        await context.close()
        await owner.sign_in()


async def test_each_client_has_a_snippet_with_this_url(owner: Owner) -> None:
    text = (await owner.get("/")).text
    for client in ("Claude Code", "Cursor", "VS Code", "Codex", "Zed"):
        assert f"<summary>{client}</summary>" in text
    assert text.count(f"{owner.gateway.base_url}/mcp&#34;") > 5
