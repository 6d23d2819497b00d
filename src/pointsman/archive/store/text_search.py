"""Full-text search in packed postings: which passages match a query, ranked by BM25. Independent of the engine.

Scores are those of SQLite's FTS5 (`bm25()` with weights for the columns), where a phrase counts like a word. An
engine provides a `PostingsReader` and the `Corpus`, both of the same transaction.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from pointsman.archive.model.query import Query
from pointsman.archive.store.base import Named, Scope, TextHit
from pointsman.archive.store.corpus import K1, Corpus, Scores
from pointsman.archive.store.lru_cache import LruCache
from pointsman.archive.store.phrase_frequencies import (
    EVERYWHERE,
    HEADINGS,
    Columns,
    FrequencyCache,
    Phrase,
    PhraseFrequencies,
)
from pointsman.archive.store.postings import PARTS, Flags, Numbers, PostingsReader
from pointsman.archive.text.tokenizer import tokenize
from pointsman.archive.text.words import is_identifier, numbered_names, spellings, split_identifier

LEAST_IDF = 1e-6  # of a word that half of all passages have
MOST_WORDS = 512  # looked up for one query, pieces and parts included
MOST_PHRASE_WORDS = 64
MOST_POSTINGS = 5_000_000  # of common words that a query may read: some tenths of a second
COMMON_IDENTIFIER = 20  # passages: one in more of them (`utf-8`, `GitHub`) is a word like others
SHORT_QUERY = 4  # words

_PIECE = re.compile(r"[^\W_]{2,}")
_FEW = 10  # times the limit: as many are sorted at once
_GROUP = 32  # scores of which only the best is looked at first


@dataclass(frozen=True, slots=True)
class Found:
    """The passages that have a phrase, ascending, and what it adds to the score of each."""

    passages: Numbers
    scores: Scores

    @property
    def bytes(self) -> int:
        return self.passages.nbytes + self.scores.nbytes


NOTHING = Found(np.zeros(0, np.int64), np.zeros(0))


def phrases(text: str, columns: Columns = EVERYWHERE) -> list[Phrase]:
    """The readings of a word or phrase: as written, and by the parts of an identifier that is written as one word."""
    read = written(text, columns)
    parts = split_identifier(text)
    if parts and PARTS in columns:
        read.append(Phrase(tuple(tokenize(parts)[:MOST_PHRASE_WORDS]), frozenset((PARTS,))))
    return [phrase for phrase in read if phrase.words]


def written(text: str, columns: Columns = EVERYWHERE) -> list[Phrase]:
    """A text as it is written, a version number also with or without its `v`."""
    read = [Phrase(tuple(tokenize(each)[:MOST_PHRASE_WORDS]), columns) for each in spellings(text)]
    return [phrase for phrase in read if phrase.words]


def pieces(word: str) -> list[str]:
    """The halves of `high-speed`, which match where the whole does not."""
    found = _PIECE.findall(word)
    return found if len(found) > 1 else []


FoundCache = LruCache[Phrase, Found]
"""What was found in one state of the index: the next query has some of the words again."""


class TextSearch:
    """One consistent state of the index. Not thread-safe."""

    def __init__(
        self,
        reader: PostingsReader,
        corpus: Corpus,
        scored: FoundCache | None = None,
        frequencies: FrequencyCache | None = None,
    ) -> None:
        """`scored`: shared by all searches in the same state; `frequencies`: by those in all states."""
        self._reader = reader
        self.corpus = corpus
        self._cache = scored
        self._frequencies = PhraseFrequencies(reader, corpus, frequencies)
        self._found: dict[Phrase, Found] = {}
        self._summed: tuple[Counter[Phrase], Scores] = Counter(), np.zeros(len(corpus.alive))

    def search(self, query: Query, limit: int, *, enough: int, scope: Scope) -> list[TextHit]:
        """Fits `PassageStore.search`, within a scope."""
        words, parts = self._affordable(query)
        required = [phrases(text) for text in (*query.must, *dict.fromkeys(words))]
        self._prepare(phrase for group in required for phrase in group)
        allowed = self.corpus.within(scope) & ~self._with_any(query.must_not)
        once = Counter(phrase for group in required for phrase in group)
        complete = self._best(self._sums(once), self._all(required, allowed), limit)
        if len(complete) >= enough or not words or (len({*words, *query.must}) == 1 and not parts):
            return complete
        return _lifted(complete, self._with_some(query, words, parts, allowed, limit))[:limit]

    def search_some(self, query: Query, limit: int, scope: Scope) -> list[TextHit]:
        """Best first: those with some of the words, and with what they must."""
        words, parts = self._affordable(query)
        allowed = self.corpus.within(scope) & ~self._with_any(query.must_not)
        return self._with_some(query, words, parts, allowed, limit)

    def _with_some(
        self, query: Query, words: Sequence[str], parts: Sequence[str], allowed: Flags, limit: int
    ) -> list[TextHit]:
        musts = [phrases(text) for text in query.must]
        optional = [phrases(text) for text in (*words, *parts)]
        if musts:
            optional.append(musts[0])  # so that none of the words has to be there
        counted = Counter(phrase for group in (*musts, *optional) for phrase in group)
        self._prepare(counted)
        sums = self._sums(counted)
        # Whatever has a word has a score: `optional` has all that is counted.
        return self._best(sums, self._all(musts, allowed) & (sums > 0), limit)

    def with_identifiers(self, identifiers: Sequence[str], query: Query, scope: Scope) -> dict[int, Named]:
        """Fits `PassageStore.with_identifiers`, for these identifiers."""
        read = {tuple(written(each)): each for each in reversed(identifiers)}
        present = [each for group, each in read.items() if len(self._having(group))]
        if not present:
            return {}
        within = self.corpus.within(scope) & ~self._with_any(query.must_not)
        allowed = self._all([phrases(text) for text in query.must], within)
        short = len({*query.words, *query.must}) <= SHORT_QUERY
        anywhere: Counter[int] = Counter()
        in_headings: Counter[int] = Counter()
        for identifier in present:
            having, headed = (
                passages[allowed[passages]].tolist()
                for passages in (self._having(written(identifier, columns)) for columns in (EVERYWHERE, HEADINGS))
            )
            joined, numbered = is_identifier(identifier), bool(numbered_names(identifier))
            rare = joined and len(having) <= COMMON_IDENTIFIER
            if rare:
                anywhere.update(having)
            # A longer query may be about what uses `update_wrapper`, or about the `period 1972`.
            if (rare or numbered) and (short or (joined and numbered)) and len(headed) <= COMMON_IDENTIFIER:
                in_headings.update(headed)
        return {number: Named(in_headings[number], anywhere[number]) for number in {**anywhere, **in_headings}}

    def passages(self, text: str, columns: Columns = EVERYWHERE) -> Numbers:
        """Those that have a word or phrase in some columns, ascending."""
        read = phrases(text, columns)
        self._prepare(read)
        return self._having(read)

    def _having(self, read: Iterable[Phrase]) -> Numbers:
        found = [self._phrase(phrase).passages for phrase in read]
        return found[0] if len(found) == 1 else np.unique(np.concatenate([NOTHING.passages, *found]))

    def with_all(self, groups: Sequence[Sequence[str]]) -> Numbers:
        """The passages that have a text of each group."""
        read = [[phrase for text in _bounded(group) for phrase in phrases(text)] for group in groups]
        self._prepare(phrase for group in read for phrase in group)
        return np.flatnonzero(self._all(read, self.corpus.alive))

    def required_and_excluded(self, query: Query) -> tuple[frozenset[int] | None, frozenset[int]]:
        """Fits `PassageStore.required_and_excluded`."""
        only = None
        if query.must:
            only = frozenset(self.with_all([[text] for text in query.must]).tolist())
        return only, frozenset(np.flatnonzero(self._with_any(query.must_not)).tolist())

    def _affordable(self, query: Query) -> tuple[list[str], list[str]]:
        """The words of a query and their pieces, repeated as there.

        Where all together would cost too much, the commonest are dropped, but never all.
        """
        of_word = {word: pieces(word) for word in query.words}
        texts = list(dict.fromkeys([*of_word, *(piece for found in of_word.values() for piece in found)]))[:MOST_WORDS]
        if 2 * len(texts) * self.corpus.total > MOST_POSTINGS:
            texts = self._cheapest(texts)
        words = [word for word in query.words if word in texts]
        return words, [piece for word in words for piece in of_word[word] if piece in texts]

    def _cheapest(self, texts: Sequence[str]) -> list[str]:
        tokens = {text: tokenize(text)[:MOST_PHRASE_WORDS] for text in texts}
        common = self._reader.common(list({token for each in tokens.values() for token in each}))
        costs = {text: sum(common.get(token, 0) for token in tokens[text]) for text in texts}
        kept = sorted(texts, key=costs.__getitem__)
        work = sum(costs.values())
        while len(kept) > 1 and work > MOST_POSTINGS:
            work -= costs[kept.pop()]
        return [text for text in texts if text in kept]

    def _with_any(self, texts: Sequence[str]) -> Flags:
        read = [phrase for text in texts for phrase in phrases(text)]
        self._prepare(read)
        return self._any(read)

    def _all(self, groups: Sequence[Sequence[Phrase]], allowed: Flags) -> Flags:
        """A phrase of each group; a group without one is ignored, but not all of them."""
        read = [group for group in groups if group]
        if groups and not read:
            return np.zeros_like(allowed)
        return reduce(np.logical_and, [self._any(group) for group in read], allowed)

    def _any(self, read: Iterable[Phrase]) -> Flags:
        flags = np.zeros(len(self.corpus.alive), np.bool_)
        for phrase in read:
            flags[self._phrase(phrase).passages] = True
        return flags

    def _sums(self, counted: Counter[Phrase]) -> Scores:
        """The score of each passage, by phrases and how often each counts."""
        if counted != self._summed[0]:
            sums = np.zeros(len(self.corpus.alive))
            for phrase, times in counted.items():
                found = self._phrase(phrase)
                sums[found.passages] += found.scores if times == 1 else times * found.scores
            self._summed = counted, sums
        return self._summed[1]

    def _best(self, sums: Scores, matching: Flags, limit: int) -> list[TextHit]:
        """The matching passages with the highest scores; equal ones by number."""
        if np.count_nonzero(matching) <= _FEW * limit:
            numbers = np.flatnonzero(matching)
        else:
            candidates = np.where(matching, sums, -1.0)
            numbers = np.flatnonzero(candidates >= max(0.0, _bound(candidates, limit)))
        scores = sums[numbers]
        order = np.lexsort((numbers, -scores))[:limit]
        return [TextHit(*hit) for hit in zip(numbers[order].tolist(), scores[order].tolist(), strict=True)]

    def _phrase(self, phrase: Phrase) -> Found:
        found = self._known(phrase)
        if found is None:
            found = self._found[phrase] = self._scored(*self._frequencies.of(phrase))
            if self._cache is not None:
                self._cache.put(phrase, found)
        return found

    def _known(self, phrase: Phrase) -> Found | None:
        if phrase not in self._found and self._cache is not None:
            cached = self._cache.get(phrase)
            if cached is not None:
                self._found[phrase] = cached
        return self._found.get(phrase)

    def _scored(self, passages: Numbers, frequencies: Scores) -> Found:
        having = len(passages)
        idf = max(LEAST_IDF, math.log((self.corpus.total - having + 0.5) / (having + 0.5)))
        return Found(passages, idf * (frequencies * (K1 + 1)) / (frequencies + self.corpus.norms[passages]))

    def _prepare(self, read: Iterable[Phrase]) -> None:
        """Read the words of these phrases together."""
        self._frequencies.prepare(phrase for phrase in read if self._known(phrase) is None)


def _bound(scores: Scores, count: int) -> float:
    """A number that at least `count` of the scores reach, and not many more: so many groups have one. -1: too few."""
    groups = scores[: len(scores) // _GROUP * _GROUP].reshape(_GROUP, -1).max(axis=0)
    return float(np.partition(groups, len(groups) - count)[len(groups) - count]) if len(groups) > count else -1.0


def _bounded(texts: Sequence[str]) -> list[str]:
    return list(texts[:MOST_WORDS])


def _lifted(complete: Sequence[TextHit], partial: Sequence[TextHit]) -> list[TextHit]:
    """Those with all the words first: their scores are raised above the others by the smallest amount that does it."""
    scores = {hit.number: hit.score for hit in (*complete, *partial)}
    first = {hit.number for hit in complete}
    others = [score for number, score in scores.items() if number not in first]
    if first and others:
        lift = max(0.0, max(others) - min(scores[number] for number in first))
        scores.update({number: scores[number] + lift for number in first})
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0] not in first, item[0]))
    return [TextHit(*item) for item in ranked]
