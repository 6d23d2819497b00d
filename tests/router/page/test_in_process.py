"""A walk over all screens and actions with the gateway in the process of the test, where coverage is measured."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from pointsman.config.loader import load
from pointsman.router.launch import Launch
from pointsman.router.run import serve
from tests.router.page.owner import csrf_of, hidden_fields, small_config


@dataclass
class Walker:
    http: httpx2.AsyncClient
    base: str
    csrf: str = ""

    async def get(self, path: str) -> httpx2.Response:
        return await self.http.get(self.base + path)

    async def post(self, path: str, fields: dict[str, str]) -> httpx2.Response:
        form = {"csrf": self.csrf, **fields}
        return await self.http.post(self.base + path, data=form, headers={"Origin": self.base})

    async def confirm(self, path: str, fields: dict[str, str]) -> httpx2.Response:
        asked = await self.post(path, fields)
        assert asked.status_code == 200, asked.text
        return await self.post(path, hidden_fields(asked.text))


@asynccontextmanager
async def _walking(folder: Path) -> AsyncIterator[Walker]:
    path, stop, thresholds = folder / "pointsman.yaml", asyncio.Event(), gc.get_threshold()
    link: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    token = {"t": {"sha256": hashlib.sha256(b"x").hexdigest(), "projects": ["*"], "servers": ["*"]}}
    path.write_text(json.dumps({**small_config(folder), "listen": {"port": 0}, "tokens": token}, indent=1))

    launch = Launch(
        load(path, {}), path, lambda: load(path, {}), folder / "state", lambda url: None, page=link.set_result
    )
    running = asyncio.create_task(serve(launch, stop))
    try:
        async with asyncio.timeout(60), httpx2.AsyncClient(timeout=30) as http:
            running.add_done_callback(lambda _: link.cancel())  # it ended before its port was open
            walker = Walker(http, (await link).partition("/page/")[0])
            assert (await http.get(await link)).status_code == 303
            walker.csrf = csrf_of((await walker.get("/")).text)
            yield walker
    finally:
        stop.set()
        await running
        gc.unfreeze()
        gc.set_threshold(*thresholds)


async def test_every_screen_and_action_answers(tmp_path: Path) -> None:
    async with _walking(tmp_path) as walker:
        for path in ("/", "/page/servers", "/page/servers/shop", "/page/servers/hostile", "/page/static/page.css"):
            assert (await walker.get(path)).status_code == 200, path
        assert (await walker.get("/page/servers/nothing")).status_code == 404
        assert (await walker.get("/page/nothing")).status_code == 404
        assert (await walker.get("/page")).status_code == 303
        shop = "/page/servers/shop"
        assert (await walker.post(f"{shop}/test", {})).status_code == 303
        assert (await walker.post(f"{shop}/restart", {})).status_code == 303
        assert (await walker.confirm(f"{shop}/stop", {})).status_code == 303
        assert (await walker.confirm(f"{shop}/edit", {"title": "Shop", "projects": "attic"})).status_code == 303
        assert (await walker.confirm(f"{shop}/switch", {"enabled": "no"})).status_code == 303
        assert (await walker.confirm(f"{shop}/remove", {})).status_code == 303
        far = {"name": "far", "url": "http://127.0.0.1:9/mcp", "headers": "A: b"}
        assert (await walker.confirm("/page/servers/add", far)).status_code == 303
        block = json.dumps({"mcpServers": {"b": {"url": "http://127.0.0.1:9/b"}, "c": {"command": "x"}}})
        assert "server add c x" in (await walker.post("/page/servers/paste", {"text": block})).text
        pasted = {"text": block, "step": "add"}
        assert (await walker.confirm("/page/servers/paste", pasted)).status_code == 303
        assert (await walker.post("/page/servers/paste", {"text": "nothing"})).status_code == 400
        async with walker.http.stream("GET", f"{walker.base}/page/events?topics=servers,log:gone") as stream:
            async for chunk in stream.aiter_bytes():
                if b"change" in chunk:
                    break
        left = await walker.post("/page/leave", {})
        assert left.status_code == 303
        assert "pointsman open" in (await walker.get("/")).text
    servers = load(tmp_path / "pointsman.yaml", {}).servers
    assert "shop" not in servers
    assert {"far", "b"} <= servers.keys()


async def test_projects_tokens_and_the_archive_answer(tmp_path: Path) -> None:
    async with _walking(tmp_path) as walker:
        assert (await walker.post("/page/servers/shop/test", {})).status_code == 303  # it has listed its tools then
        forbidden = {"tool": "shop:colour", "allowed": "no"}
        assert (await walker.confirm("/page/projects/@unassigned/tools", forbidden)).status_code == 303
        den = {"id": "den", "name": "The den", "optimization": "off"}
        assert (await walker.confirm("/page/projects", den)).status_code == 303
        for action, fields in (
            ("optimization", {"optimization": "bm25"}),
            ("exposure", {"exposure": "flat"}),
            ("servers", {"server": "shop", "wanted": "yes"}),
        ):
            assert (await walker.confirm(f"/page/projects/den/{action}", fields)).status_code == 303, action
        for path in ("/page/projects", "/page/projects/den", "/page/projects/den?server=shop", "/page/archive"):
            assert (await walker.get(path)).status_code == 200, path
        assert (await walker.post("/page/projects/den/remove", {})).status_code == 409  # a server belongs to it
        asked = await walker.post("/page/tokens", {"name": "laptop", "projects": "den", "servers": "shop"})
        created = await walker.post("/page/tokens", hidden_fields(asked.text))
        assert "ptm_" in created.text
        for path in ("/page/tokens", "/page/tokens/laptop"):
            assert "ptm_" not in (await walker.get(path)).text, path
        assert (await walker.confirm("/page/tokens/laptop/revoke", {})).status_code == 303
        assert (await walker.get("/page/tokens/laptop")).status_code == 404
    config = load(tmp_path / "pointsman.yaml", {})
    assert config.projects["den"].exposure == "flat"
    assert "laptop" not in config.tokens
