"""The screen of the archive: real documents in a real archive, searched through its tools."""

from __future__ import annotations

import html
import json
import re
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pointsman.archive.ingest.progress import IngestProgress
from pointsman.archive.store.sqlite.storage import SqliteStorage
from pointsman.router.page.graph import MAX_NODES, draw_graph
from pointsman.router.page.screens.archive import marked_words, marks
from tests.router.conftest import audit_rows
from tests.router.page.browser import Screens
from tests.router.page.owner import HOSTILE, Owner, command, running_page

NOTES = {
    "zebra.md": "# Zebra crossings\n\nA zebra crossing lets people pass: [lakes](lake.md) and <https://example.com/road>.\n",
    "lake.md": "# Quiet lakes\n\n## Depth\n\nA lake is deep. The zebra drinks. [See](signs.md)\n\n## Shore\n\nSand.\n",
    "signs.md": "# Signs\n\nSigns before [a zebra crossing](zebra.md) are blue.\n",
    "evil.md": f"# {HOSTILE} zebra\n\nzebra <script>alert(1)</script> [x](javascript:alert(2)) {HOSTILE}\n",
}


@pytest.fixture(scope="module")
async def owner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Owner]:
    folder = tmp_path_factory.mktemp("page")
    notes = folder / "notes"
    notes.mkdir()
    for name, text in NOTES.items():
        (notes / name).write_text(text)
    servers = {"archive": {"bundled": "archive", "db": str(folder / "archive.db")}}
    async with running_page(folder, {"servers": servers}) as signed_in:
        await signed_in.gateway.until_logged("server archive is running")
        await _archive(signed_in, "ingest", str(notes), "--description", HOSTILE)
        yield signed_in


async def _archive(owner: Owner, *words: str) -> str:
    return await command(owner, "archive", *words, "--config", str(owner.gateway.config_file))


async def test_collections_have_counts_and_the_state_of_vectors(owner: Owner) -> None:
    text = (await owner.get("/page/archive")).text
    stats = json.loads(await _archive(owner, "stats", "--json"))
    assert f"{sum(one['documents'] for one in stats['collections']):,}" in text
    assert f"{sum(one['chunks'] for one in stats['collections']):,}" in text
    assert "complete" in text or "waiting" in text
    assert "notes</strong>" in text
    assert HOSTILE not in text
    assert "s ago" in text  # the ingest of the fixture


async def test_documents_are_found_with_marks(owner: Owner) -> None:
    text = (await owner.get("/page/archive?q=zebra+crossing")).text
    assert "<mark>zebra crossing</mark>" in text.lower()
    assert "cites 2" in text
    assert "Read as" in (await owner.get("/page/archive?q=crosssing")).text


async def test_passages_are_found_with_marks(owner: Owner) -> None:
    text = (await owner.get("/page/archive?q=deep+lake&view=passages")).text
    assert "A <mark>lake</mark> is <mark>deep</mark>" in text
    assert "passage 1 of" in text


async def test_the_graph_leads_to_documents(owner: Owner) -> None:
    text = (await owner.get("/page/archive?q=crossing&view=graph")).text
    drawn = text.partition('<svg class="graph"')[2].partition("</svg>")[0]
    links = [html.unescape(one) for one in re.findall(r'<a href="([^"]+)"', drawn)]
    assert any("document=lake.md" in one for one in links)
    assert "example.com/road" in drawn
    for link in links:
        assert link.startswith("/page/archive/document?")
        assert (await owner.get(link)).status_code == 200


async def test_a_document_is_read_whole_and_by_section(owner: Owner) -> None:
    address = "/page/archive/document?server=archive&collection=notes&document=lake.md"
    whole = (await owner.get(address + "&q=zebra")).text
    assert "The <mark>zebra</mark> drinks" in whole
    assert "Sand." in whole
    part = (await owner.get(address + "&section=Depth")).text
    assert "Sand." not in part
    listed = (await owner.get("/page/archive/collection?server=archive&collection=notes")).text
    assert all(name in listed for name in NOTES)


async def test_hostile_texts_are_text(owner: Owner) -> None:
    for path in (
        "?q=zebra",
        "?q=zebra&view=passages",
        "?q=zebra&view=graph",
        "/collection?server=archive&collection=notes",
    ):
        text = (await owner.get(f"/page/archive{path}")).text
        assert "&lt;img src=x" in text, path
        assert "<img src=x" not in text
        assert "<script>alert" not in text
        assert 'href="javascript:' not in text
    document = await owner.get("/page/archive/document?server=archive&collection=notes&document=evil.md")
    assert "&lt;script&gt;alert(1)" in document.text
    typed = (await owner.get("/page/archive?q=" + "%3Cimg%20src%3Dx%3E")).text
    assert "<img src=x" not in typed


