"""Tools, lab and activity with the gateway in the process of the test, where coverage is measured."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

from pointsman.router.audit.database import FILE
from tests.router.page.test_in_process import _walking


async def test_every_screen_and_action_answers(tmp_path: Path) -> None:
    async with _walking(tmp_path) as walker:
        assert (await walker.post("/page/servers/shop/test", {})).status_code == 303  # it has listed its tools then
        for path in (
            "/page/tools?q=paint&show=reads",
            "/page/tools/one?key=shop:paint&row=1",
            "/page/lab?queries=x",
            "/page/lab/kept",
            "/page/activity?since=1h&until=2099-01-01&text=x",
            "/page/activity/1",
            "/page/activity/export?kind=change",
        ):
            assert (await walker.get(path)).status_code == 200, path
        assert (await walker.post("/page/tools/call", {"key": "shop:paint", "a:coats": "x"})).status_code == 400
        paint = {"key": "shop:paint", "a:object": "door", "a:coats": "2", "more": '{"x": 1}'}
        assert (await walker.confirm("/page/tools/call", paint)).status_code == 200
        assert (await walker.confirm("/page/tools/switch", {"key": "shop:paint", "allow": "no"})).status_code == 303
        asked = {"queries": "paint a door\nsay a colour", "compare": "yes", "expected": "shop:paint", "token": "t"}
        found = await walker.post("/page/lab", asked)
        assert "What was left out" in found.text
        assert (await walker.post("/page/lab", asked | {"search": "bm25", "most": "1"})).status_code == 200
        assert (await walker.post("/page/lab", asked | {"queries": "x" * 20_001})).status_code == 409
        keep = {"queries": "say a colour", "expected": "shop:colour", "worst": "5"}
        assert (await walker.post("/page/lab/keep", keep)).status_code == 303
        assert "all found" in (await walker.post("/page/lab/kept", {})).text
        await walker.confirm("/page/servers/shop/stop", {})
        assert "server `shop` is stopped" in (await walker.post("/page/lab/kept", {})).text


async def test_each_screen_with_everything_is_small(tmp_path: Path) -> None:
    async with _walking(tmp_path) as walker:
        static = [(await walker.get(f"/page/static/{name}")).content for name in ("page.css", "page.js", "icon.svg")]
        found = await walker.post("/page/lab", {"queries": "paint a door", "compare": "yes"})
        pages = [await walker.get(path) for path in ("/page/tools", "/page/activity", "/page/tools/one?key=shop:paint")]
        for page in (found, *pages):
            assert len(gzip.compress(page.content + b"".join(static))) < 25 * 1024


async def test_an_audit_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    async with _walking(tmp_path) as walker:
        path = tmp_path / "state" / FILE
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 99")
        for address in ("/page/activity", "/page/activity/1", "/page/activity/export"):
            answer = await walker.get(address)
            assert answer.status_code == 409
            assert "newer Pointsman" in answer.text
