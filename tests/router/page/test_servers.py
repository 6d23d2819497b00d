"""The screen of the servers: what it shows, and what the owner does there."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pointsman.config.loader import load
from pointsman.router.owner.client import ask
from tests.gateway_process import gateway_process
from tests.router.conftest import WORKSHOP, workshop
from tests.router.page.browser import Screens
from tests.router.page.owner import HOSTILE, Owner, command, hidden_fields, owner_of, running_page
from tests.servers.http_mcp import serving

if TYPE_CHECKING:
    from playwright.async_api import Page

COMMENTED = """\
# mine
servers:
  shop:  # the workshop
    command: {python}
    args: [-S, {program}, {trace}]  # traced
projects:
  attic: {{}}  # under the roof
tokens:
  test: {{sha256: "{digest}", projects: ["*"], servers: ["*"]}}
"""


async def test_the_list_and_a_server_say_how_it_is(owner: Owner) -> None:
    listed = (await owner.get("/page/servers")).text
    assert all(word in listed for word in ("Workshop", "2025-11-25", "switched off", "there is no such program"))
    one = (await owner.get("/page/servers/shop")).text
    assert "8 tools" in one
    assert (await owner.get("/page/servers/nothing")).status_code == 404


async def test_many_servers_are_paged_and_filtered(tmp_path: Path) -> None:
    servers = {f"s{number}": {"command": "no-such-program-anywhere", "enabled": False} for number in range(250)}
    async with running_page(tmp_path, {"servers": servers}) as owner:
        first = (await owner.get("/page/servers")).text
        assert first.count("data-row") == 100
        assert len(first) < 200 * 1024
        assert "/page/servers?page=2" in first
        assert (await owner.get("/page/servers?page=3")).text.count("data-row") == 50
        found = (await owner.get("/page/servers?q=S24")).text
        assert found.count("data-row") == 11  # s24 and s240 to s249
        assert "No server fits" in (await owner.get("/page/servers?q=%3Cscript%3E&page=99999999999")).text


async def test_restart_stop_and_start_are_in_the_audit(tmp_path: Path) -> None:
    async with running_page(tmp_path, {"servers": {"shop": workshop(tmp_path / "trace")}}) as owner:
        assert (await owner.post("/page/servers/shop/restart")).status_code == 303
        assert await owner.flash() == "Restarted: shop runs with 8 tools.".replace("shop", "<code>shop</code>")
        stopped = await owner.confirm("/page/servers/shop/stop")
        assert stopped.status_code == 303
        assert "stopped by its owner" in (await owner.get("/page/servers/shop")).text
        owner.gateway.write_config({"servers": {"shop": workshop(tmp_path / "trace", name="Other")}})
        await owner.gateway.until_logged("configuration reloaded")
        assert "stopped by its owner" in (await owner.get("/page/servers/shop")).text  # a reload does not start it
        assert (await owner.post("/page/servers/shop/restart")).status_code == 303
        assert await owner.flash() == "Started: <code>shop</code> runs with 8 tools."
        changes = await owner.changes()
        assert changes.count(("page", "server/restart", "servers.shop")) == 2
        assert ("page", "server/stop", "servers.shop") in changes
        assert ("file", "configuration/change", "servers.shop") in changes


async def test_every_form_keeps_the_comments_and_the_commands_agree(tmp_path: Path) -> None:
    async with serving("modern") as remote, _commented(tmp_path) as owner:
        url = f"http://127.0.0.1:{remote.port}/mcp"
        typed = {"name": "far", "url": url, "headers": "X-Key: abc", "projects": "attic"}
        asked = await owner.post("/page/servers/add", typed)
        assert "Add the server far?" in asked.text
        assert "far" not in owner.gateway.config_file.read_text()  # not before it is confirmed
        saved = await owner.confirm("/page/servers/add", typed)
        assert saved.headers["location"] == "/page/servers/far", saved.text
        assert "runs with 1 tool" in await owner.flash()
        assert remote.headers[-1]["X-Key"] == "abc"
        assert (await owner.confirm("/page/servers/far/edit", {"title": "Far away", "url": url})).status_code == 303
        assert (await owner.confirm("/page/servers/far/switch", {"enabled": "no"})).status_code == 303
        text = owner.gateway.config_file.read_text()
        assert all(comment in text for comment in ("# mine", "# the workshop", "# traced", "# under the roof"))
        entry = load(owner.gateway.config_file, {}).servers["far"]
        assert (entry.name, entry.projects, entry.enabled) == ("Far away", (), False)
        listed = json.loads(await command(owner, "server", "list", "--json"))["servers"]
        (shown,) = (one for one in listed if one["id"] == "far")
        assert (shown["enabled"], shown["name"]) == (False, "Far away")
        assert (await owner.confirm("/page/servers/far/remove")).status_code == 303
        assert owner.gateway.config_file.read_text() == _commented_text(tmp_path)
        changes = [code for client, _, code in await owner.changes() if client == "page"]
        assert changes.count("servers.far") == 4


async def test_a_file_that_changed_meanwhile_is_shown_again(tmp_path: Path) -> None:
    async with _commented(tmp_path) as owner:
        typed = {"name": "far", "url": "http://127.0.0.1:9/mcp"}
        asked = hidden_fields((await owner.post("/page/servers/add", typed)).text)
        file = owner.gateway.config_file
        file.write_text(file.read_text() + "# later\n")
        again = await owner.post("/page/servers/add", asked)
        assert "has changed since" in again.text
        assert "127.0.0.1:9" not in file.read_text()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"name": "x", "url": "ftp://a.example/"}, "starts with http://"),
        ({"name": "", "url": "http://a.example/"}, "Give the server a name"),
        ({"name": "shop", "url": "http://a.example/"}, "already a server"),
        ({"name": "x", "url": "http://a.example/", "headers": "nonsense"}, "one header a line"),
        ({"name": "x", "url": "http://a.example/", "headers": "X-A: 1\nx-a: 2"}, "is there twice"),
        ({"name": "x", "url": "http://a.example/", "projects": "attics"}, "Did you mean"),
        ({"name": "x", "url": "http://a b/"}, "was not changed"),
    ],
)
async def test_bad_input_is_named_and_kept_in_the_form(owner: Owner, typed: dict[str, str], said: str) -> None:
    before = owner.gateway.config_file.read_text()
    refused = await owner.post("/page/servers/add", typed)
    assert refused.status_code == 400
    assert said in refused.text
    assert typed["url"] in refused.text.replace("&amp;", "&")
    assert owner.gateway.config_file.read_text() == before


async def test_the_gateway_is_not_its_own_server(owner: Owner) -> None:
    refused = await owner.post("/page/servers/add", {"name": "me", "url": owner.gateway.url})
    assert "this gateway itself" in refused.text


async def test_pasted_programs_become_commands_and_are_never_started(owner: Owner, tmp_path: Path) -> None:
    started = tmp_path / "started"
    block = {
        "mcpServers": {
            "far away": {"url": "http://127.0.0.1:9/mcp"},
            "near": {"command": "touch", "args": [str(started)], "env": {"A": "b c"}},
            "sly": {"url": "http://127.0.0.1:9/x", "headers": {"A": "\u0024{HOME}"}},
        }
    }
    pasted = json.dumps(block).replace("${", "\\u0024{")  # as text it has no reference
    read = await owner.post("/page/servers/paste", {"text": pasted})
    assert read.status_code == 200, read.text
    assert "pointsman server add near --env" in read.text
    assert "a reference could send a secret" in read.text
    asked = await owner.post("/page/servers/paste", {"text": pasted, "step": "add"})
    assert "Add 1 server?" in asked.text
    assert "touch" not in asked.text.partition('class="diff"')[2].partition("</pre>")[0]
    saved = await owner.post("/page/servers/paste", hidden_fields(asked.text))
    assert saved.status_code == 303, saved.text
    servers = load(owner.gateway.config_file, {}).servers
    assert servers["far-away"].url == "http://127.0.0.1:9/mcp"
    assert not {"near", "sly"} & servers.keys()
    assert not started.exists()
    assert (await owner.confirm("/page/servers/far-away/remove")).status_code == 303


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "http://127.0.0.1:9/", "headers": {"A": "{env:HOME}"}},
        {"url": "http://127.0.0.1:9/", "bearer_token_env_var": "HOME"},
        {"url": "http://127.0.0.1:9/", "env_http_headers": {"A": "HOME"}},
    ],
)
async def test_no_form_of_a_reference_reaches_the_file(owner: Owner, entry: dict[str, Any]) -> None:
    before = owner.gateway.config_file.read_text()
    text = json.dumps({"mcpServers": {"sly": entry}})
    read = await owner.post("/page/servers/paste", {"text": text})
    assert "sly" not in hidden_fields(read.text).get("text", [""])[0]
    refused = await owner.post("/page/servers/paste", {"text": text, "step": "add"})
    assert refused.status_code != 303
    assert owner.gateway.config_file.read_text() == before


async def test_a_key_in_a_url_is_neither_shown_nor_written_out(tmp_path: Path) -> None:
    secret = "k3y-of-the-owner"
    url = "http://127.0.0.1:9/mcp?key=${FAR_KEY}"
    config = {"servers": {"far": {"url": url}}}
    started = gateway_process(tmp_path, config, env={"FAR_KEY": secret}, without=["far"])
    async with started as gateway, owner_of(gateway) as owner:
        for path in ("/", "/page/servers", "/page/servers/far"):
            assert secret not in (await owner.get(path)).text, path
        asked = await owner.post("/page/servers/far/edit", {"title": "Far away", "url": ""})
        assert secret not in asked.text
        await owner.post("/page/servers/far/edit", hidden_fields(asked.text))
        text = owner.gateway.config_file.read_text()
        assert "Far away" in text
        assert secret not in text
        assert "${FAR_KEY}" in text


async def test_headers_do_not_follow_a_url_to_another_address(tmp_path: Path) -> None:
    config = {"servers": {"far": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer s"}}}}
    async with gateway_process(tmp_path, config, without=["far"]) as gateway, owner_of(gateway) as owner:
        refused = await owner.post("/page/servers/far/edit", {"url": "http://evil.example/mcp"})
        assert refused.status_code == 400
        assert "they would go to the new address" in refused.text
        assert "Bearer s" not in (await owner.get("/page/servers/far")).text


@pytest.mark.browser
async def test_looks_right_in_a_browser(screens: Screens) -> None:
    await screens.check("servers", "/page/servers")
    await screens.check("server", "/page/servers/shop")

    async def add(page: Page) -> None:
        await page.fill("#name", "tracker")
        await page.fill("#url", "https://tracker.example/mcp")
        await page.select_option("#oauth", "auto")
        await page.click("text=Show the change")
        await page.wait_for_selector(".diff .add")

    await screens.check("servers-confirm", "/page/servers", add)


@pytest.mark.browser
async def test_adds_and_removes_in_a_browser_with_and_without_script(screens: Screens) -> None:
    async with serving("modern") as remote:
        for script in (True, False):
            async with screens.page(script=script) as page:
                await page.goto(screens.owner.gateway.base_url + "/page/servers")
                await page.fill("#name", f"far {HOSTILE}")
                await page.fill("#url", f"http://127.0.0.1:{remote.port}/mcp")
                await page.click("text=Show the change")
                await page.wait_for_selector(".diff .add")
                await page.click("text=Save")
                await page.wait_for_selector(".flash.ok")
                assert "runs with 1 tool" in (await page.text_content(".flash") or "")
                await page.click("text=Remove")
                await page.wait_for_selector(".button.danger:has-text('Save')")
                await page.click(".button.danger")
                await page.wait_for_selector(".flash.ok:has-text('Removed')")


# ------------------------------------------------------------------ helpers


def _commented_text(folder: Path) -> str:
    digest = hashlib.sha256(b"ptm_x").hexdigest()
    return COMMENTED.format(python=sys.executable, program=WORKSHOP, trace=folder / "trace", digest=digest)


@asynccontextmanager
async def _commented(folder: Path) -> AsyncIterator[Owner]:
    """A gateway whose file a person has written."""
    async with running_page(folder, {}) as owner:
        owner.gateway.config_file.write_text(_commented_text(folder))
        await owner.gateway.until_logged("server shop is running")
        yield owner


@pytest.mark.browser
async def test_a_log_is_followed_and_a_pasted_block_is_read(screens: Screens) -> None:
    """The server writes a line with each start."""

    async def paste(page: Page) -> None:
        await page.fill(
            "#text", json.dumps({"far": {"url": "http://127.0.0.1:9/"}, "near": {"command": "uvx", "args": ["x"]}})
        )
        await page.click("text=Read it")
        await page.wait_for_selector("text=pointsman server add near uvx x")

    await screens.check("servers-pasted", "/page/servers", paste)
    async with screens.page() as page:
        await page.goto(screens.owner.gateway.base_url + "/page/servers/noisy")
        before = await page.inner_text("#log")
        assert "begun" in before
        await asyncio.to_thread(ask, screens.owner.gateway.state_dir, "restart_server", server="noisy")
        await page.wait_for_function("n => document.getElementById('log').innerText.length > n", arg=len(before))
