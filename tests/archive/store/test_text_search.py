"""Search in packed postings: the same passages and scores as FTS5, and bounds on what a query can cost."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from pointsman.archive.model.query import Query
from pointsman.archive.search.query_parser import MAX_CHARS, parse
from pointsman.archive.store import phrase_frequencies, text_search
from pointsman.archive.store.base import Scope
from pointsman.archive.store.corpus import Corpus
from pointsman.archive.store.postings import TITLE, Occurrences, PassageTexts, Postings, index, pack, unpack
from pointsman.archive.store.text_search import TextSearch, pieces
from tests.archive.fts5 import Fts5, passages, quoted, term

EVERYTHING = Scope()


class Segments:
    """Fits `PostingsReader`: packed segments in memory."""

    def __init__(self, texts: Sequence[PassageTexts], size: int) -> None:
        self.lengths: dict[int, int] = {}
        self.asked: list[str] = []
        self._segments: list[list[Postings]] = []
        for start in range(0, len(texts), size):
            indexed, lengths = index(texts[start : start + size])
            self._segments.append([unpack(block.data, block.positions) for block in pack(indexed)])
            self.lengths |= lengths

    def read(self, words: Mapping[str, int], *, positions: bool) -> Mapping[str, Sequence[Occurrences]]:
        self.asked += words
        found: defaultdict[str, list[Occurrences]] = defaultdict(list)
        for word in words:
            for segment in self._segments:
                for block in segment:
                    found[word] += block.find(word)
        return found

    def common(self, words: Sequence[str]) -> Mapping[str, int]:
        found = self.read(dict.fromkeys(words, 0), positions=False)
        return {word: sum(len(each.passages) for each in found[word]) for word in words}


def made(texts: Sequence[PassageTexts], size: int = 100, dead: Sequence[int] = ()) -> tuple[TextSearch, Segments]:
    segments = Segments(texts, size)
    documents = np.zeros(texts[-1].number + 1, np.int32)
    lengths = np.zeros_like(documents)
    for number, length in segments.lengths.items():
        lengths[number], documents[number] = length, number // 10 + 1
    documents[list(dead)] = 0
    return TextSearch(segments, Corpus.of(documents, documents, lengths)), segments


def by_fts5(reference: Fts5, query: Query, limit: int, enough: int) -> dict[int, float]:
    """The search as expressions of FTS5: all the words, then any of them; complete ones are lifted.

    What must not be there is taken out afterwards: in `(a AND (b OR c)) NOT d`, FTS5 forgets to count b in some rows.
    """
    never = {number for text in query.must_not for number in reference.scores(term(text))}

    def scores(expression: str) -> dict[int, float]:
        found = reference.scores(expression)
        return dict([item for item in found.items() if item[0] not in never][:limit])

    words = list(dict.fromkeys(query.words))
    complete = scores(" AND ".join(map(term, [*query.must, *words])))
    if len(complete) >= enough or not words or (len({*words, *query.must}) == 1 and not pieces(words[0])):
        return complete
    musts = list(map(term, query.must))
    parts = [piece for word in query.words for piece in pieces(word)]
    some = " OR ".join([*map(term, [*query.words, *parts]), *musts[:1]])
    both = complete | scores(" AND ".join([*musts, f"({some})"]))
    others = [score for number, score in both.items() if number not in complete]
    lift = max(0.0, max(others) - min(both[number] for number in complete)) if others and complete else 0.0
    lifted = {number: score + lift * (number in complete) for number, score in both.items()}
    return dict(sorted(lifted.items(), key=lambda item: (-item[1], item[0] not in complete, item[0]))[:limit])


def queries(texts: Sequence[PassageTexts], count: int) -> list[str]:
    """Words and phrases of the texts, with operators."""
    chance = random.Random(11)
    made = []
    for _ in range(count):
        words = chance.choice(texts).text.split()
        words = [word for word in words if any(map(str.isalnum, word)) and '"' not in word] or ["gateway"]
        start = chance.randrange(len(words))
        chosen = words[start : start + chance.randint(1, 5)] + chance.sample(words, min(2, len(words)))
        asked = " ".join(chosen)
        if chance.random() < 0.3:
            asked += f' +"{" ".join(words[start : start + 2])}"'
        if chance.random() < 0.3:
            asked += f" -{chance.choice(words)}"
        made.append(asked)
    return made


def assert_equal(search: TextSearch, reference: Fts5, text: str) -> None:
    query = parse(text)
    if query.empty:
        return
    hits = {hit.number: hit.score for hit in search.search(query, 100, enough=10, scope=EVERYTHING)}
    expected = by_fts5(reference, query, 100, 10)
    assert list(hits.values()) == pytest.approx(list(expected.values()), abs=1e-4), text
    for number in hits.keys() & expected.keys():
        assert hits[number] == pytest.approx(expected[number], abs=1e-4), text
    missing = expected.keys() - hits.keys()
    assert all(abs(expected[number] - min(expected.values())) < 1e-4 for number in missing), text


@pytest.mark.parametrize("size", [1_000_000, 37])
def test_scores_equal_those_of_fts5(size: int) -> None:
    reference = Fts5(passages())
    search, _ = made(passages(), size)
    for text in [
        *queries(passages(), 300),
        "getUserName",
        "v1.0 gateway",
        "high-speed gateway-daemon",
        "漢字",
        "the the the gateway",
    ]:
        assert_equal(search, reference, text)


def test_deleted_passages_count_nowhere() -> None:
    dead = random.Random(2).sample(range(1, len(passages()) + 1), len(passages()) // 3)
    reference = Fts5([each for each in passages() if each.number not in dead])
    search, _ = made(passages(), 50, dead)
    for text in queries(passages(), 150):
        assert_equal(search, reference, text)


def test_a_phrase_is_found_in_one_column_only_and_titles_alone() -> None:
    texts = [
        PassageTexts(1, "red", "apple", "plum", None),
        PassageTexts(2, "red apple", None, "plum", None),
        PassageTexts(3, "plum", None, "a red, apple", None),
    ]
    search, _ = made(texts)
    assert search.passages("red apple").tolist() == [2, 3]
    assert search.passages("red apple", frozenset((TITLE,))).tolist() == [2]
    assert search.passages("apple", phrase_frequencies.BODY).tolist() == [1, 3]
    assert search.with_all([["red"], ["plum", "pear"]]).tolist() == [1, 2, 3]
    assert search.with_all([["red apple", "nothing"], ["plum"]]).tolist() == [2, 3]


def test_a_scope_limits_matches_but_not_the_weight_of_words() -> None:
    search, _ = made(passages())
    query = parse("gateway")
    everywhere = {hit.number: hit.score for hit in search.search(query, 10_000, enough=10, scope=EVERYTHING)}
    some = frozenset({3, 5, 8, 10**9})
    inside = {hit.number: hit.score for hit in search.search(query, 10_000, enough=10, scope=Scope(documents=some))}
    assert inside == {number: score for number, score in everywhere.items() if number // 10 + 1 in some}
    assert inside
    assert search.search(query, 10, enough=10, scope=Scope(collections=frozenset())) == []


def test_required_and_excluded_passages_equal_those_of_fts5() -> None:
    reference = Fts5(passages())
    search, _ = made(passages())
    only, never = search.required_and_excluded(parse('+gateway +"the archive" -server'))
    assert only == reference.scores('"gateway" AND "the archive"').keys()
    assert never == reference.scores('"server"').keys()
    assert search.required_and_excluded(parse("gateway")) == (None, frozenset())


def test_rare_identifiers_are_found_as_written() -> None:
    search, _ = made(passages())
    assert search.with_identifiers(["maxRetryCount", "nowhere_1"], parse("maxRetryCount"), EVERYTHING) == {5: (0, 1)}
    assert search.with_identifiers(["maxRetryCount"], parse("maxRetryCount -HTTPServer"), EVERYTHING) == {}
    assert len(Fts5(passages()).scores(quoted("gateway"))) > text_search.COMMON_IDENTIFIER
    assert search.with_identifiers(["gateway"], parse("gateway"), EVERYTHING) == {}


def test_the_longest_query_reads_a_bounded_number_of_words() -> None:
    search, segments = made(passages())
    hostile = " ".join("-".join(f"w{word}p{piece}" for piece in range(20)) for word in range(200))
    assert len(hostile) > MAX_CHARS
    search.search(parse(hostile), 100, enough=10, scope=EVERYTHING)
    phrase = " ".join(f"p{number}" for number in range(5_000))
    search.search(Query(must=(phrase,)), 100, enough=10, scope=EVERYTHING)
    search.search(Query(words=tuple(f"x{number}" for number in range(5_000))), 100, enough=10, scope=EVERYTHING)
    assert len(segments.asked) < 6 * text_search.MOST_WORDS


def test_where_all_words_cost_too_much_the_commonest_are_dropped_but_never_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [PassageTexts(number, "t", None, "common usual" + " rare" * (number == 7), None) for number in range(1, 90)]
    search, _ = made(texts)
    query = Query(words=("common", "usual", "rare", "absent"))
    assert len(search.search(query, 100, enough=10, scope=EVERYTHING)) == 89
    monkeypatch.setattr(text_search, "MOST_POSTINGS", 50)
    search, _ = made(texts)
    assert [hit.number for hit in search.search(query, 100, enough=10, scope=EVERYTHING)] == [7]
    common = Query(words=("common", "usual"))
    assert len(search.search(common, 100, enough=100, scope=EVERYTHING)) == 89
