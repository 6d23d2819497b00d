"""The activity: live rows, filters in the address, rounds, export, and again."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pointsman.router.audit.database import FILE, open_database
from pointsman.router.owner.client import ask
from tests.router.conftest import ACCEPT, audit_rows
from tests.router.page.browser import Screens
from tests.router.page.office import ESCAPES, office
from tests.router.page.owner import HOSTILE, Owner, hidden_fields, running_page


@pytest.fixture(scope="module")
async def owner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Owner]:
    folder = tmp_path_factory.mktemp("activity")
    async with running_page(folder, office(folder)) as signed_in:
        await used(signed_in)
        yield signed_in


async def used(owner: Owner) -> None:
    """What an assistant does, and a client that means harm."""
    await said(owner, "tool_discovery", {"query": ["read a file", "send mail"]})
    await said(owner, "tool_execute", {"toolKey": "files:read_file", "arguments": {"path": "/etc/motd"}})
    await said(owner, "tool_execute", {"toolKey": "shop:break", "arguments": {}})
    await said(owner, "tool_execute", {"toolKey": "files:delete_file", "arguments": {}})
    await said(owner, "tool_discovery", {"query": f"{HOSTILE}{ESCAPES}"}, client=f"{HOSTILE}{ESCAPES}")
    await said(owner, "tool_execute", {"toolKey": f"bad:{HOSTILE}", "arguments": {"<b>": ESCAPES}})


async def said(owner: Owner, name: str, arguments: Any, client: str = "assistant") -> None:
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"},
    }
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments, "_meta": envelope},
    }
    headers = {
        "Accept": ACCEPT,
        "Authorization": "Bearer laptop",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }
    answer = await owner.http.post(owner.gateway.base_url + "/mcp", json=body, headers=headers)
    assert answer.status_code == 200, answer.text


async def shown(owner: Owner, query: str = "") -> str:
    page = await owner.get(f"/page/activity{query}")
    assert page.status_code == 200, page.text
    return page.text.partition('id="rows"')[2]


def seqs(text: str) -> list[int]:
    return [int(seq) for seq in re.findall(r'href="/page/activity/(\d+)\?request=[^"]+"', text)]


async def test_shows_the_latest_rows_first(owner: Owner) -> None:
    rows = await audit_rows(owner.gateway.state_dir)
    assert seqs(await shown(owner)) == [row["seq"] for row in rows][::-1][:50]


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("kind=discovery", ("--kind", "discovery")),
        ("outcome=error", ("--outcome", "error")),
        ("token=laptop&kind=execute", ("--token", "laptop", "--kind", "execute")),
        ("tool=files%3Aread_file", ("--tool", "files:read_file")),
        ("server=shop", ("--server", "shop")),
        ("since=1h", ("--since", "1h")),
        ("until=2020-01-01", ("--until", "2020-01-01")),
        ("since=2020-01-01T00:00&until=2099-01-01T00:00Z", ()),
    ],
)
async def test_filters_are_those_of_the_command(owner: Owner, query: str, options: tuple[str, ...]) -> None:
    rows = await audit_rows(owner.gateway.state_dir, *options)
    assert seqs(await shown(owner, f"?{query}")) == [row["seq"] for row in rows][::-1]


async def test_text_and_outcomes_under_way(owner: Owner) -> None:
    assert "read a file" in html.unescape(await shown(owner, "?text=SEND+mail"))
    assert "No row fits" in await shown(owner, "?text=nothing+like+it")
    assert "No row fits" in await shown(owner, "?outcome=open")
    hanging = asyncio.create_task(
        asyncio.to_thread(
            ask,
            owner.gateway.state_dir,
            "call",
            tool="shop:wait",
            arguments={"object": str(owner.gateway.state_dir / "go")},
        )
    )
    async with asyncio.timeout(10):
        while "shop:wait" not in (text := await shown(owner, "?outcome=open")):
            await asyncio.sleep(0.02)
    assert "under way" in text
    (owner.gateway.state_dir / "go").touch()
    await hanging


@pytest.mark.parametrize("query", ["kind=x", "outcome=y", "since=yesterday", "until=9999999d-", "text=" + "x" * 1001])
async def test_a_wrong_filter_is_named(owner: Owner, query: str) -> None:
    for path in ("/page/activity", "/page/activity/export"):
        assert (await owner.get(f"{path}?{query}")).status_code == 409


async def test_a_row_is_opened(owner: Owner) -> None:
    [row] = await audit_rows(owner.gateway.state_dir, "--tool", "files:read_file")
    text = html.unescape((await owner.get(f"/page/activity/{row['seq']}")).text)
    assert row["requestId"] in text
    assert '"path": "/etc/motd"' in text
    for seq in ("0", "99999999", "x", "9" * 40):
        assert (await owner.get(f"/page/activity/{seq}")).status_code == 404


async def test_find_again_searches_now_as_the_same_caller(owner: Owner) -> None:
    row = (await audit_rows(owner.gateway.state_dir, "--kind", "discovery", "--token", "laptop"))[0]
    opened = (await owner.get(f"/page/activity/{row['seq']}")).text
    fields = hidden_fields(opened)
    assert (fields["queries"], fields["token"]) == (["read a file\nsend mail"], ["laptop"])
    answer = await owner.post("/page/lab", {name: values[0] for name, values in fields.items()})
    assert "files:read_file" in answer.text
    [again] = (await audit_rows(owner.gateway.state_dir, "--kind", "discovery"))[-1:]
    assert (again["token"], again["code"], again["queries"]) == ("@owner", "tokens.laptop", row["queries"])
    of_lab = (await owner.get(f"/page/activity/{again['seq']}")).text
    assert hidden_fields(of_lab)["token"] == ["laptop"]


async def test_call_again_is_a_draft(owner: Owner) -> None:
    [row] = await audit_rows(owner.gateway.state_dir, "--tool", "files:read_file")
    opened = html.unescape((await owner.get(f"/page/activity/{row['seq']}")).text)
    link = re.search(r'href="(/page/tools/one[^"]*)"', opened)
    assert link is not None
    draft = (await owner.get(link[1])).text
    assert ">\n/etc/motd</textarea>" in draft
    assert "Nothing is sent" in draft
    other = (await owner.get(f"/page/tools/one?key=shop%3Apaint&row={row['seq']}")).text
    assert "does not have the arguments" in other
    assert len(await audit_rows(owner.gateway.state_dir, "--tool", "files:read_file")) == 1


async def test_the_export_is_what_the_command_prints(owner: Owner) -> None:
    for query, options in (("", ()), ("?kind=execute&token=laptop", ("--kind", "execute", "--token", "laptop"))):
        export = await owner.get(f"/page/activity/export{query}")
        assert export.headers["content-disposition"] == 'attachment; filename="audit.jsonl"'
        assert [json.loads(line) for line in export.text.splitlines()] == await audit_rows(
            owner.gateway.state_dir, *options
        )
        assert "\x1b" not in export.text


async def test_hostile_texts_are_text(owner: Owner) -> None:
    rows = await audit_rows(owner.gateway.state_dir)
    pages = [(await owner.get("/page/activity")).text]
    pages += [(await owner.get(f"/page/activity/{row['seq']}")).text for row in rows]
    pages.append((await owner.get("/page/activity?text=%3Cimg+src%3Dx%3E&token=%22%3E%3Cimg&code=%3Cimg")).text)
    for text in pages:
        for bad in ("<img", "\x1b", "\u202e", "}}49"):
            assert bad not in text
    assert "&lt;img src=x" in pages[0]


async def test_many_rows_are_paged_and_streamed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    with closing(open_database(state / FILE)) as connection:
        connection.execute(
            "WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 200000) INSERT INTO audit"
            " (seq, run, time_ms, request_id, kind, token, client, method, queries, outcome, ms) SELECT seq, 'r',"
            " 1700000000000 + seq, 'r' || seq, 'discovery', 't', ?, 'tools/call', '[\"' || ? || seq || '\"]', 'ok', 1"
            " FROM n",
            ("c" * 200, "word " * 200),
        )
    async with running_page(tmp_path, {}) as owner:
        first = await owner.get("/page/activity?kind=discovery")
        assert len(first.content) < 200_000
        assert seqs(first.text) == list(range(200_000, 199_950, -1))
        link = re.search(r'rel="next" href="([^"]+)"', first.text)
        assert link is not None
        assert seqs((await owner.get(html.unescape(link[1]))).text) == list(range(199_950, 199_900, -1))
        far = await owner.get("/page/activity?text=nowhere")
        assert "Look further back" in far.text
        assert seqs((await owner.get("/page/activity?before=3")).text) == [2, 1]
        url = owner.gateway.base_url + "/page/activity/export"
        async with owner.http.stream("GET", url) as stream:  # left after the first block
            async for block in stream.aiter_bytes():
                assert json.loads(block.splitlines()[0])["seq"] == 1
                break
        lines = 0
        async with owner.http.stream("GET", url) as stream:
            async for line in stream.aiter_lines():
                lines += bool(line)
        assert lines >= 200_000


@pytest.mark.browser
async def test_looks_right_in_a_browser(screens: Screens) -> None:
    rows = await audit_rows(screens.owner.gateway.state_dir, "--tool", "files:read_file")
    await screens.check("activity", "/page/activity")
    await screens.check("entry", f"/page/activity/{rows[0]['seq']}")


@pytest.mark.browser
async def test_a_new_row_appears_without_a_reload(screens: Screens) -> None:
    async with screens.page() as page:
        await page.goto(screens.owner.gateway.base_url + "/page/activity?tool=shop%3Acolour")
        await page.wait_for_selector("text=No row fits this filter")
        await asyncio.to_thread(ask, screens.owner.gateway.state_dir, "call", tool="shop:colour", arguments={})
        await page.wait_for_selector("td:has-text('shop:colour')")
