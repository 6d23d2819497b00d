"""Corrections of misspelt words."""

from __future__ import annotations

import pytest

from pointsman.archive.text.vocabulary import Vocabulary
from pointsman.archive.text.words import words_of


def known(**passages: int) -> Vocabulary:
    vocabulary = Vocabulary()
    vocabulary.set(passages.items())
    return vocabulary


def nearest(vocabulary: Vocabulary, word: str) -> list[str]:
    return [guess.word for guess in vocabulary.nearest(word)]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("algorthm", "algorithm"),  # a letter left out
        ("algoorithm", "algorithm"),  # one too many
        ("algorixhm", "algorithm"),  # another one
        ("algoirthm", "algorithm"),  # two changed about
        ("lgorithm", "algorithm"),  # the first left out
        ("algortihsm", "algorithm"),  # two slips in a long word
        ("ALGORTHM", "algorithm"),
        ("cafés", "cafe"),
    ],
)
def test_a_slip_is_seen_through(written: str, meant: str) -> None:
    assert nearest(known(algorithm=3, cafe=1), written) == [meant]


@pytest.mark.parametrize(
    ("written", "there"),
    [
        ("wrod", "word"),  # four letters: none is forgiven
        ("grpahs", "grapes"),  # eight letters at most: one
        ("algxxxthm", "algorithm"),  # more: two
        ("20245", "20244"),
        ("v12345", "v12346"),
        ("graph", "graph"),  # right as it is
        ("graph-two", "graphtwo"),
    ],
)
def test_short_words_numbers_and_too_many_slips_are_left_alone(written: str, there: str) -> None:
    assert nearest(known(**{there: 5}), written) == []


def test_fewer_slips_come_first_then_the_word_that_more_passages_have() -> None:
    vocabulary = known(translation=1, translations=9, translating=50)
    assert nearest(vocabulary, "translatoin") == ["translation", "translating", "translations"]
    assert nearest(known(house=2, horse=7), "hoise") == ["horse", "house"]
    assert nearest(known(house=2, mouse=7, douse=4), "iouse") == ["mouse", "douse", "house"]


def test_a_slip_in_the_first_letter_counts_double() -> None:
    assert nearest(known(hanging=1, banging=100), "hangine") == ["hanging"]
    assert nearest(known(handles=1, candles=100), "pandles") == ["candles", "handles"]
    assert nearest(known(candies=1, handles=100), "candles") == ["candies", "handles"]


def test_a_word_that_no_passage_has_any_more_is_not_meant() -> None:
    vocabulary = known(algorithm=1)
    vocabulary.set([("algorithm", 0)])
    assert nearest(vocabulary, "algorthm") == []


def test_words_are_whole_and_folded() -> None:
    text = "The Größe of naïve U2 snake_case x86 don't, pneumonoultramicroscopicsilicovolcanoconiosis graph2 end."
    assert words_of(text) == {"grosse", "naive", "snake", "case"}
