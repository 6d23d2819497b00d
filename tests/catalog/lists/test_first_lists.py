"""After the first pins of a server, its other lists are fetched in the background, a bounded number of times."""

from __future__ import annotations

import asyncio
from typing import Any

from pointsman.catalog.lists.first_lists import FirstLists
from pointsman.catalog.pins import Admitted, NoPins
from pointsman.core.errors import DownstreamError
from pointsman.core.kinds import PROMPTS, TEMPLATES, ListKind
from pointsman.core.model import Json, ToolSource
from tests.catalog.sources import SmallServer

BOTH = (PROMPTS, TEMPLATES)


class Listing(SmallServer):
    """Has a prompt and no template."""

    async def list_page(self, method: str, cursor: str | None, /) -> dict[str, Any]:
        await self.tools_page(cursor)
        return {"prompts": [{"name": "greet"}]} if method == PROMPTS.method else {"resourceTemplates": []}


class Seen(NoPins):
    """Notes what it is asked to admit."""

    def __init__(self) -> None:
        self.lists: list[tuple[str, str, list[str]]] = []

    async def admit(self, source: ToolSource, kind: ListKind, entries: dict[str, Json], /) -> Admitted:
        self.lists.append((source.id, kind.words, list(entries)))
        return Admitted(entries)


async def finished(first: FirstLists) -> None:
    async with asyncio.timeout(30):
        while first._tasks:
            await asyncio.wait(first._tasks)


async def test_each_list_is_admitted_once_however_often_it_is_asked_for() -> None:
    server, seen = Listing("files"), Seen()
    first = FirstLists({"files": server}, seen, (0.0,))
    for _ in range(3):
        first.fetch("files", BOTH)
    await finished(first)
    first.fetch("files", BOTH)
    await finished(first)
    assert seen.lists == [("files", "prompts", ["greet"]), ("files", "resource templates", [])]
    assert server.asked == 2


async def test_a_server_that_fails_is_asked_a_few_times_and_stays_as_it_is() -> None:
    server, seen = Listing("files"), Seen()
    server.fails = lambda: DownstreamError(-32601, "Method not found")
    first = FirstLists({"files": server}, seen, (0.0, 0.0, 0.0))
    first.fetch("files", [PROMPTS])
    await finished(first)
    first.fetch("files", [PROMPTS])
    await finished(first)
    assert (server.asked, server.status.state, seen.lists) == (3, "running", [])


async def test_a_server_that_hangs_costs_no_more_than_a_list_may_take() -> None:
    hanging, other, seen = Listing("hanging", list_timeout_s=0.01), Listing("other"), Seen()
    hanging.may_answer.clear()
    first = FirstLists({"hanging": hanging, "other": other}, seen, (0.0, 0.0))
    first.fetch("hanging", [PROMPTS])
    first.fetch("other", [PROMPTS])
    await finished(first)
    assert (hanging.asked, [one for one, _, _ in seen.lists]) == (2, ["other"])


async def test_a_server_that_was_down_or_replaced_is_asked_at_its_next_list() -> None:
    server, seen = Listing("files"), Seen()
    servers: dict[str, ToolSource] = {"files": server}
    first = FirstLists(servers, seen, (0.0,))
    server.be("starting")
    first.fetch("files", [PROMPTS])
    await finished(first)
    assert server.asked == 0
    server.be("running")
    first.fetch("files", [PROMPTS])
    await finished(first)
    assert server.asked == 1
    servers["files"] = replacement = Listing("files")
    first.fetch("files", [PROMPTS])
    await finished(first)
    assert replacement.asked == 1
    first.fetch("unknown", [PROMPTS])
    assert len(seen.lists) == 2


async def test_closing_ends_what_is_under_way() -> None:
    server, seen = Listing("files"), Seen()
    server.may_answer.clear()
    first = FirstLists({"files": server}, seen, (0.0,))
    first.fetch("files", [PROMPTS])
    async with asyncio.timeout(30):
        await server.inside.wait()
        await first.close()
    assert seen.lists == []