@pytest.mark.parametrize(
    "path",
    [
        "?server=nothing",
        "/document?server=archive&collection=notes&document=nothing.md",
        "/document?server=archive&collection=notes&document=lake.md&section=Nothing",
        "/document?server=archive&collection=none&document=lake.md",
        "/document?server=archive",
        "/document?server=test&collection=notes&document=lake.md",
        "/collection?server=archive&collection=none",
    ],
)
async def test_what_does_not_exist_is_not_found(owner: Owner, path: str) -> None:
    assert (await owner.get(f"/page/archive{path}")).status_code == 404


async def test_the_owner_is_the_one_who_asks(owner: Owner) -> None:
    await owner.get("/page/archive?q=zebra")
    rows = await audit_rows(owner.gateway.state_dir, "--kind", "execute")
    assert rows[-1]["toolKey"] == "archive:searchLocalArchives"
    assert rows[-1]["token"] == "@owner"


async def test_a_run_that_is_under_way_is_shown(owner: Owner) -> None:
    path = owner.gateway.config_file.parent / "archive.db"
    storage = SqliteStorage(path)
    try:
        now = [time.time() - 10]
        progress = IngestProgress(storage.key_values, "notes", Path("/somewhere/notes"), wall=lambda: now[0])
        for number, _ in enumerate(progress.over(range(8), 8)):
            now[0] += 1
            if number == 3:
                break
        text = (await owner.get("/page/archive")).text
        assert "Reading notes" in text
        assert "3 of 8 files" in text
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE memos SET value = json_set(value, '$.updated', 1) WHERE name = 'ingest/notes'")
        assert "Not finished: notes" in (await owner.get("/page/archive")).text
        progress.end(0)
    finally:
        storage.close()
    assert "Not finished" not in (await owner.get("/page/archive")).text


async def test_without_an_archive_the_next_step_is_said(tmp_path: Path) -> None:
    async with running_page(tmp_path, {}) as owner:
        assert "bundled: archive" in (await owner.get("/page/archive")).text
        owner.gateway.write_config({"servers": {"old": {"bundled": "archive", "enabled": False}}})
        await owner.gateway.until_logged("configuration reloaded")
        off = (await owner.get("/page/archive")).text
        assert "The archive is switched off" in off
        assert 'href="/page/servers/old"' in off
        servers = {name: {"bundled": "archive", "db": str(tmp_path / f"{name}.db")} for name in ("one", "two")}
        owner.gateway.write_config({"servers": servers})
        await owner.gateway.until_logged("server two is running")
        second = (await owner.get("/page/archive?server=two")).text
        assert '<option value="two" selected>' in second
        assert "--server two" in second


def test_marks_are_the_only_tags() -> None:
    assert str(marks("a <mark>b &amp; c</mark> &lt;i&gt;")) == "a <mark>b &amp; c</mark> &lt;i&gt;"
    assert (
        str(marked_words("<b>Lake</b> lakes", "lake (x")) == "&lt;b&gt;<mark>Lake</mark>&lt;/b&gt; <mark>lake</mark>s"
    )


def test_a_large_graph_is_bounded_and_escaped() -> None:
    nodes = [
        {"id": f"c/{number}", "label": HOSTILE, "type": "source" if number < 5 else "target"} for number in range(200)
    ]
    edges = [{"from": "c/0", "to": f"c/{number}", "confidence": 1.0} for number in range(200)]
    graph = {"nodes": nodes, "edges": edges, "truncated": True}
    drawn = str(draw_graph(graph, HOSTILE, lambda one: f'/x?"{one}'))
    assert drawn.count("<rect") == MAX_NODES
    assert "<img" not in drawn
    assert 'href="/x?&#34;c/0"' in drawn
    assert drawn == str(draw_graph(graph, HOSTILE, lambda one: f'/x?"{one}'))


@pytest.mark.browser
async def test_looks_right_in_a_browser(screens: Screens) -> None:
    await screens.check("archive", "/page/archive")
    await screens.check("archive-documents", "/page/archive?q=zebra+crossing")
    await screens.check("archive-passages", "/page/archive?q=deep+lake&view=passages")
    await screens.check("archive-graph", "/page/archive?q=audit+collection:pointsman-docs&view=graph")
    await screens.check(
        "archive-document",
        "/page/archive/document?server=archive&collection=pointsman-docs&document=docs/reference/audit.md&q=journal",
    )


@pytest.mark.browser
async def test_a_box_of_the_graph_opens_its_document(screens: Screens) -> None:
    async with screens.page() as page:
        await page.goto(screens.owner.gateway.base_url + "/page/archive?q=crossing&view=graph")
        await page.click("svg.graph a:has-text('Quiet lakes')")
        await page.wait_for_selector("h1:has-text('Quiet lakes')")
