"""Chinese and Japanese catalogs: ranked at least as well as by plain bigrams, with relevances that tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from ruamel.yaml import YAML

from pointsman.catalog.results import DOUBTFUL
from pointsman.providers.base import SearchHit, SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.embeddings import load_numpy

LANGUAGES = ("chinese", "japanese")
MIN_FIRST = 0.93

in_both = pytest.mark.parametrize("language", LANGUAGES)
both_ways = pytest.mark.parametrize("embeddings", [False, True], ids=["words", "embeddings"])


@cache
def data() -> Any:
    return YAML(typ="safe").load(Path(__file__).with_name("cjk.yaml"))


def documents(language: str) -> tuple[ToolDocument, ...]:
    return tuple(ToolDocument(f"s:{name}", name, "s", tool["about"], {}) for name, tool in data()[language].items())


async def searched(language: str, asks: Sequence[str], embeddings: bool) -> list[list[SearchHit]]:
    provider, tools = BM25SearchProvider(embeddings), documents(language)
    return [await provider.search(SearchRequest((ask,), None, tools, 5)) for ask in asks]


def by_plain_bigrams(language: str) -> list[bool]:
    """Whether the right tool comes first by BM25 over pairs of characters."""
    load_numpy()
    from rank_bm25 import BM25Okapi  # brings numpy, which is loaded as in the gateway

    tools = data()[language]
    index = BM25Okapi([_bigrams(tool["about"]) for tool in tools.values()])
    best = [int(index.get_scores(_bigrams(tool["ask"])).argmax()) for tool in tools.values()]
    return [place == row for place, row in enumerate(best)]


def _bigrams(text: str) -> list[str]:
    run = re.sub(r"[\W_]+", "", text.lower())
    return [run[start : start + 2] for start in range(len(run) - 1)]


@in_both
@both_ways
async def test_the_right_tool_comes_first_more_often_than_by_plain_bigrams(language: str, embeddings: bool) -> None:
    asks = {tool["ask"]: f"s:{name}" for name, tool in data()[language].items()}
    found = await searched(language, list(asks), embeddings)
    first = [bool(hits) and hits[0].tool_key == key for hits, key in zip(found, asks.values(), strict=True)]
    assert mean(first) >= MIN_FIRST
    assert mean(first) >= mean(by_plain_bigrams(language))


@in_both
@both_ways
async def test_right_hits_are_not_called_doubtful_and_others_mostly_are(language: str, embeddings: bool) -> None:
    asks = {tool["ask"]: f"s:{name}" for name, tool in data()[language].items()}
    found = await searched(language, list(asks), embeddings)
    right = [hits[0].relevance for hits, key in zip(found, asks.values(), strict=True) if hits[0].tool_key == key]
    assert mean([relevance >= DOUBTFUL for relevance in right]) >= 0.95
    unfit = await searched(language, data()["unfit"][language], embeddings)
    wrong = [hits[0].relevance if hits else 0.0 for hits in unfit]
    assert mean([relevance < DOUBTFUL for relevance in wrong]) >= 0.75
    assert mean([good > bad for good in right for bad in wrong]) >= 0.95
