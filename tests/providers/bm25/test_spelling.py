"""Words that a catalog does not have are replaced by those of its own that are spelt alike, at little cost."""

from __future__ import annotations

import time

import pytest

from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.bm25.spelling import MAX_WORDS, Spelling, replace_words

WORDS = ["screenshot", "directory", "message", "merge", "request"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("screnshot", "screenshot"),  # left out
        ("directorry", "directory"),  # doubled
        ("mesxage", "message"),  # replaced
        ("reqeust", "request"),  # swapped
        ("direcotyr", "directory"),  # two slips in a long word
    ],
)
def test_a_slip_is_mended(written: str, meant: str) -> None:
    assert Spelling(WORDS).stand_ins(written) == (meant,)


@pytest.mark.parametrize("written", ["mrg", "zebra", "meeting", "erge", "reqeuts", "id7", "天気予報です"])
def test_what_is_short_or_too_different_has_no_stand_in(written: str) -> None:
    assert Spelling(WORDS).stand_ins(written) == ()


def test_names_keep_their_spelling_in_the_text_that_is_embedded() -> None:
    assert replace_words("post a mesage to Mesage", {"mesage": "message"}) == "post a message to Mesage"


async def test_a_misspelt_request_finds_its_tool() -> None:
    names = ("take_screenshot", "send_message", "merge_request")
    tools = [ToolDocument(f"s:{name}", name, "s", "", {}) for name in names]
    for embeddings in (False, True):
        hits = await BM25SearchProvider(embeddings).search(SearchRequest(("tkae a screnshot",), None, tools, 5))
        assert hits[0].tool_key == "s:take_screenshot"


def test_a_hostile_list_of_words_costs_little() -> None:
    """All alike, so that every word is a candidate; far more than real catalogs have."""
    letters = "abcdefghijklmnopqrst"
    alike = (f"aa{a}{b}{c}{d}zz" for a in letters for b in letters for c in letters for d in letters)
    spelling = Spelling(alike)
    began = time.perf_counter()
    spelling.stand_ins("aaxxyyzz")
    assert sum(map(len, spelling._by_ends.values())) <= 2 * MAX_WORDS
    assert time.perf_counter() - began < 5  # against hanging
