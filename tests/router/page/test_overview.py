"""The first screen."""

from __future__ import annotations

import gzip

import pytest

from tests.router.page.browser import Screens
from tests.router.page.owner import HOSTILE, Owner


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
    from pointsman.router.owner.client import ask

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


async def test_each_client_has_a_snippet_with_this_url(owner: Owner) -> None:
    text = (await owner.get("/")).text
    for client in ("Claude Code", "Cursor", "VS Code", "Codex", "Zed"):
        assert f"<summary>{client}</summary>" in text
    assert text.count(f"{owner.gateway.base_url}/mcp&#34;") > 5
