"""How often each passage has a word or phrase: read from packed postings, and remembered from one write to the next.

A passage never changes and numbers only grow. What was read once therefore stays true for the passages up to the last
number of its time: after a write, only the postings of newer passages are read. Deleted passages are filtered out by
each reader. Merging drops them from the postings, so that what was read after a deletion may lack them: a reader whose
view is older does not use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pointsman.archive.store.corpus import Corpus, Scores, SmallNumbers
from pointsman.archive.store.lru_cache import LruCache
from pointsman.archive.store.postings import HEADING, PARTS, TEXT, TITLE, Numbers, Occurrences, PostingsReader

Columns = frozenset[int]

WEIGHTS = {TITLE: 2.0, HEADING: 1.0, TEXT: 1.0, PARTS: 0.5}
EVERYWHERE: Columns = frozenset(WEIGHTS)
HEADINGS: Columns = frozenset((TITLE, HEADING))
BODY: Columns = frozenset((HEADING, TEXT, PARTS))

_MOST_PARTS = 16  # of a phrase, then the older ones are joined
_PARTS_APART = 4  # that stay as they are: for readers whose view is older
_MOST_DEAD = 0.125  # of the passages of a phrase, then they are dropped
_PART_BYTES = 300  # besides its arrays
_POSITION_BITS = 24
_SPARSE = 16  # a sixteenth of the passages is sorted faster than all are counted


@dataclass(frozen=True, slots=True)
class Phrase:
    """Adjacent words in one of some columns."""

    words: tuple[str, ...]
    columns: Columns = EVERYWHERE


class Part(NamedTuple):
    """The passages that have a phrase, ascending, of those above the part before and up to a number."""

    last: int
    tombstones: int  # the last deletion of its time: it may lack what was deleted up to then
    passages: SmallNumbers
    frequencies: npt.NDArray[np.float32]  # weighted by column: multiples of a half


@dataclass(frozen=True, slots=True)
class Parts:
    """All that is known of a phrase, in the order of passages and of time."""

    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        return sum(_PART_BYTES + part.passages.nbytes + part.frequencies.nbytes for part in self.parts)

    def seen_by(self, corpus: Corpus) -> tuple[Part, ...]:
        """Those that are no newer than the reader's view."""
        known = [part for part in self.parts if part.last <= corpus.last and part.tombstones <= corpus.tombstones]
        return tuple(known)


FrequencyCache = LruCache[Phrase, Parts]


