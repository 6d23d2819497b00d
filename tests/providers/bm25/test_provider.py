"""The local provider: the right tool near the top, honest figures, and no trap of small catalogs."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from typing import Any

import pytest
from msgspec import structs

from pointsman.providers.base import SearchHit, SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import BM25SearchProvider
from tests.providers.small_catalog import REQUESTS, small_catalog

CATALOG = small_catalog()


async def search(
    *queries: str,
    tools: list[ToolDocument] = CATALOG,
    context: str | None = None,
    most: int = 5,
    embeddings: bool = True,
) -> list[SearchHit]:
    return await BM25SearchProvider(embeddings).search(SearchRequest(queries, context, tools, most))


def document(key: str, description: str = "", schema: Any = None) -> ToolDocument:
    return ToolDocument(key, key.partition(":")[2], key.partition(":")[0], description, schema or {})


@pytest.mark.parametrize("embeddings", [True, False], ids=["static", "words"])
@pytest.mark.parametrize(("request_text", "wanted"), REQUESTS, ids=[wanted for _, wanted in REQUESTS])
async def test_the_right_tool_is_among_the_first_three(request_text: str, wanted: str, embeddings: bool) -> None:
    assert wanted in [hit.tool_key for hit in await search(request_text, most=3, embeddings=embeddings)]


@pytest.mark.parametrize("embeddings", [True, False], ids=["static", "words"])
@pytest.mark.parametrize(
    "nonsense",
    [
        "zxqv wlprt",
        "purple elephants dancing",
        "how do I knit a sweater for my hamster",
        "   ",
        "",
        "please",
        "!?",
        "\0",
    ],
)
async def test_a_request_that_nothing_fits_gets_low_figures_or_none(nonsense: str, embeddings: bool) -> None:
    assert all(hit.relevance < 0.2 for hit in await search(nonsense, embeddings=embeddings))


async def test_a_tool_that_is_not_configured_comes_behind_one_that_is() -> None:
    ready = document("files:read_text", "Reads a text file")
    for configured in (True, False):
        near = structs.replace(document("archive:read_file", "Reads a text file"), configured=configured)
        [first, second] = await search("read a file", tools=[near, ready], most=2)
        assert (first.tool_key == "archive:read_file") == configured
        assert second.relevance < first.relevance


async def test_a_request_in_the_tools_own_words_gets_a_high_figure() -> None:
    [best, *_] = await search("list tables of the database")
    assert best.tool_key == "postgres:list_tables"
    assert best.relevance > 0.9


async def test_hits_come_best_first_within_bounds_and_no_more_than_asked_for() -> None:
    hits = await search("read a file", most=4)
    assert len(hits) == 4
    figures = [hit.relevance for hit in hits]
    assert figures == sorted(figures, reverse=True)
    assert all(0 <= figure <= 1 for figure in figures)


async def test_the_explanation_says_which_words_matched_where() -> None:
    [best, *_] = await search("weather forecasts for a city")
    assert best.tool_key == "weather:getForecast"
    assert best.explanation == "forecasts in name; weather in server; city in parameter"


@pytest.mark.parametrize("count", [0, 1, 2, 3])
async def test_small_catalogs_are_searched_like_large_ones(count: int) -> None:
    tools = [document("w:get_weather"), document("m:send_mail"), document("f:read_file")][:count]
    hits = await search("weather", tools=tools)
    assert [hit.tool_key for hit in hits] == (["w:get_weather"] if count else [])
    assert all(hit.relevance > 0.9 for hit in hits)


async def test_a_word_that_all_tools_have_still_counts() -> None:
    tools = [document("s:read_note"), document("s:erase_note")]
    assert len(await search("note", tools=tools)) == 2


async def test_tools_without_any_words_do_no_harm() -> None:
    tools = [ToolDocument("s:_", "_", "", "", {}), ToolDocument("s:-", "-", "", "", {})]
    assert await search("anything", tools=tools) == []


async def test_no_queries_give_no_hits() -> None:
    assert await search() == []


async def test_queries_are_ranked_apart_and_each_finds_its_tool() -> None:
    hits = await search("current time in a timezone", "send an email", most=4)
    assert {"world:get_current_time", "mail:send_email"} <= {hit.tool_key for hit in hits}
    assert {hits[0].tool_key, hits[1].tool_key} == {"world:get_current_time", "mail:send_email"}


async def test_a_query_that_nothing_fits_does_not_push_its_tools_up() -> None:
    hits = await search("send an email", "purple elephants dancing on a table")
    assert hits[0].tool_key == "mail:send_email"


async def test_a_repeated_word_counts_once() -> None:
    assert await search("file file read", embeddings=False) == await search("file read", embeddings=False)


async def test_context_helps_but_does_not_rule() -> None:
    tools = [document("a:list_items", "of a shop"), document("b:list_items", "of a calendar")]
    assert (await search("list items", tools=tools))[0].tool_key == "a:list_items"
    assert (await search("list items", tools=tools, context="my calendar"))[0].tool_key == "b:list_items"
    alone = await search(tools=tools, context="calendar")
    assert [hit.tool_key for hit in alone] == ["b:list_items"]
    assert alone[0].relevance <= 0.3


async def test_parameters_count_also_inside_objects_and_lists() -> None:
    inner = {"properties": {"thumbnail": {"description": "preview picture"}}}
    schema = {"properties": {"things": {"type": "array", "items": inner}}}
    tools = [document("a:upload", "", schema), document("b:upload")]
    assert (await search("thumbnail", tools=tools))[0].tool_key == "a:upload"
    assert (await search("preview", tools=tools))[0].tool_key == "a:upload"


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": []},
        {"properties": {"a": None, "b": 5, "c": {"description": 7}, "d": {"properties": "x"}}},
        {"items": [{"properties": {}}]},
        {"properties": {f"p{n}": {"description": "x" * 5000} for n in range(5000)}},
    ],
)
async def test_odd_schemas_do_no_harm(schema: dict[str, Any]) -> None:
    assert [hit.tool_key for hit in await search("parse", tools=[document("s:parse", "", schema)])] == ["s:parse"]


async def test_the_same_question_gets_the_same_answer() -> None:
    provider = BM25SearchProvider()
    request = SearchRequest(("read a file", "mail"), "office", CATALOG, 20)
    first = await provider.search(request)
    assert await provider.search(request) == first
    assert await BM25SearchProvider().search(request) == first


async def test_a_changed_set_of_tools_is_searched_as_it_is_now() -> None:
    provider = BM25SearchProvider()
    before, after = document("s:old_weather"), document("s:new_weather")
    for tools, expected in (([before], "s:old_weather"), ([after], "s:new_weather"), ([before], "s:old_weather")):
        [hit] = await provider.search(SearchRequest(("weather",), None, tools, 5))
        assert hit.tool_key == expected


async def test_a_large_catalog_is_searched_too() -> None:
    tools = [*CATALOG, *(document(f"s:thing_{n}", "does something") for n in range(2_500))]
    assert (await search("weather forecast for the coming days", tools=tools))[0].tool_key == "weather:getForecast"


async def test_one_who_leaves_does_not_cost_the_others_their_answer() -> None:
    provider = BM25SearchProvider()
    tools = [*CATALOG, *(document(f"s:thing_{n}", "does something") for n in range(500))]
    request = SearchRequest(("send an email",), None, tools, 5)
    leaving, staying = (asyncio.create_task(provider.search(request)) for _ in range(2))
    await asyncio.sleep(0)  # both are inside now
    leaving.cancel()
    async with asyncio.timeout(30):
        assert (await staying)[0].tool_key == "mail:send_email"
    assert leaving.cancelled()


async def test_indexes_do_not_pile_up() -> None:
    provider = BM25SearchProvider()
    gone = document("s:first")
    seen = weakref.ref(gone)
    await provider.search(SearchRequest(("first",), None, [gone], 5))
    del gone
    for n in range(20):
        await provider.search(SearchRequest(("next",), None, [document(f"s:next_{n}")], 5))
    gc.collect()
    assert seen() is None


def test_numpy_is_loaded_at_the_first_search_only() -> None:
    script = "import sys, pointsman.providers.bm25.provider, pointsman.catalog.service; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/in", "$defs": {"in": {"properties": {"thumbnail": {}}}}},
        {"allOf": [{"properties": {"thumbnail": {}}}]},
        {"oneOf": [{"properties": {"path": {}}}, {"properties": {"thumbnail": {}}}]},
        {
            "properties": {"a": {"anyOf": [{"$ref": "#/$defs/in"}, {"type": "null"}]}},
            "$defs": {"in": {"properties": {"thumbnail": {}}}},
        },
    ],
)
async def test_parameters_are_found_behind_references_and_combinations(schema: dict[str, Any]) -> None:
    tools = [document("b:upload"), document("a:upload", "", schema)]
    assert [hit.tool_key for hit in await search("thumbnail", tools=tools, embeddings=False)] == ["a:upload"]


async def test_a_tool_that_mentions_everything_at_great_length_does_not_hide_the_one_that_does_it() -> None:
    topics = "weather mail invoice calendar ticket backup image route stock recipe " * 40
    everything: dict[str, Any] = {"properties": {f"{topic}_{n}": {} for n in range(8) for topic in topics.split()[:10]}}
    tools = [document("a:assistant", f"Does what you ask. {'It is good. ' * 80}{topics}", everything)]
    tools += [document("b:refund", "Gives money back for an invoice."), document("c:restore", "From a backup.")]
    for query, wanted in (("invoice", "b:refund"), ("backup", "c:restore")):
        assert (await search(query, tools=tools))[0].tool_key == wanted
