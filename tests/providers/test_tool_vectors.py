"""The cosine of a tool is that of its own texts or of its nearest example request."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.tool_vectors import NEAR, ToolVectors

DIMENSIONS = 4


def vectors(count: int, seed: int) -> NDArray[np.float16]:
    return np.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype(np.float16)


def nearest(text: NDArray[np.float32], of_tool: NDArray[np.float32], share: float) -> float:
    own, *examples = map(float, of_tool @ text)
    return max([own, *(share * each for each in examples if each >= NEAR)])


SHARES = st.sampled_from([0.5, 1.0])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(1, 3), st.integers(0, 9), SHARES)
def test_the_best_of_a_tools_vectors_counts(examples: list[int], texts: int, seed: int, share: float) -> None:
    rows = [vectors(1 + count, seed + place) for place, count in enumerate(examples)]
    asked = vectors(texts, seed + 99).astype(np.float32)
    found = ToolVectors.of(rows, share).cosines(asked)
    expected = [[nearest(text, each.astype(np.float32), share) for each in rows] for text in asked]
    np.testing.assert_allclose(found, expected, atol=1e-5)


KEPT = ToolDocument("a:kept", "kept", "a", "Look at the notes of a team", {}, examples=("why do we use two queues",))
LISTED = ToolDocument("a:listed", "listed", "a", "Look at the queue of prints", {})


async def found(provider: BM25SearchProvider, query: str, *tools: ToolDocument) -> list[str]:
    return [hit.tool_key for hit in await provider.search(SearchRequest((query,), None, tools, 9))]


async def test_a_request_like_an_example_finds_its_tool_by_meaning() -> None:
    bare = ToolDocument("a:kept", "kept", "a", KEPT.description, {})
    ask = "why did we need two of these"
    assert await found(BM25SearchProvider(), ask, bare, LISTED) == []
    assert await found(BM25SearchProvider(), ask, KEPT, LISTED) == ["a:kept"]


async def test_words_alone_do_not_read_examples() -> None:
    assert await found(BM25SearchProvider(embeddings=False), "two queues", KEPT, LISTED) == ["a:listed"]


async def test_an_example_in_a_script_that_the_model_does_not_cover_does_no_harm() -> None:
    odd = ToolDocument("a:odd", "odd", "a", "Odd", {}, examples=("\u4e3a\u4ec0\u4e48", "", "\ud83d"))
    assert (await found(BM25SearchProvider(), "look at the queue", odd, LISTED))[0] == "a:listed"