class PhraseFrequencies:
    """Reads one consistent state of the index. Not thread-safe; `cache` is shared by all states."""

    def __init__(self, reader: PostingsReader, corpus: Corpus, cache: FrequencyCache | None) -> None:
        self._reader = reader
        self._corpus = corpus
        self._cache = cache
        self._known: dict[Phrase, tuple[Part, ...]] = {}
        self._occurrences: dict[tuple[str, bool], tuple[int, Sequence[Occurrences]]] = {}

    def prepare(self, phrases: Iterable[Phrase]) -> None:
        """Read the words of these phrases together, as far as they are not known."""
        wanted: dict[bool, dict[str, int]] = {False: {}, True: {}}  # by word: above which passage
        for phrase in phrases:
            after = _last(self._parts(phrase))
            if after < self._corpus.last:
                words = wanted[len(phrase.words) > 1]
                words.update({word: min(after, words.get(word, after)) for word in phrase.words})
        for positions, words in wanted.items():
            self._read(words, positions)

    def of(self, phrase: Phrase) -> tuple[Numbers, Scores]:
        """The passages that are alive, ascending, and how often each has the phrase, weighted by column."""
        parts = self._parts(phrase)
        if _last(parts) < self._corpus.last:
            parts = self._known[phrase] = self._extended(phrase, parts)
        if not parts:
            return _NONE, _NO_SCORES
        passages, frequencies = _joined(parts)
        alive = self._corpus.alive[passages]
        if alive.all():
            return passages.astype(np.int64), frequencies.astype(np.float64)
        if self._cache is not None and np.count_nonzero(alive) < (1 - _MOST_DEAD) * len(passages):
            self._put(phrase, (Part(*self._state(), passages[alive], frequencies[alive]),))
        return passages[alive].astype(np.int64), frequencies[alive].astype(np.float64)

    def _parts(self, phrase: Phrase) -> tuple[Part, ...]:
        known = self._known.get(phrase)
        if known is None:
            cached = self._cache.get(phrase) if self._cache is not None else None
            known = self._known[phrase] = cached.seen_by(self._corpus) if cached is not None else ()
        return known

    def _extended(self, phrase: Phrase, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        passages, frequencies = self._summed(self._located(phrase, _last(parts)))
        new = Part(*self._state(), passages.astype(np.int32), frequencies.astype(np.float32))
        if len(parts) >= _MOST_PARTS:
            older, parts = parts[:-_PARTS_APART], parts[-_PARTS_APART:]
            parts = (Part(*older[-1][:2], *_joined(older)), *parts)
        self._put(phrase, (*parts, new))
        return *parts, new

    def _put(self, phrase: Phrase, parts: tuple[Part, ...]) -> None:
        """Unless another reader, with a newer view, was faster."""
        if self._cache is None:
            return
        cached = self._cache.get(phrase)
        if cached is None or len(cached.seen_by(self._corpus)) == len(cached.parts):
            self._cache.put(phrase, Parts(parts))

    def _state(self) -> tuple[int, int]:
        return self._corpus.last, self._corpus.tombstones

    def _located(self, phrase: Phrase, after: int) -> list[tuple[int, Numbers, Numbers]]:
        """By column: the passages above a number, in order but not unique over columns, and how often each has it."""
        located = []
        if len(phrase.words) == 1:
            (word,) = phrase.words
            for column, passages, counts, _ in self._lists(word, after, positions=False):
                if column in phrase.columns:
                    located.append((column, passages, counts))
        else:
            for column in sorted(phrase.columns):
                places = self._adjacent(phrase.words, column, after)
                located.append((column, *np.unique(places >> _POSITION_BITS, return_counts=True)))
        # A segment may have older passages, which are known, and newer ones than this view.
        return [each for column, *lists in located if len((each := (column, *self._within(after, *lists)))[1])]

    def _within(self, after: int, passages: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
        first, end = np.searchsorted(passages, [after + 1, self._corpus.last + 1]).tolist()
        return passages[first:end], counts[first:end]

    def _adjacent(self, words: Sequence[str], column: int, after: int) -> Numbers:
        """Where the phrase starts in a column: passage and position as one number."""
        lists = [[each for each in self._lists(word, after, positions=True) if each.column == column] for word in words]
        if not all(lists):
            return _NONE
        sizes = [sum(len(each.passages) for each in occurrences) for occurrences in lists]
        order = sorted(range(len(words)), key=sizes.__getitem__)  # the rarest word first
        starts = _places(lists[order[0]]) - order[0]
        for place in order[1:]:
            others = _places(lists[place]) - place
            at = np.searchsorted(others, starts)
            at[at == len(others)] = 0
            starts = starts[others[at] == starts]
        return starts

    def _summed(self, located: Sequence[tuple[int, Numbers, Numbers]]) -> tuple[Numbers, Scores]:
        """Of all columns together, ascending; without passages that are deleted already."""
        if not located:
            return _NONE, _NO_SCORES
        passages = np.concatenate([passages for _, passages, _ in located])
        weights = np.concatenate([WEIGHTS[column] * counts for column, _, counts in located], dtype=np.float64)
        kept = self._corpus.alive[passages]
        if not kept.all():
            passages, weights = passages[kept], weights[kept]
        if len({column for column, _, _ in located}) == 1:
            return passages, weights
        if len(passages) < self._corpus.last // _SPARSE:
            numbers, inverse = np.unique(passages, return_inverse=True)
            return numbers, np.bincount(inverse, weights).astype(np.float64)
        sums: Scores = np.bincount(passages, weights, minlength=1).astype(np.float64)
        numbers = np.flatnonzero(sums)
        return numbers, sums[numbers]

    def _lists(self, word: str, after: int, *, positions: bool) -> Sequence[Occurrences]:
        self._read({word: after}, positions)
        return self._occurrences[word, positions][1]

    def _read(self, words: dict[str, int], positions: bool) -> None:
        new = {
            word: after
            for word, after in words.items()
            if (word, positions) not in self._occurrences or self._occurrences[word, positions][0] > after
        }
        if new:
            found = self._reader.read(new, positions=positions)
            self._occurrences.update({(word, positions): (after, found.get(word, ())) for word, after in new.items()})


_NONE: Numbers = np.zeros(0, np.int64)
_NO_SCORES: Scores = np.zeros(0)


def _last(parts: Sequence[Part]) -> int:
    return parts[-1].last if parts else 0


def _joined(parts: Sequence[Part]) -> tuple[SmallNumbers, npt.NDArray[np.float32]]:
    some = [part for part in parts if len(part.passages)] or parts[:1]
    if len(some) == 1:
        return some[0].passages, some[0].frequencies
    return np.concatenate([part.passages for part in some]), np.concatenate([part.frequencies for part in some])


def _places(lists: Sequence[Occurrences]) -> Numbers:
    return np.concatenate([np.repeat(each.passages << _POSITION_BITS, each.counts) + each.positions for each in lists])
