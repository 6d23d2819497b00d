"""Every query is an intent of its own: heard among the results, and named on each."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman.providers.base import SearchHit, SearchRequest
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.bm25.ranking import fuse
from tests.providers.small_catalog import small_catalog

CATALOG = small_catalog()
NOTHING = np.zeros(4)


async def test_each_hit_says_which_queries_it_serves() -> None:
    request = SearchRequest(("send an email", "will it rain: weather forecast"), None, CATALOG, 4)
    intents = {hit.tool_key: hit.intents for hit in await BM25SearchProvider().search(request)}
    assert intents["mail:send_email"] == (0,)
    assert intents["weather:getForecast"] == (1,)


async def test_a_tool_that_serves_two_queries_names_both() -> None:
    request = SearchRequest(("send an email", "e-mail a message"), None, CATALOG, 3)
    [best, *_] = await BM25SearchProvider().search(request)
    assert (best.tool_key, best.intents) == ("mail:send_email", (0, 1))


@pytest.mark.parametrize("strong", [(0.9, 0.8, 0.7, 0.01), (0.9, 0.9, 0.9, 0.0)])
def test_a_weak_query_still_gets_its_best_tool_in(strong: tuple[float, ...]) -> None:
    fused = fuse([np.array(strong), np.array([0, 0, 0, 0.1])], NOTHING, 2)
    assert [(hit.row, hit.intents[-1]) for hit in fused] == [(0, 0), (3, 1)]


def test_more_queries_than_results_leave_the_weakest_out() -> None:
    fused = fuse([np.eye(4)[n] * relevance for n, relevance in enumerate((0.2, 0.9, 0.5))], NOTHING, 2)
    assert [hit.row for hit in fused] == [1, 2]


def test_what_serves_several_queries_comes_before_what_serves_one_as_well() -> None:
    fused = fuse([np.array([0.8, 0.8, 0, 0]), np.array([0, 0.6, 0, 0])], NOTHING, 4)
    assert [hit.row for hit in fused] == [1, 0]
    assert fused[0].relevance == 0.8  # the sum orders, it does not flatter


def test_every_hit_is_there_for_some_query() -> None:
    fused = fuse([np.array([0.9, 0.1, 0, 0]), np.array([0, 0.34, 0.8, 0])], NOTHING, 4)
    assert {hit.row: hit.intents for hit in fused} == {0: (0,), 2: (1,), 1: (1,)}


def test_what_only_the_context_found_serves_no_query() -> None:
    [hit] = fuse([NOTHING], np.array([0, 0, 1.0, 0]), 4)
    assert (hit.row, hit.relevance, hit.intents) == (2, 0.3, ())


def test_of_equals_the_first_comes_first() -> None:
    assert [hit.row for hit in fuse([np.full(100, 0.5)], np.zeros(100), 3)] == [0, 1, 2]


def test_a_tool_does_not_take_along_a_query_that_it_does_not_fit() -> None:
    fused = fuse([np.array([0.9, 0, 0, 0]), np.array([0.1, 0.05, 0, 0])], NOTHING, 4)
    assert [(hit.row, hit.intents) for hit in fused] == [(0, (0,)), (1, ())]


async def test_the_best_for_each_query_is_told_also_where_it_had_no_room() -> None:
    queries = ("send an email", "list the tables of the database", "purple elephants dancing")
    hits = await BM25SearchProvider().search(SearchRequest(queries, None, CATALOG, 1))
    assert len(hits) == 1
    mail, tables, elephants = hits.best_by_query
    assert min(mail, tables) > 0.5
    assert elephants < 0.2


async def test_the_explanation_has_only_the_words_of_the_queries_that_a_tool_serves() -> None:
    queries = ("send an email", "read the body of a file")
    hits = await BM25SearchProvider(embeddings=False).search(SearchRequest(queries, "a message to Bob", CATALOG, 2))
    words = {hit.tool_key: hit.explanation or "" for hit in hits if hit.intents == (0,)}
    assert "body" not in words["mail:send_email"]
    assert "message" in words["mail:send_email"]


def test_each_query_gets_several_tools_before_any_gets_more() -> None:
    strong = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.0, 0.0])
    weak = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.12, 0.05])
    fused = fuse([strong, weak], np.zeros(7), 5, least_each=2)
    assert [(hit.row, hit.intents) for hit in fused] == [(0, (0,)), (1, (0,)), (2, (0,)), (5, (1,)), (6, (1,))]


async def test_a_hit_has_its_relevance_for_each_query_that_it_serves() -> None:
    queries = ("send an email", "write a message to somebody")
    for hit in await BM25SearchProvider(embeddings=False).search(SearchRequest(queries, None, CATALOG, 3)):
        assert len(hit.fits) == len(hit.intents)
        assert max(hit.fits, default=hit.relevance) == hit.relevance


async def test_explanations_are_left_out_where_nobody_reads_them() -> None:
    request = SearchRequest(("send an email", "getForecast"), None, CATALOG, 4, explain=False)
    hits = {hit.tool_key: hit.explanation for hit in await BM25SearchProvider(embeddings=False).search(request)}
    assert hits["mail:send_email"] is None
    assert hits["weather:getForecast"] == "exact name"


async def test_a_hit_says_how_much_of_it_comes_from_meaning() -> None:
    request = SearchRequest(("write to a colleague", "send an email"), None, CATALOG, 10)
    shares = {hit.tool_key: hit.semantic_share for hit in await BM25SearchProvider().search(request)}
    assert all(share is not None and 0 <= share <= 1 for share in shares.values())
    [similar] = [hit for hit in await BM25SearchProvider().search(_one("write to a colleague")) if _by_meaning(hit)][:1]
    assert similar.semantic_share == 1
    by_words = await BM25SearchProvider(embeddings=False).search(request)
    assert {hit.semantic_share for hit in by_words} == {None}


def _one(query: str) -> SearchRequest:
    return SearchRequest((query,), None, CATALOG, 10)


def _by_meaning(hit: SearchHit) -> bool:
    return hit.explanation == "similar in meaning"
