"""The stems of a passage are those of its words, whether they are cached or not."""

from __future__ import annotations

from pathlib import Path

from pointsman.archive.search import evidence
from pointsman.archive.search.evidence import MAX_IDENTIFIERS, WeightedQuery, stems_in
from pointsman.providers import semantic
from pointsman.providers.text import beginnings, stem, tokens
from tests.archive.fts5 import passages

DOCS = Path(__file__).parents[3] / "docs"
VOCABULARY = Path(semantic.__file__).parent / "vocab.txt"
IRREGULAR = "went ate enquiries paediatric dying vying visibility people mice indices flown tyres organising Organised"


def test_stems_are_those_of_the_whole_text() -> None:
    for _ in range(2):
        for passage in passages():
            present = set(tokens(passage.text))
            anything = frozenset(each for one in present for each in beginnings(one))
            assert stems_in(passage.text, anything) == present, passage.text


def test_a_stem_is_found_in_every_word_that_has_it() -> None:
    text = " ".join((IRREGULAR, *(page.read_text("utf-8") for page in sorted(DOCS.rglob("*.md"))[:40])))
    for written in set(text.split()):
        for each in tokens(written):
            assert each in stems_in(written, beginnings(each)), written


def test_words_begin_as_their_tokens_say() -> None:
    words = [word for word in VOCABULARY.read_text("utf-8").split() if word.isascii() and word.isalpha()]
    for word in words[::7]:
        assert word.startswith(tuple(beginnings(stem(word)))), word


def test_plain_words_with_other_beginnings_are_left_out() -> None:
    assert stems_in("The walrus, (Walruses) and a fish swam: getFishName.", beginnings("walrus")) >= {"walrus"}
    assert "swim" not in stems_in("The walrus swam, getFishName.", beginnings("walrus"))
    assert "fish" in stems_in("The walrus swam, getFishName.", beginnings("fish"))


def test_the_cache_is_bounded_and_takes_no_long_words() -> None:
    kept = evidence._known_stems.cache_info().currsize, len(evidence._first_letters)
    stems_in(" ".join("x" * (100 + number) for number in range(50)), frozenset(["xx"]))
    assert (evidence._known_stems.cache_info().currsize, len(evidence._first_letters)) == kept
    assert evidence._known_stems.cache_info().maxsize == 32_768


def test_the_parts_of_an_identifier_count_for_hits_if_one_of_them_has_it_as_a_whole() -> None:
    query = WeightedQuery(["DEC-0054"], lambda words: dict.fromkeys(words, 1.0))
    assert query.evidence([("DEC-0054", 0.2), ("DEC-0055", 0.7)]) == [1.0, 0.7]
    found, other = query.evidence([("DEC-00541", 0.2), ("DEC-0055", 0.7)])
    assert max(found, other) < 0.1


def test_few_identifiers_of_a_query_are_looked_for_as_a_whole() -> None:
    words = [f"err_{number}" for number in range(64)]
    query = WeightedQuery(words, lambda words: dict.fromkeys(words, 1.0))
    assert len(query._identifiers) == MAX_IDENTIFIERS
