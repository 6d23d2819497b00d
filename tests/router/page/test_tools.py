"""The screen of all tools: filter, switches, and the form to try one."""

from __future__ import annotations

import asyncio
import html
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from pointsman.router.owner.client import ask
from tests.router.conftest import audit_rows, from_file
from tests.router.page.browser import Screens
from tests.router.page.office import office, tool
from tests.router.page.owner import Owner, hidden_fields, running_page


@pytest.fixture(scope="module")
async def owner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Owner]:
    folder = tmp_path_factory.mktemp("tools")
    async with running_page(folder, office(folder)) as signed_in:
        yield signed_in


def main(text: str) -> str:
    return text.partition("<main")[2]


async def test_lists_the_tools_of_all_servers_and_says_which_are_missing(owner: Owner) -> None:
    text = main((await owner.get("/page/tools")).text)
    for key in ("files:read_file", "mail:send_email", "shop:paint"):
        assert f">{key}</a>" in text
    assert "off:paint" not in text
    assert "<code>gone</code>" in text
    assert text.count(">Allow<") == 1


@pytest.mark.parametrize(
    ("query", "expected", "missing"),
    [
        ("q=READ+text", "files:read_file", "mail:"),
        ("server=mail", "mail:search_email", "files:"),
        ("show=off", "files:delete_file", "files:read_file"),
        ("show=reads&q=file", "files:list_folder", "files:write_file"),
        ("q=nothing-has-this", "No tool fits this filter", "files:"),
        ("page=99999", "No tools yet", "files:read"),
        ("page=-1&show=%00&server=", "files:read_file", "off:paint"),
    ],
)
async def test_filters(owner: Owner, query: str, expected: str, missing: str) -> None:
    text = main((await owner.get(f"/page/tools?{query}")).text).partition('id="list"')[2]
    assert expected in text
    assert missing not in text


async def test_a_switch_edits_the_file_after_a_diff_and_its_comments_stay(tmp_path: Path) -> None:
    async with running_page(tmp_path, office(tmp_path)) as owner:
        config = owner.gateway.config_file
        text = f"# ours\n{config.read_text()}"
        config.write_text(text)
        fields = {"key": "files:read_file", "allow": "no", "at": "server=files&evil=1&q="}
        asked = await owner.post("/page/tools/switch", fields)
        assert 'class="diff"' in asked.text
        assert "read_file" in asked.text
        assert config.read_text() == text
        done = await owner.confirm("/page/tools/switch", fields)
        assert (done.status_code, done.headers["location"]) == (303, "/page/tools?server=files")
        assert config.read_text().startswith("# ours\n")
        listed = await asyncio.to_thread(ask, owner.gateway.state_dir, "tools", server="files")
        allowed = {one["toolKey"]: one["allowed"] for one in listed["tools"]}
        assert allowed == {
            f"files:{name}": name in ("write_file", "list_folder")
            for name in ("read_file", "write_file", "list_folder", "delete_file")
        }
        assert "page" in [client for client, _, what in await owner.changes() if what == "servers.files"]
        await owner.confirm("/page/tools/switch", {"key": "files:delete_file", "allow": "yes"})
        listed = await asyncio.to_thread(ask, owner.gateway.state_dir, "tools", server="files")
        assert {one["toolKey"]: one["allowed"] for one in listed["tools"]}["files:delete_file"]


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/page/tools/switch", {"key": "files:nothing", "allow": "no"}, 404),
        ("/page/tools/switch", {"key": "nowhere:x", "allow": "no"}, 404),
        ("/page/tools/switch", {"key": "plain", "allow": "no"}, 404),
        ("/page/tools/switch", {"key": "files:delete_file", "allow": "no"}, 409),  # it is so already
        ("/page/tools/call", {"key": "files:nothing"}, 404),
        ("/page/tools/call", {"key": "files:read_file", "more": "[1]"}, 400),
        ("/page/tools/call", {"key": "mail:send_email", "a:copies": "many"}, 400),
        ("/page/tools/call", {"key": "mail:send_email", "a:subject": "${HOME}"}, 400),
    ],
)
async def test_errors(owner: Owner, path: str, fields: dict[str, str], status: int) -> None:
    before = len(await audit_rows(owner.gateway.state_dir, "--kind", "execute"))
    assert (await owner.post(path, fields)).status_code == status
    assert len(await audit_rows(owner.gateway.state_dir, "--kind", "execute")) == before


async def test_an_error_keeps_what_was_typed(owner: Owner) -> None:
    fields = {"key": "mail:send_email", "a:copies": "many", "a:subject": "<b>", "more": '{"x": 1}'}
    text = (await owner.post("/page/tools/call", fields)).text
    assert "This is not a number." in text
    assert ">\n&lt;b&gt;</textarea>" in text  # a string may have several lines
    assert "{&#34;x&#34;: 1}" in text


