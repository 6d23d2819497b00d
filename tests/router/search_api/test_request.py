"""What is read of a request, and what is remembered of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pointsman.config.model import SearchApiLimits
from pointsman.providers.bm25.documents import texts_of
from pointsman.router.search_api.document_cache import DocumentCache
from pointsman.router.search_api.errors import ApiError
from pointsman.router.search_api.request import MAX_WORDS, ParsedRequest, parse_request
from tests.router.search_api.search_client import TOOLS, tool

LETTERS = "abcdefghijklmnop"


def asked(cache: DocumentCache, tools: list[dict[str, Any]], query: str = "weather") -> ParsedRequest:
    body = json.dumps({"query": [query], "tools": tools}).encode()
    return parse_request(body, gzipped=False, limits=SearchApiLimits(), cache=cache)


def test_a_list_that_comes_back_is_the_same_object_whatever_is_asked() -> None:
    cache = DocumentCache()
    first, second = asked(cache, TOOLS, "one"), asked(cache, TOOLS, "two")
    assert (first.known_list, second.known_list) == (False, True)
    assert first.request.tools is second.request.tools


def test_a_list_that_changes_keeps_the_documents_of_the_tools_that_stay() -> None:
    cache = DocumentCache()
    first = asked(cache, TOOLS).request.tools
    second = asked(cache, [*TOOLS[1:], tool("new:tool")]).request.tools
    assert [old is new for old, new in zip(first[1:], second[:-1], strict=True)] == [True] * (len(TOOLS) - 1)


def test_tools_and_lists_that_were_not_seen_for_long_are_forgotten() -> None:
    cache = DocumentCache(kept_tools=3, kept_lists=2)
    lists = [[tool(f"s:{number}")] for number in range(5)]
    for each in lists:
        asked(cache, each)
    assert cache.tools == 3
    assert [asked(cache, each).known_list for each in (lists[4], lists[3], lists[0])] == [True, True, False]


def test_two_tools_that_differ_only_in_their_schema_are_two() -> None:
    cache = DocumentCache()
    one = asked(cache, [tool("s:t", "x", city="a")]).request.tools[0]
    other = asked(cache, [tool("s:t", "x", town="a")]).request.tools[0]
    assert one is not other
    assert [texts_of(each)["parameter"] for each in (one, other)] == ["city", "town"]


def test_tools_with_more_different_words_than_any_catalog_has_are_refused() -> None:
    words = ("".join(LETTERS[int(digit, 16)] for digit in f"{number:05x}") for number in range(MAX_WORDS + 1))
    tools = [
        tool(f"s:{number}", " ".join(next(words, "") for _ in range(100))) for number in range(MAX_WORDS // 100 + 1)
    ]
    with pytest.raises(ApiError, match="distinct words") as refusal:
        asked(DocumentCache(), tools)
    assert refusal.value.status == 413
