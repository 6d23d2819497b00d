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


def test_what_the_context_moves_up_has_the_relevance_of_what_it_passes() -> None:
    fit, context = np.array([0.3, 0.2, 0.25, 0.1]), np.array([0, 0.9, 0, 0.1])
    for most in (2, 4):
        fused = fuse([fit], context, most)
        assert [(hit.row, hit.relevance) for hit in fused] == [(1, 0.3), (0, 0.3), (2, 0.25), (3, 0.1)][:most]


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


def _served(fits: list[list[float]], max_results: int, least_each: int = 3) -> dict[int, tuple[int, ...]]:
    rows = [np.array(each) for each in fits]
    return {hit.row: hit.intents for hit in fuse(rows, np.zeros(len(rows[0])), max_results, least_each=least_each)}


def test_a_tool_among_the_best_of_several_queries_is_named_for_each_of_them() -> None:
    first, second = [0.9, 0.523, 0.227, 0.005, 0.004], [0.68, 0.0, 0.362, 0.0, 0.39]
    assert _served([first, second], 10) == {0: (0, 1), 1: (0,), 4: (1,), 2: (0, 1)}


def test_no_room_is_given_to_what_hardly_fits_any_query() -> None:
    assert _served([[0.9, 0.6, 0.5, 0.19, 0.0], [0.8, 0.0, 0.2, 0.0, 0.19]], 10) == {
        0: (0, 1),
        1: (0,),
        2: (0, 1),
        4: (1,),
    }
    assert _served([[0.9, 0.6, 0.5, 0.2, 0.19], [0.8, 0.3, 0.2, 0.0, 0.0]], 10)[3] == (0,)


def test_what_is_named_for_a_query_fits_it_better_than_all_others_that_are_shown() -> None:
    random = np.random.default_rng(7)
    for _ in range(200):
        fits = random.random((4, 30)) ** 4
        hits = fuse(list(fits), np.zeros(30), 12, least_each=3)
        for query, fit in enumerate(fits):
            named = [fit[hit.row] for hit in hits if query in hit.intents]
            others = [fit[hit.row] for hit in hits if query not in hit.intents]
            assert len(named) >= 3
            assert max(others, default=0.0) < min(named)
        for hit in hits:
            assert hit.relevance == max(fits[query][hit.row] for query in hit.intents)


def test_only_the_context_found_something_for_several_queries() -> None:
    [hit] = fuse([NOTHING, NOTHING], np.array([0, 0, 1.0, 0]), 4, least_each=3)
    assert (hit.row, hit.intents) == (2, ())


async def test_the_same_query_twice_changes_nothing_and_both_are_named() -> None:
    once, twice = [
        await BM25SearchProvider(embeddings=False).search(SearchRequest(queries, None, CATALOG, 9, least_each=3))
        for queries in (("send an email", "read a file"), ("send an email", " send  an email", "read a file"))
    ]
    assert [(hit.tool_key, hit.relevance) for hit in twice] == [(hit.tool_key, hit.relevance) for hit in once]
    assert [hit.intents for hit in twice] == [
        tuple(index for one in hit.intents for index in {0: (0, 1), 1: (2,)}[one]) for hit in once
    ]
    assert all(len(hit.fits) == len(hit.intents) for hit in twice)
    assert len(twice.best_by_query) == 3
