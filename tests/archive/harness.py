"""Calls of the archive's tools, made as clients make them: straight over stdio in either era, or through a gateway.

A module that checks a tool both ways makes two fixtures of module scope: an `anyio_backend` of its own, and

    @pytest.fixture(scope="module", params=WAYS)
    async def archive(request, tmp_path_factory):
        async with opened(request.param, tmp_path_factory.mktemp("archive")) as caller:
            yield caller
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

from pointsman.archive.shipped import ensure_pages
from pointsman.archive.store.sqlite.storage import SqliteStorage
from tests.archive.engines import Place, new_store
from tests.e2e.client import assistant
from tests.gateway_process import gateway_process

Way = Literal["legacy", "modern", "gateway", "postgres"]
WAYS: tuple[Way, ...] = ("legacy", "modern", "gateway")
STORE_WAYS: tuple[Way, ...] = (*WAYS, "postgres")
"""For tools that use the store: the last is over stdio in the modern era, with the store in PostgreSQL."""
CHILD = ("-P", "-m", "pointsman.archive")
OPEN_S = 60.0  # bounds against hanging
CALL_S = 30.0

Json = dict[str, Any]

WHOLE_ANSWERS = {"result_preview_chars": 0}  # what the tools answer, not what the gateway shows of it


@dataclass(frozen=True)
class Answer:
    """What came back. `json` is the structured content, which the text must repeat."""

    failed: bool
    text: str
    json: Json


@dataclass(frozen=True)
class Caller:
    way: Way
    client: Client
    _call: Callable[[str, Json], Awaitable[CallToolResult]]

    async def call(self, name: str, arguments: Json | None = None) -> Answer:
        async with asyncio.timeout(CALL_S):
            result = await self._call(name, arguments or {})
        [block] = result.content
        assert block.type == "text"
        content: Json = result.structured_content or {}
        # `tool_execute` puts what a server said under `result`, and its own errors under `error`.
        said = content.get("result", content) if self.way == "gateway" else content
        return Answer(bool(result.is_error), block.text, said)

    async def result(self, name: str, /, **arguments: Any) -> Json:
        """The result of a call that must succeed."""
        answer = await self.call(name, arguments)
        assert not answer.failed, answer.text
        assert json.loads(answer.text) == answer.json
        return answer.json

    async def failure(self, name: str, /, **arguments: Any) -> Answer:
        """The answer to a call that must fail."""
        answer = await self.call(name, arguments)
        assert answer.failed, answer.text
        assert answer.json["error"]
        return answer


@asynccontextmanager
async def opened(
    way: Way,
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    roots: Mapping[str, Path] | None = None,
    place: Place | None = None,
) -> AsyncIterator[Caller]:
    """An archive with its store at `place`, by default in `folder`. `env`: what the server's entry would add."""
    database = folder / "archive.db"
    if place is None and not database.exists():
        database.write_bytes(_new_store())
    if way == "gateway":
        entry: Json = {"bundled": "archive", "db": str(database), "env": dict(env or {})}
        entry["roots"] = {name: str(path) for name, path in (roots or {}).items()}
        async with through_gateway(folder, {"servers": {"archive": entry}, "limits": WHOLE_ANSWERS}) as caller:
            yield caller
        return
    paths = json.dumps({name: str(path) for name, path in (roots or {}).items()})
    store = (place or Place(database)).environment
    async with over_stdio(way, {**store, "POINTSMAN_ARCHIVE_ROOTS": paths, **(env or {})}) as caller:
        yield caller


@cache
def _new_store() -> bytes:
    """A store as the archive makes it at its first use: putting its own pages in takes 0.3 s of CPU time each time."""
    with TemporaryDirectory() as folder:
        made, copied = Path(folder) / "made.db", Path(folder) / "copied.db"
        storage = SqliteStorage(made)
        ensure_pages(storage)
        storage.close()
        with closing(sqlite3.connect(made)) as source, closing(sqlite3.connect(copied)) as target:
            source.backup(target)
        return copied.read_bytes()


def place_for(request: pytest.FixtureRequest, folder: Path) -> Place:
    """A new store for the way that is the parameter of a fixture."""
    return new_store(request, folder, "postgres" if request.param == "postgres" else "sqlite")


@asynccontextmanager
async def over_stdio(way: Way, env: Mapping[str, str]) -> AsyncIterator[Caller]:
    child = StdioServerParameters(command=sys.executable, args=list(CHILD), env=dict(env))
    async with Client(child, mode="legacy" if way == "legacy" else "auto") as client:
        yield Caller(way, client, client.call_tool)


@asynccontextmanager
async def through_gateway(folder: Path, config: Mapping[str, Any], server_id: str = "archive") -> AsyncIterator[Caller]:
    async with gateway_process(folder, config) as gateway, assistant(gateway) as model:

        async def call(name: str, arguments: Json) -> CallToolResult:
            return await model.execute(f"{server_id}:{name}", **arguments)

        yield Caller("gateway", model.client, call)
