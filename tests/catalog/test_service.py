"""Collecting and searching: what a caller gets, what is left out, and what it is told about that."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from pointsman.catalog.answer import render_answer
from pointsman.catalog.lists.cached_list import ListWaits
from pointsman.catalog.results import Available
from pointsman.catalog.service import ToolCatalogService
from pointsman.core.errors import ServerUnavailableError
from pointsman.core.model import Caller
from pointsman.providers.base import SearchHit, SearchHits, SearchRequest, SearchUnavailableError
from pointsman.providers.bm25.provider import BM25SearchProvider
from tests.catalog.sources import SECRET, Clock, SmallServer, catalog_of, config_of, tool

ME = Caller("laptop", None)
NEVER = ListWaits(first_s=3600, longest_s=3600)


def keys(available: Available) -> list[str]:
    return [known.document.tool_key for known in available.tools]


async def test_the_tools_of_all_servers_come_together() -> None:
    catalog = catalog_of(SmallServer("one", tool("a"), tool("b")), SmallServer("two", tool("a")))
    available = await catalog.available(catalog.identify(SECRET, None))
    assert keys(available) == ["one:a", "one:b", "two:a"]
    assert available.notices == ()


async def test_all_servers_are_asked_at_once() -> None:
    servers = [SmallServer(name, tool("a")) for name in ("one", "two", "three")]
    for server in servers:
        server.may_answer.clear()
    asking = asyncio.create_task(catalog_of(*servers).available(ME))
    async with asyncio.timeout(30):
        for server in servers:
            await server.inside.wait()  # all are inside before any may answer
        for server in servers:
            server.may_answer.set()
        assert keys(await asking) == ["one:a", "two:a", "three:a"]


async def test_what_is_known_is_not_asked_again_until_it_is_too_old() -> None:
    server, clock = SmallServer("one", tool("a")), Clock()
    catalog = catalog_of(server, clock=clock)
    for _ in range(3):
        await catalog.available(ME)
    assert server.asked == 1
    clock.now += 5.1
    await catalog.available(ME)
    assert server.asked == 2


async def test_a_silent_server_costs_only_its_own_tools_and_is_not_waited_for_again() -> None:
    good, silent = SmallServer("good", tool("a")), SmallServer("silent", tool("b"), list_timeout_s=0.01)
    silent.may_answer.clear()
    catalog = catalog_of(good, silent, waits=NEVER)
    for _ in range(3):
        available = await catalog.available(ME)
        assert keys(available) == ["good:a"]
        assert said_first(available) == [
            "These servers did not list their tools in time, so their tools are missing: `silent`"
        ]
    assert silent.asked == 1


async def test_first_starts_and_first_lists_share_one_clock_and_a_late_one_is_there_the_next_time() -> None:
    """The clock is `first_list_s`; the fetch that the first request began goes on without it."""
    good, late, hangs = SmallServer("good", tool("a")), SmallServer("late", tool("b")), SmallServer("hangs")
    for server in (late, hangs):
        server.be("starting")
        server.coming_up = asyncio.Event()
    config = config_of(dict.fromkeys(("good", "late", "hangs")), limits={"first_list_s": 0.2})
    catalog = catalog_of(good, late, hangs, waits=NEVER, config=config)
    late.may_answer.clear()

    async def come_up() -> None:
        late.be("running")
        assert late.coming_up is not None
        late.coming_up.set()

    coming = asyncio.create_task(come_up())
    available = await catalog.available(ME)
    await coming
    assert keys(available) == ["good:a"]
    assert said_first(available) == ["These servers are still starting, so their tools are missing: `late`, `hangs`"]
    late.may_answer.set()
    assert keys(await catalog.available(ME)) == ["good:a", "late:b"]
    assert late.asked == 1


async def test_a_server_in_its_first_start_is_waited_for() -> None:
    server = SmallServer("one", tool("a"))
    server.be("starting")
    server.coming_up = asyncio.Event()
    catalog = catalog_of(server)
    asking = asyncio.create_task(catalog.available(ME))
    await asyncio.sleep(0.01)
    assert not asking.done()
    server.be("running")
    server.coming_up.set()
    assert keys(await asking) == ["one:a"]


async def test_the_tools_of_a_restarting_server_stay_searchable_with_a_notice() -> None:
    good, server = SmallServer("good", tool("a")), SmallServer("one", tool("b"))
    catalog = catalog_of(good, server, waits=NEVER)
    await catalog.available(ME)
    server.back = asyncio.Event()
    server.be("failed", "it was ended by SIGKILL")
    available = await catalog.available(ME)
    assert keys(available) == ["good:a", "one:b"]
    [notice] = available.notices
    assert notice.startswith("These servers are restarting, and their tools are those of the last list: `one`. Call")
    assert (await catalog.collected(ME)).ttl_s == 0
    server.back.set()  # given up
    available = await catalog.available(ME)
    assert keys(available) == ["good:a"]
    assert said_first(available) == ["These servers do not work at the moment, so their tools are missing: `one`"]


async def test_a_restarting_server_that_never_gave_a_list_is_missing() -> None:
    server = SmallServer("one", tool("b"))
    server.back = asyncio.Event()
    server.be("failed")
    available = await catalog_of(server).available(ME)
    assert said_first(available) == ["These servers do not work at the moment, so their tools are missing: `one`"]


async def test_each_kind_of_absence_is_told_in_one_sentence_of_its_own() -> None:
    servers = {name: SmallServer(name, tool("a")) for name in ("good", "new", "newer", "dead", "gone", "odd")}
    servers["new"].be("starting", "connecting")
    servers["newer"].be("starting")
    servers["dead"].be("failed", "exited with code 1 in /very/private/place")
    servers["gone"].be("stopped")
    servers["odd"].fails = lambda: ServerUnavailableError("odd", "at /another/private/place")
    available = await catalog_of(*servers.values(), waits=NEVER).available(ME)
    assert keys(available) == ["good:a"]
    assert said_first(available) == [
        "These servers are still starting, so their tools are missing: `new`, `newer`",
        "These servers do not work at the moment, so their tools are missing: `dead`, `gone`, `odd`",
    ]


async def test_a_server_without_a_source_yet_is_still_starting() -> None:
    available = await catalog_of(config=config_of({"soon": None})).available(ME)
    assert said_first(available) == ["These servers are still starting, so their tools are missing: `soon`"]


def said_first(available: Available) -> list[str]:
    """The first sentence of each notice; the second says what to do."""
    firsts, steps = zip(*(notice.split(". ") for notice in available.notices), strict=True)
    assert all("`pointsman doctor`" in step for step in steps)
    return list(firsts)


async def test_a_notice_names_only_servers_that_the_caller_may_use() -> None:
    hidden, off = SmallServer("hidden", tool("a")), SmallServer("off", tool("a"))
    hidden.be("failed")
    off.be("stopped")
    config = config_of({"hidden": {"projects": ["p"]}, "off": {"enabled": False}}, projects={"p": {}})
    catalog = catalog_of(hidden, off, config=config)
    assert await catalog.available(ME) == Available(())


async def test_forbidden_tools_are_not_there() -> None:
    server = SmallServer("one", tool("read"), tool("erase"))
    catalog = catalog_of(server, config=config_of({"one": {"tool_permissions": {"erase": False}}}))
    assert keys(await catalog.available(ME)) == ["one:read"]


async def test_rights_that_change_while_a_list_is_fetched_hold_at_once() -> None:
    server = SmallServer("one", tool("read"), tool("erase"))
    server.may_answer.clear()
    catalog = catalog_of(server)
    asking = asyncio.create_task(catalog.available(ME))
    await server.inside.wait()
    catalog.reconfigure(config_of({"one": {"tool_permissions": {"erase": False}}}))
    server.may_answer.set()
    assert keys(await asking) == ["one:read"]


EXPIRED = config_of({}).tokens["laptop"].model_copy(update={"expires": datetime(2020, 1, 1, tzinfo=UTC)})


@pytest.mark.parametrize(
    "after",
    [
        {"tokens": {}},
        {"tokens": {"laptop": EXPIRED}},
        {"servers": {}},
        {"servers": config_of({"one": {"enabled": False}}).servers},
    ],
)
async def test_a_caller_that_loses_its_rights_in_the_middle_gets_nothing(after: dict[str, Any]) -> None:
    server = SmallServer("one", tool("a"))
    server.may_answer.clear()
    catalog = catalog_of(server)
    asking = asyncio.create_task(catalog.available(ME))
    await server.inside.wait()
    catalog.reconfigure(config_of({"one": None}).model_copy(update=after))
    server.may_answer.set()
    async with asyncio.timeout(30):
        assert await asking == Available(())


async def test_an_expired_token_ends_in_open_sessions() -> None:
    now = 1_800_000_000.0
    config = config_of({"one": None})
    token = config.tokens["laptop"].model_copy(update={"expires": datetime(2027, 1, 1, tzinfo=UTC)})
    config = config.model_copy(update={"tokens": {"laptop": token}})
    catalog = catalog_of(SmallServer("one", tool("a")), config=config, wall_clock=lambda: now)
    assert (await catalog.available(ME)).tools == ()


async def test_a_server_that_was_replaced_is_asked_anew() -> None:
    sources = {"one": SmallServer("one", tool("old"))}
    catalog = ToolCatalogService(config_of({"one": None}), sources, {"bm25": BM25SearchProvider()})
    assert keys(await catalog.available(ME)) == ["one:old"]
    sources["one"] = SmallServer("one", tool("new"))  # the same id, and the same generation
    assert keys(await catalog.available(ME)) == ["one:new"]


async def test_closing_ends_what_goes_on_in_the_background() -> None:
    server = SmallServer("one", tool("a"))
    server.may_answer.clear()
    catalog = catalog_of(server)
    asking = asyncio.create_task(catalog.available(ME))
    await server.inside.wait()
    async with asyncio.timeout(30):
        await catalog.close()
        assert (await asking).tools == ()


# Searching


class Scripted:
    """A provider that answers what a test says."""

    name = "cloud"

    def __init__(self, *hits: SearchHit, fails: bool = False) -> None:
        self._hits = list(hits)
        self._fails = fails
        self.seen: SearchRequest | None = None

    async def search(self, request: SearchRequest) -> list[SearchHit]:
        self.seen = request
        if self._fails:
            raise SearchUnavailableError("is asleep", "cloud_asleep")
        return self._hits


def weather() -> SmallServer:
    return SmallServer("weather", tool("forecast", "The weather of the next days", city={"type": "string"}))


CLOUDY = config_of({"weather": None}, unassigned={"optimization": "cloud"})


async def test_a_search_finds_tools_with_what_is_needed_to_call_them() -> None:
    catalog = catalog_of(weather(), SmallServer("mail", tool("send", "Sends a mail")))
    outcome = await catalog.search(ME, ["weather tomorrow"], None, 5)
    assert (outcome.provider, outcome.fallback, outcome.notice) == ("bm25", False, None)
    [shown] = render_answer(outcome)["results"]
    assert shown["toolKey"] == "weather:forecast"
    assert shown["inputSchema"]["properties"] == {"city": {"type": "string"}}
    assert 0 < shown["relevance"] <= 1
    assert "outputSchema" not in shown


async def test_what_a_server_got_wrong_is_not_shown() -> None:
    output = {"type": "integer", "description": "How odd"}
    odd = {"name": "odd", "description": 5, "annotations": [], "outputSchema": output}
    outcome = await catalog_of(SmallServer("one", odd)).search(ME, ["odd"], None, 5)
    shown = render_answer(outcome)["results"][0]
    assert "description" not in shown
    assert "annotations" not in shown
    assert shown["outputSchema"] == output


async def test_a_project_without_discovery_gets_the_reason() -> None:
    server = weather()
    catalog = catalog_of(server, config=config_of({"weather": None}, unassigned={"optimization": None}))
    outcome = await catalog.search(ME, ["weather"], None, 5)
    assert outcome.results == ()
    assert outcome.provider is None
    assert outcome.notice is not None
    assert "`optimization: null`" in outcome.notice
    assert server.asked == 0


async def test_the_cloud_answers_where_the_project_says_so() -> None:
    cloud = Scripted(SearchHit("weather:forecast", 0.9, "it fits"))
    outcome = await catalog_of(weather(), config=CLOUDY, cloud=cloud).search(
        ME, ["weather"], "a trip", 7, request_id="r1"
    )
    assert (outcome.provider, outcome.fallback, outcome.code) == ("cloud", False, None)
    assert outcome.results[0].explanation == "it fits"
    assert cloud.seen is not None
    assert (cloud.seen.queries, cloud.seen.context, cloud.seen.max_results) == (("weather",), "a trip", 7)
    assert (cloud.seen.project_id, cloud.seen.request_id) == (ME.project_id, "r1")


class Watched(BM25SearchProvider):
    """The local provider, and whether it has searched."""

    def __init__(self) -> None:
        super().__init__(embeddings=False)
        self.searched = asyncio.Event()

    async def search(self, request: SearchRequest) -> SearchHits:
        hits = await super().search(request)
        self.searched.set()
        return hits


class Unhurried:
    """A service that says nothing until the local search is over, and then answers or fails."""

    name = "cloud"

    def __init__(self, local: Watched, *hits: SearchHit) -> None:
        self._local = local
        self._hits = list(hits)

    async def search(self, request: SearchRequest) -> list[SearchHit]:
        await self._local.searched.wait()
        if not self._hits:
            raise SearchUnavailableError("gave no answer within 5 s", "cloud_timeout")
        return self._hits


async def test_the_local_search_is_over_when_a_slow_cloud_fails() -> None:
    local = Watched()
    catalog = catalog_of(weather(), config=CLOUDY, cloud=Unhurried(local), local=local)
    async with asyncio.timeout(60):
        outcome = await catalog.search(ME, ["weather"], None, 5)
    assert (outcome.provider, outcome.fallback, outcome.code) == ("bm25", True, "cloud_timeout")
    assert [shown["toolKey"] for shown in render_answer(outcome)["results"]] == ["weather:forecast"]


async def test_a_slow_cloud_that_answers_in_the_end_is_taken_all_the_same() -> None:
    local = Watched()
    cloud = Unhurried(local, SearchHit("weather:forecast", 0.9))
    async with asyncio.timeout(60):
        outcome = await catalog_of(weather(), config=CLOUDY, cloud=cloud, local=local).search(ME, ["rain"], None, 5)
    assert (outcome.provider, outcome.fallback) == ("cloud", False)
    assert [result.relevance for result in outcome.results] == [0.9]


async def test_a_cloud_that_answers_at_once_costs_no_local_search() -> None:
    local = Watched()
    cloud = Scripted(SearchHit("weather:forecast", 0.9))
    await catalog_of(weather(), config=CLOUDY, cloud=cloud, local=local).search(ME, ["weather"], None, 5)
    assert not local.searched.is_set()


async def test_a_caller_who_leaves_ends_both_searches() -> None:
    ended: list[str] = []

    class Endless:
        def __init__(self, name: str) -> None:
            self.name = name
            self.asked = asyncio.Event()

        async def search(self, request: SearchRequest) -> list[SearchHit]:
            self.asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(self.name)
            return []

    local, cloud = Endless("bm25"), Endless("cloud")
    searching = asyncio.create_task(
        catalog_of(weather(), config=CLOUDY, cloud=cloud, local=local).search(ME, ["weather"], None, 5)
    )
    async with asyncio.timeout(60):
        await local.asked.wait()
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching
    assert sorted(ended) == ["bm25", "cloud"]


@pytest.mark.parametrize(
    ("cloud", "code", "why"),
    [
        (None, "cloud_unconfigured", "is not configured (`cloud_search`)"),
        (Scripted(fails=True), "cloud_asleep", "is asleep"),
    ],
)
async def test_where_the_cloud_does_not_answer_the_local_provider_does_and_says_why(
    cloud: Scripted | None, code: str, why: str
) -> None:
    outcome = await catalog_of(weather(), config=CLOUDY, cloud=cloud).search(ME, ["weather"], None, 5)
    assert (outcome.provider, outcome.fallback, outcome.code) == ("bm25", True, code)
    assert outcome.notice == f"The local search answered, because the search service {why}."
    assert [found.tool.document.tool_key for found in outcome.results] == ["weather:forecast"]


async def test_a_provider_cannot_bring_in_tools_or_figures_of_its_own() -> None:
    server = SmallServer("one", tool("a"), tool("b"), tool("erase"))
    config = config_of({"one": {"tool_permissions": {"erase": False}}}, unassigned={"optimization": "cloud"})
    hits = [("one:erase", 1.0), ("two:x", 1.0), ("one:a", 99.0), ("one:a", 0.5), ("one:b", float("nan"))]
    cloud = Scripted(*(SearchHit(key, relevance) for key, relevance in hits))
    outcome = await catalog_of(server, config=config, cloud=cloud).search(ME, ["x"], None, 5)
    assert [(found.tool.document.tool_key, found.relevance) for found in outcome.results] == [
        ("one:a", 1.0),
        ("one:b", 0.0),
    ]
    assert cloud.seen is not None
    assert [document.tool_key for document in cloud.seen.tools] == ["one:a", "one:b"]


async def test_a_provider_cannot_answer_more_than_was_asked_for() -> None:
    server = SmallServer("one", *(tool(name) for name in "abcdef"))
    cloud = Scripted(*(SearchHit(f"one:{name}", 0.5) for name in "abcdef"))
    config = config_of({"one": None}, unassigned={"optimization": "cloud"})
    outcome = await catalog_of(server, config=config, cloud=cloud).search(ME, ["x"], None, 2)
    assert len(outcome.results) == 2


async def test_a_log_without_a_request_gets_few_results_and_the_advice_to_say_what_to_do() -> None:
    log = "\n".join(f"2026-11-{n % 28 + 1:02} ERROR [worker-{n}] pool: file {n} lost, timeout" for n in range(200))
    servers = [SmallServer("files", *(tool(f"file_{name}") for name in "abcdefghij"))]
    outcome = await catalog_of(*servers, local=BM25SearchProvider(embeddings=False)).search(ME, [log], None, 10)
    assert 0 < len(outcome.results) <= 3
    assert all(result.relevance < 0.01 for result in outcome.results)
    assert outcome.notice is not None
    assert outcome.notice.endswith("say in one sentence what should be done with it.")
    asked = await catalog_of(*servers, local=BM25SearchProvider(False)).search(ME, [f"find file b\n\n{log}"], None, 10)
    assert asked.results[0].tool.tool_name == "file_b"
    assert len(asked.results) == 10


async def test_an_empty_query_among_others_is_called_empty() -> None:
    catalog = catalog_of(SmallServer("files", tool("read_file"), tool("paint")), local=BM25SearchProvider(False))
    outcome = await catalog.search(ME, ["read file", "", "zebra"], None, 10)
    assert outcome.notice is not None
    assert "query[1] is empty: say in a few words what should be done." in outcome.notice
    assert "No tool seems to fit query[2]." in outcome.notice


async def test_nothing_found_is_said() -> None:
    outcome = await catalog_of(weather()).search(ME, ["zzz"], None, 5)
    assert outcome.results == ()
    assert outcome.notice is not None
    assert "No tool seems to fit" in outcome.notice


async def test_no_tools_at_all_is_said_with_the_servers_that_are_missing() -> None:
    late, empty, broken = weather(), SmallServer("empty"), SmallServer("broken")
    broken.be("failed")
    outcome = await catalog_of(empty, broken).search(ME, ["weather"], None, 5)
    assert outcome.notice is not None
    assert "so their tools are missing: `broken`." in outcome.notice
    assert "no tools that you can use here: `empty` lists none" in outcome.notice
    late.be("starting")
    outcome = await catalog_of(late, empty, broken).search(ME, ["weather"], None, 5)
    assert outcome.notice is not None
    assert "still starting, so their tools are missing: `weather`" in outcome.notice
    assert "no tools that you can use" not in outcome.notice