async def test_a_tool_that_reads_is_called_at_once_as_the_owner(owner: Owner) -> None:
    answer = await owner.post("/page/tools/call", {"key": "files:read_file", "a:path": "/tmp/x"})
    assert answer.status_code == 200
    text = html.unescape(answer.text)
    assert '"path": "/tmp/x"' in text
    assert " bytes in " in text
    [row] = [
        row
        for row in await audit_rows(owner.gateway.state_dir, "--kind", "execute")
        if row["toolKey"] == "files:read_file"
    ][-1:]
    assert (row["token"], row["client"], row["outcome"], row["arguments"]) == (
        "@owner",
        "page",
        "ok",
        {"path": "/tmp/x"},
    )


async def test_a_tool_that_may_change_things_is_confirmed_first(owner: Owner) -> None:
    fields = {
        "key": "mail:send_email",
        "a:to": '["a@b.example"]',
        "a:subject": "Hi",
        "a:draft": "true",
        "a:command": "none",
    }
    asked = await owner.post("/page/tools/call", fields)
    assert "may change things" in asked.text
    assert "a@b.example" in asked.text
    assert not [row for row in await audit_rows(owner.gateway.state_dir) if row["toolKey"] == "mail:send_email"]
    sent = await owner.http.post(
        owner.gateway.base_url + "/page/tools/call",
        data=hidden_fields(asked.text),
        headers={"Origin": owner.gateway.base_url},
    )
    assert "Structured content" in sent.text
    [row] = [row for row in await audit_rows(owner.gateway.state_dir) if row["toolKey"] == "mail:send_email"]
    assert row["arguments"] == {"to": ["a@b.example"], "subject": "Hi", "draft": True, "command": "none"}


async def test_what_a_call_answers_is_shown_whatever_it_is(owner: Owner) -> None:
    broken = await owner.post("/page/tools/call", {"key": "shop:break", "confirmed": "yes"})
    assert ">error</span>" in broken.text
    refused = await owner.post("/page/tools/call", {"key": "shop:refuse", "confirmed": "yes"})
    assert "The server answered with an error" in refused.text
    wrong = await owner.post("/page/tools/call", {"key": "shop:paint", "more": '{"coats": 0}', "confirmed": "yes"})
    assert ">error</span>" in wrong.text
    switched_off = await owner.post("/page/tools/call", {"key": "files:delete_file", "confirmed": "yes"})
    assert "pointsman tools list" in switched_off.text


@pytest.mark.parametrize(
    "key", ["bad:poke", "bad:x<img src=x onerror=alert(1)>{{7*7}}", "bad:'\"><script>alert(1)</script>"]
)
async def test_hostile_texts_are_text(owner: Owner, key: str) -> None:
    pages = [
        (await owner.get("/page/tools?server=bad")).text,
        (await owner.get(f"/page/tools/one?key={quote(key)}")).text,
        (await owner.post("/page/tools/call", {"key": key, "more": '{"a": "<script>"}', "confirmed": "yes"})).text,
        (await owner.post("/page/tools/switch", {"key": key, "allow": "no"})).text,
    ]
    for text in pages:
        assert "<img" not in text
        assert "<script>" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "}}49" not in text
        assert "poke" in text or "alert(1)" in text


async def test_ten_thousand_tools_stay_small(tmp_path: Path) -> None:
    many: list[dict[str, Any]] = [tool(f"{'long_name_' * 20}{number}", "Words " * 30) for number in range(9_990)]
    many += [tool("x" * 400 + str(number), "A name of great length") for number in range(10)]
    config = {"servers": {"many": from_file(tmp_path / "many.json", "m", {"tools": many})}}
    async with running_page(tmp_path, config) as owner:
        owner.http.timeout = httpx2.Timeout(120)  # the first search indexes all tools
        await asyncio.to_thread(ask, owner.gateway.state_dir, "tools")  # until they are listed
        for path in ("", "?page=100", "?page=200", "?q=words+9989", "?q=great"):
            page = await owner.get(f"/page/tools{path}")
            assert page.status_code == 200
            assert len(page.content) < 200_000
        assert "10,000 tools" in page.text
        answer = await owner.post(
            "/page/lab", {"queries": "words in a long name\ngreat length", "most": "100", "compare": "yes"}
        )
        assert "What the model gets" in answer.text
        assert len(answer.content) < 200_000


@pytest.mark.browser
async def test_looks_right_in_a_browser(screens: Screens) -> None:
    await screens.check("tools", "/page/tools")
    await screens.check("tool", "/page/tools/one?key=mail%3Asend_email")


@pytest.mark.browser
async def test_a_call_in_a_browser(screens: Screens) -> None:
    async def call(page: Any) -> None:
        await page.fill("#field-1", "/tmp/notes.txt")
        await page.click("text=Call it")
        await page.wait_for_selector("#result-title")

    await screens.check("tool-result", "/page/tools/one?key=files%3Aread_file", call)
