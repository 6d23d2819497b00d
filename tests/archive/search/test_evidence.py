"""The stems of a passage are those of its words, whether they are cached or not."""

from __future__ import annotations

from pointsman.archive.search import evidence
from pointsman.archive.search.evidence import stems_in
from pointsman.providers.text import tokens
from tests.archive.fts5 import passages


def test_stems_are_those_of_the_whole_text() -> None:
    for _ in range(2):
        for passage in passages():
            assert stems_in(passage.text) == set(tokens(passage.text)), passage.text


def test_the_cache_is_bounded_and_takes_no_long_words() -> None:
    kept = evidence._known_stems.cache_info().currsize
    stems_in(" ".join("x" * (100 + number) for number in range(50)))
    assert evidence._known_stems.cache_info().currsize == kept
    assert evidence._known_stems.cache_info().maxsize == 32_768
