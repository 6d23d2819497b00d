"""The relevance of the best hit: what speaks for it and what against."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.bm25.relevance import MOST, UNSURE, Evidence, relevance
from tests.providers.small_catalog import small_catalog

FAIR = Evidence(
    score=1.5,
    part_score=1.5,
    plain=0.5,
    part_plain=0.5,
    names=0.0,
    missing=10.0,
    echoed=0.2,
    described=0.0,
    acted=None,
    cosine=None,
    lead=None,
    object_cosine=None,
    sentence=None,
    tools=500,
)
BY_MEANING = replace(FAIR, cosine=0.4, lead=0.8, acted=0.5, object_cosine=0.3)
BY_SENTENCES = replace(BY_MEANING, sentence=0.4)


@pytest.mark.parametrize("evidence", [FAIR, BY_MEANING, BY_SENTENCES], ids=["words", "embeddings", "sentences"])
@pytest.mark.parametrize(
    ("field", "figure"),
    [("plain", 0.9), ("part_plain", 0.9), ("names", 1.0), ("missing", 9.0), ("tools", 300)],
)
def test_what_speaks_for_a_hit_raises_its_relevance(evidence: Evidence, field: str, figure: float) -> None:
    changed: dict[str, Any] = {field: figure}
    assert relevance(replace(evidence, **changed)) > relevance(evidence)


@pytest.mark.parametrize(
    ("evidence", "field"),
    [
        *((BY_MEANING, field) for field in ("cosine", "lead", "object_cosine")),
        *((BY_SENTENCES, field) for field in ("lead", "object_cosine", "sentence")),
    ],
)
def test_so_does_a_meaning_that_is_closer(evidence: Evidence, field: str) -> None:
    changed: dict[str, Any] = {field: 0.9}
    assert relevance(replace(evidence, **changed)) > relevance(evidence)


@pytest.mark.parametrize("evidence", [BY_MEANING, BY_SENTENCES], ids=["embeddings", "sentences"])
def test_meaning_makes_a_hit_by_words_doubtful_at_most(evidence: Evidence) -> None:
    """A request about a subject (`did I save an article about batteries`) has another meaning than any tool."""
    nothing: dict[str, Any] = {"cosine": 0.0, "lead": 0.0, "object_cosine": 0.0}
    if evidence.sentence is not None:
        nothing["sentence"] = 0.0
    likely, unlikely = replace(evidence, score=6.0, part_score=6.0, **nothing), replace(evidence, **nothing)
    assert relevance(_by_words(likely)) > UNSURE
    assert relevance(likely) == UNSURE
    assert relevance(_by_words(unlikely)) < UNSURE
    assert relevance(unlikely) == relevance(_by_words(unlikely))


def _by_words(evidence: Evidence) -> Evidence:
    return replace(evidence, acted=None, cosine=None, lead=None, object_cosine=None, sentence=None)


def test_no_hit_is_as_sure_as_an_exact_name() -> None:
    assert 0.9 < relevance(replace(FAIR, score=50, part_score=50)) <= MOST < 0.99


async def test_words_that_the_tool_lacks_lower_its_relevance_and_names_hardly_do() -> None:
    lacking = "weather forecast for knitting protein guitars and horoscopes of engines beneath woollen bridges"
    by_words = BM25SearchProvider(embeddings=False)

    async def best(query: str) -> float:
        [hit, *_] = await by_words.search(SearchRequest((query,), None, small_catalog(), 1))
        return hit.relevance

    assert await best(lacking) < await best("weather forecast for Anna in Oslo") <= await best("weather forecast")


@pytest.mark.parametrize("evidence", [BY_MEANING, BY_SENTENCES], ids=["embeddings", "sentences"])
def test_a_verb_whose_object_the_tool_lacks_lowers_its_relevance(evidence: Evidence) -> None:
    assert relevance(replace(evidence, acted=1.0)) < relevance(evidence)


async def test_a_verb_that_a_tool_shares_says_less_than_the_object_that_it_shares() -> None:
    """As many words match either way, and each is in the name of one tool."""
    tools = (
        ToolDocument("files:archive", "archive_report", "files", "Archive a report", {}),
        ToolDocument("shop:submit", "submit_order", "shop", "Submit an order", {}),
    )
    provider = BM25SearchProvider()

    async def best(query: str) -> float:
        [hit, *_] = await provider.search(SearchRequest((query,), None, tools, 1))
        assert hit.tool_key == "files:archive"
        return hit.relevance

    assert await best("archive the invoice") < await best("approve the report")


@pytest.mark.parametrize("embeddings", [False, True], ids=["words", "embeddings"])
async def test_a_tool_that_removes_something_else_is_doubtful(embeddings: bool) -> None:
    tools = (
        ToolDocument("memory:delete", "delete_observations", "memory", "Delete observations from entities", {}),
        ToolDocument("files:read", "read_file", "files", "Read a file", {}),
    )
    provider = BM25SearchProvider(embeddings)

    async def best(query: str) -> float:
        [hit, *_] = await provider.search(SearchRequest((query,), None, tools, 1))
        assert hit.tool_key == "memory:delete"
        return hit.relevance

    assert await best("delete the calendar event") <= UNSURE
    assert await best("delete the observations of an event") > UNSURE
    assert await best("delete them") > UNSURE


async def test_a_step_that_refers_back_is_served_by_the_server_of_the_step_before() -> None:
    tools = [
        ToolDocument("git:fork", "fork_repository", "git", "Fork a repository", {}),
        ToolDocument("git:add", "add_record", "git", "Add a record", {}),
        ToolDocument("shop:add", "add_record", "shop", "Add a record", {}),
    ]
    by_words = BM25SearchProvider(embeddings=False)
    for order in (tools, tools[::-1]):
        request = SearchRequest(("fork the repository and add a record there",), None, tuple(order), 3)
        keys = [hit.tool_key for hit in await by_words.search(request)]
        assert keys.index("git:add") < keys.index("shop:add")
