"""A list is kept while it is true, fetched once for all, and a silent server is waited for only once."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from pointsman.catalog.definitions import KnownTool, build_tools
from pointsman.catalog.lists.cached_list import CachedList, ListFailure, ListWaits, Snapshot
from pointsman.core.errors import NOT_RUN, CallTimeoutError, DownstreamError, ServerUnavailableError
from pointsman.core.kinds import TOOLS
from pointsman.core.model import ServerStatus, ToolSource
from tests.catalog.sources import Clock, SmallServer, tool

MAX_AGE_S = 5.0
NEVER = ListWaits(first_s=3600, longest_s=3600)


def list_of(server: SmallServer, clock: Clock, waits: ListWaits = NEVER) -> CachedList[KnownTool]:
    return CachedList(server, TOOLS, build_tools, clock, waits)


async def fetched(listed: CachedList[KnownTool]) -> Snapshot[KnownTool] | ListFailure:
    async with asyncio.timeout(30):
        await asyncio.wait([fetch := listed.fetch()])
    return fetch.result()


def names(answer: Snapshot[KnownTool] | ListFailure | None) -> list[str]:
    assert isinstance(answer, Snapshot)
    return list(answer.items)


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_a_list_is_kept_until_its_maximum_age(clock: Clock) -> None:
    listed = list_of(SmallServer("s", tool("a")), clock)
    assert listed.cached(MAX_AGE_S) is None
    await fetched(listed)
    clock.now += 4.9
    assert names(listed.cached(MAX_AGE_S)) == ["a"]
    clock.now += 0.2
    assert listed.cached(MAX_AGE_S) is None


async def test_a_list_that_meets_an_ended_sign_in_says_so_and_leaves_the_log_to_its_supervisor(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    server, reason = SmallServer("s", tool("a")), "it needs sign-in: run `pointsman server login s`"

    def fails() -> Exception:
        server.status = ServerStatus("failed", reason, 0.0, sign_in=True)
        return ServerUnavailableError("s", reason)

    server.fails = fails
    answer = await fetched(list_of(server, clock))
    assert answer == ListFailure("sign-in", reason, NOT_RUN)
    assert caplog.text == ""


async def test_a_maximum_age_of_nothing_keeps_nothing(clock: Clock) -> None:
    listed = list_of(SmallServer("s", tool("a")), clock)
    await fetched(listed)
    assert listed.cached(0) is None
    assert listed.cached_item("a", 0) is None


@pytest.mark.parametrize(("ttl_ms", "good_for_s"), [(1000, 1.0), (60_000, MAX_AGE_S)])
async def test_a_list_is_kept_no_longer_than_its_time_to_live(clock: Clock, ttl_ms: int, good_for_s: float) -> None:
    server = SmallServer("s", tool("a"))
    server.ttl_ms = ttl_ms
    listed = list_of(server, clock)
    await fetched(listed)
    clock.now += good_for_s - 0.1
    assert names(listed.cached(MAX_AGE_S)) == ["a"]
    clock.now += 0.2
    assert listed.cached(MAX_AGE_S) is None


async def test_a_time_to_live_of_nothing_says_nothing_where_changes_are_heard(clock: Clock) -> None:
    server = SmallServer("s", tool("a"))
    server.ttl_ms = 0
    listed = list_of(server, clock)
    await fetched(listed)
    clock.now += 4.9
    assert names(listed.cached(MAX_AGE_S)) == ["a"]
    server.hears = False  # a stream was cut, say
    assert listed.cached(MAX_AGE_S) is None
    server.hears = True
    server.change(tool("b"))
    assert listed.cached(MAX_AGE_S) is None


async def test_a_list_with_the_same_bytes_is_not_prepared_again(clock: Clock) -> None:
    made: list[str] = []

    def counting(source: ToolSource, entries: dict[str, Any], before: dict[str, KnownTool]) -> dict[str, KnownTool]:
        made.extend(entries)
        return build_tools(source, entries, before)

    server = SmallServer("s", tool("a"), tool("b"))
    listed = CachedList(server, TOOLS, counting, clock, NEVER)
    first = await fetched(listed)
    server.change(tool("a"), tool("b"))
    again = await fetched(listed)
    assert made == ["a", "b"]
    assert isinstance(first, Snapshot)
    assert isinstance(again, Snapshot)
    assert again.items is first.items
    server.name = "renamed"  # the name is part of what is searched
    await fetched(listed)
    server.change(tool("a"), tool("b", "other words"))
    await fetched(listed)
    assert made == ["a", "b"] * 3


async def test_a_time_to_live_of_nothing_is_fetched_for_each_discovery_but_not_for_each_call(clock: Clock) -> None:
    server = SmallServer("s", tool("a"))
    server.ttl_ms = 0
    server.hears = False
    listed = list_of(server, clock)
    await fetched(listed)
    assert listed.cached(MAX_AGE_S) is None
    assert listed.cached_item("a", MAX_AGE_S) is not None
    assert listed.cached_item("b", MAX_AGE_S) is None
    server.change(tool("b"))
    assert listed.cached_item("a", MAX_AGE_S) is None


async def test_a_changed_list_is_not_known_any_more(clock: Clock) -> None:
    server = SmallServer("s", tool("a"))
    listed = list_of(server, clock)
    await fetched(listed)
    server.change(tool("b"))
    assert listed.cached(MAX_AGE_S) is None
    assert listed.cached_item("a", MAX_AGE_S) is None
    assert names(await fetched(listed)) == ["b"]


async def test_all_who_ask_at_once_share_one_fetch(clock: Clock) -> None:
    server = SmallServer("s", tool("a"))
    server.may_answer.clear()
    listed = list_of(server, clock)
    asking = [asyncio.create_task(fetched(listed)) for _ in range(20)]
    await server.inside.wait()
    await asyncio.sleep(0)
    server.may_answer.set()
    answers = await asyncio.gather(*asking)
    assert server.asked == 1
    assert len({id(answer) for answer in answers}) == 1


async def test_one_who_leaves_does_not_end_the_fetch_of_the_others(clock: Clock) -> None:
    server = SmallServer("s", tool("a"))
    server.may_answer.clear()
    listed = list_of(server, clock)
    leaving, staying = asyncio.create_task(fetched(listed)), asyncio.create_task(fetched(listed))
    await server.inside.wait()
    leaving.cancel()
    await asyncio.wait([leaving])
    assert leaving.cancelled()
    server.may_answer.set()
    assert names(await staying) == ["a"]
    assert server.asked == 1


async def test_a_change_in_the_middle_of_a_fetch_is_not_missed(clock: Clock) -> None:
    server = SmallServer("s", tool("old"))
    server.may_answer.clear()
    listed = list_of(server, clock)
    asking = asyncio.create_task(fetched(listed))
    await server.inside.wait()
    server.change(tool("new"))  # the answer under way is the old one
    server.may_answer.set()
    assert names(await asking) == ["new"]
    assert names(listed.cached(MAX_AGE_S)) == ["new"]
    assert server.asked == 2


async def test_a_list_that_never_holds_still_is_answered_but_not_kept(clock: Clock) -> None:
    class Restless(SmallServer):
        async def tools_page(self, cursor: str | None) -> dict[str, object]:
            answer = await super().tools_page(cursor)
            self.generation += 1
            return answer

    server = Restless("s", tool("a"))
    listed = list_of(server, clock)
    assert names(await fetched(listed)) == ["a"]
    assert listed.cached(MAX_AGE_S) is None
    assert server.asked == 3


async def test_an_unchanged_definition_stays_the_same_object(clock: Clock) -> None:
    server = SmallServer("s", tool("same", "x"), tool("changing", "x"))
    listed = list_of(server, clock)
    before = await fetched(listed)
    server.change(tool("same", "x"), tool("changing", "y"), tool("new", "z"))
    after = await fetched(listed)
    assert isinstance(before, Snapshot)
    assert isinstance(after, Snapshot)
    assert after.items["same"] is before.items["same"]
    assert after.items["same"].document is before.items["same"].document
    assert after.items["changing"] is not before.items["changing"]


async def test_true_and_one_are_two_definitions(clock: Clock) -> None:
    server = SmallServer("s", tool("a", x={"const": 1}))
    listed = list_of(server, clock)
    before = await fetched(listed)
    server.change(tool("a", x={"const": True}))
    after = await fetched(listed)
    assert isinstance(before, Snapshot)
    assert isinstance(after, Snapshot)
    assert after.items["a"] is not before.items["a"]


async def test_a_tool_that_cannot_be_sent_on_is_left_out(clock: Clock) -> None:
    listed = list_of(SmallServer("s", tool("a\ud800"), tool("b", "\udfff"), tool("c")), clock)
    assert names(await fetched(listed)) == ["c"]


async def test_a_silent_server_is_waited_for_only_once(clock: Clock) -> None:
    server = SmallServer("s", tool("a"), list_timeout_s=0.01)
    server.may_answer.clear()
    listed = list_of(server, clock)
    answer = await fetched(listed)
    assert isinstance(answer, ListFailure)
    assert answer.kind == "timeout"
    assert listed.cached(MAX_AGE_S) is answer  # at once, from now on
    assert server.asked == 1


async def test_a_slow_list_of_many_pages_has_one_clock_for_all_of_them(clock: Clock) -> None:
    class Trickling(SmallServer):
        async def tools_page(self, cursor: str | None) -> dict[str, object]:
            self.asked += 1
            await asyncio.sleep(0.02)
            return {"tools": [], "nextCursor": str(self.asked)}

    server = Trickling("s", list_timeout_s=0.1)
    answer = await fetched(list_of(server, clock))
    assert isinstance(answer, ListFailure)
    assert server.asked < 50


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServerUnavailableError("s", "the connection ended"), "failed"),
        (CallTimeoutError("s", 5), "timeout"),
        (DownstreamError(-32603, "/srv/secret/path exploded"), "failed"),
        (ZeroDivisionError("a mistake of ours"), "failed"),
    ],
)
async def test_a_failed_fetch_is_known_and_says_nothing_of_the_inside(
    clock: Clock, error: Exception, kind: str
) -> None:
    server = SmallServer("s", tool("a"))
    server.fails = lambda: error
    listed = list_of(server, clock)
    answer = await fetched(listed)
    assert isinstance(answer, ListFailure)
    assert answer.kind == kind
    assert "secret" not in answer.reason
    assert listed.cached(MAX_AGE_S) is answer


async def test_a_known_bad_server_heals_by_itself(clock: Clock) -> None:
    server = SmallServer("s", tool("a"))
    server.fails = lambda: ServerUnavailableError("s", "down")
    listed = list_of(server, clock, ListWaits(first_s=0.001, longest_s=0.002))
    assert isinstance(await fetched(listed), ListFailure)
    async with asyncio.timeout(30):
        while server.asked < 4:  # goes on trying, and nobody asked for it
            await asyncio.sleep(0.001)
    assert isinstance(listed.cached(MAX_AGE_S), ListFailure)
    server.fails = None
    async with asyncio.timeout(30):
        while not isinstance(listed.cached(MAX_AGE_S), Snapshot):
            await asyncio.sleep(0.001)
    healed_after = server.asked
    await asyncio.sleep(0.02)
    assert server.asked == healed_after  # and then stops


async def test_retries_grow_rarer(clock: Clock) -> None:
    server = SmallServer("s", tool("a"))
    server.fails = lambda: ServerUnavailableError("s", "down")
    listed = list_of(server, clock, ListWaits(first_s=0.01, longest_s=3600))
    began = asyncio.get_running_loop().time()
    await fetched(listed)
    await asyncio.sleep(0.2)
    listed.cancel()
    seconds = asyncio.get_running_loop().time() - began
    assert server.asked <= 1 + math.log2((seconds + 0.05) / 0.01 + 1)  # at 0, 10, 30, 70, 150 ms and so on, or later


async def test_a_new_connection_is_a_new_chance(clock: Clock) -> None:
    server = SmallServer("s", tool("a"), list_timeout_s=0.01)
    server.may_answer.clear()
    listed = list_of(server, clock)
    await fetched(listed)
    server.be("failed")
    server.be("running")
    server.may_answer.set()
    assert listed.cached(MAX_AGE_S) is None
    assert names(await fetched(listed)) == ["a"]


async def test_a_server_that_is_down_is_not_asked_in_the_background(clock: Clock) -> None:
    server = SmallServer("s", tool("a"))
    server.fails = lambda: ServerUnavailableError("s", "down")
    listed = list_of(server, clock, ListWaits(first_s=0.001, longest_s=0.001))
    await fetched(listed)
    server.be("failed")
    await asyncio.sleep(0.01)  # for what was on its way in that moment
    asked = server.asked
    await asyncio.sleep(0.02)
    assert server.asked == asked


async def test_cancelling_ends_the_fetch_and_the_retries(clock: Clock) -> None:
    server = SmallServer("s", tool("a"))
    server.may_answer.clear()
    listed = list_of(server, clock)
    fetch = listed.fetch()
    await server.inside.wait()
    assert listed.cancel() is fetch
    await asyncio.wait([fetch])
    assert fetch.cancelled()
    assert listed.cancel() is None


async def test_a_definition_without_a_bottom_is_left_out_and_costs_nobody_an_answer() -> None:
    bottomless: dict[str, Any] = {}
    for _ in range(900):
        bottomless = {"items": bottomless}
    server = SmallServer("one", {"name": "deep", "inputSchema": bottomless}, tool("a"))
    assert names(await fetched(list_of(server, Clock()))) == ["a"]
