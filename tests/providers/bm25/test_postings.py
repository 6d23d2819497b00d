"""The faster index gives the figures of rank_bm25's own class, to the last bit."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Plus

from pointsman.providers.bm25.postings import Counted, Postings

WORDS = st.integers(0, 9)
UNKNOWN = 10
CORPORA = st.lists(st.lists(WORDS, max_size=8), min_size=1, max_size=12).filter(any)
TUNINGS = st.sampled_from([(3.2, 0.6), (1.5, 0.75)])


def counted(corpus: list[list[int]]) -> list[Counted]:
    counts = [Counter(document) for document in corpus]
    return [(np.array(list(each), np.int32), np.array(list(each.values()), np.int32)) for each in counts]


@settings(max_examples=200, deadline=None)
@given(CORPORA, st.lists(st.one_of(WORDS, st.just(UNKNOWN)), max_size=6), TUNINGS)
def test_scores_equal_those_of_the_parent(
    corpus: list[list[int]], query: list[int], tuning: tuple[float, float]
) -> None:
    k1, b = tuning
    theirs = BM25Plus(corpus, k1=k1, b=b).get_scores(query)
    ours = Postings(counted(corpus), k1=k1, b=b).get_scores(query)
    assert ours.tobytes() == theirs.tobytes()


@settings(max_examples=100, deadline=None)
@given(CORPORA, WORDS)
def test_the_matching_part_is_the_score_without_what_everybody_gets(corpus: list[list[int]], word: int) -> None:
    index = Postings(counted(corpus))
    if word not in index.idf:
        return
    rows, values = index.matching(word)
    gained = index.get_scores([word]) / index.idf[word] - index.delta
    assert rows.tolist() == [row for row, document in enumerate(corpus) if word in document]
    assert np.allclose(values, index.worth(word) * gained[rows])
    assert [index.has(row, word) for row in range(len(corpus))] == [word in document for document in corpus]


def test_a_word_that_stands_for_another_is_worth_no_more_than_that_one() -> None:
    index = Postings(counted([[1, 2], [1], [1], [3]]))
    _, rare = index.matching(2)
    _, bounded = index.matching(2, most=index.worth(1))
    assert bounded < rare


@pytest.mark.parametrize("corpus", [[], [[]], [[], []]])
def test_a_corpus_without_a_word_is_searched_in_vain(corpus: list[list[int]]) -> None:
    index = Postings(counted(corpus))
    assert index.get_scores([1, UNKNOWN]).tolist() == [0.0] * len(corpus)
    assert not index.has(0, 1)
