"""The faster index gives the figures of rank_bm25's own class, to the last bit."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Plus

from pointsman.providers.postings import Postings

WORDS = st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon"])
CORPORA = st.lists(st.lists(WORDS, max_size=8), min_size=1, max_size=12).filter(any)


def counted(corpus: list[list[str]]) -> list[Counter[str]]:
    return [Counter(document) for document in corpus]


@settings(max_examples=200, deadline=None)
@given(CORPORA, st.lists(st.one_of(WORDS, st.just("unknown")), max_size=6), st.sampled_from([(3.2, 0.6), (1.5, 0.75)]))
def test_scores_equal_those_of_the_parent(
    corpus: list[list[str]], query: list[str], tuning: tuple[float, float]
) -> None:
    k1, b = tuning
    theirs = BM25Plus(corpus, k1=k1, b=b).get_scores(query)
    ours = Postings(counted(corpus), k1=k1, b=b).get_scores(query)
    assert ours.tobytes() == theirs.tobytes()


@settings(max_examples=100, deadline=None)
@given(CORPORA, st.lists(WORDS, max_size=5, unique=True))
def test_the_matching_part_is_the_score_without_what_everybody_gets(corpus: list[list[str]], query: list[str]) -> None:
    index = Postings(counted(corpus))
    base = sum(index.idf.get(word, 0.0) for word in query) * index.delta
    assert np.allclose(index.matching(query), index.get_scores(query) - base)
    for row, document in enumerate(corpus):
        assert (index.matching(query)[row] > 0) == bool(set(query) & set(document))


@pytest.mark.parametrize("corpus", [[], [[]], [[], []]])
def test_a_corpus_without_a_word_is_searched_in_vain(corpus: list[list[str]]) -> None:
    index = Postings(counted(corpus))
    assert index.get_scores(["alpha", ""]).tolist() == [0.0] * len(corpus)
    assert index.matching(["alpha", ""]).tolist() == [0.0] * len(corpus)


def test_coverage_counts_rare_words_more() -> None:
    index = Postings(counted([["common", "rare"], ["common"], ["common"], ["common"]]))
    assert index.coverage(["common", "rare"], 0) == 1
    assert 0 < index.coverage(["common", "rare"], 1) < 0.2
    assert index.coverage(["unknown"], 0) == 0
    assert index.coverage([], 0) == 0
