"""The index of words: where each word occurs, packed. Independent of the engine that stores it.

A write adds a *segment*: the words of its passages. A segment is a list of *blocks* in the order of words, each with
all that the segment knows about some adjacent words (or about one common word). Numbers of passages only grow, so the
segments' passages follow one another, and merging segments means joining their lists. Nothing is ever changed in a
segment: passages that were removed are left out when it is merged, and by the reader until then.

An engine stores rows `(segment, first word, common, data, positions)`. To read a word, it takes from each segment the
last block whose first word is not above it, in byte order of UTF-8. `positions` is needed for phrases only.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pointsman.archive.text.tokenizer import folded_words, stems

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

TITLE, HEADING, TEXT, PARTS = range(4)
"""Columns: the texts of a passage that are indexed apart."""

FAN_IN = 8  # segments that are merged into one
POSTINGS_PER_BLOCK = 2_048  # of several words; a word with more has a block of its own
_COLUMN_BITS = 2
_NEW_WORD = 1 << _COLUMN_BITS
_HEADER = struct.Struct("<6I")
_WIDER = 1 << np.array([7, 14, 21, 28], np.int64)  # from here on a number takes one more byte


class Block(NamedTuple):
    """Some adjacent words of a segment, packed."""

    first: str
    common: int  # the postings of its only word; 0 if it holds several words
    data: bytes
    positions: bytes


class PassageTexts(NamedTuple):
    """What is indexed of a passage."""

    number: int
    title: str
    heading: str | None
    text: str
    parts: str | None


class Occurrences(NamedTuple):
    """One word in one column: the passages in ascending order, how often each has it, and where (counted in words)."""

    column: int
    passages: Numbers
    counts: Numbers
    positions: Numbers  # of all passages, one after the other; empty if they were not read


class SegmentSize(NamedTuple):
    segment: int
    passages: int  # that it was written with


class PostingsReader(Protocol):
    """What an engine gives the ranking: one consistent view of its segments."""

    def read(self, words: Mapping[str, int], *, positions: bool) -> Mapping[str, Sequence[Occurrences]]:
        """By word: its occurrences, the oldest segment first; a word that is nowhere may be missing.

        `words`: with the number of a passage. Segments without any above it may be left out.
        """
        ...

    def common(self, words: Sequence[str]) -> Mapping[str, int]:
        """The sum of `Block.common` over the blocks to read for a word: what it costs, where it costs much. Fast."""
        ...


@dataclass(frozen=True, slots=True)
class Postings:
    """Words in ascending order, unpacked. A list is a word in a column; lists are in the order of words and columns."""

    words: list[str]
    word_of: Numbers  # by list: index into `words`
    columns: Numbers  # by list
    sizes: Numbers  # by list: its passages
    passages: Numbers  # of all lists, one after the other
    counts: Numbers  # by passage of a list
    positions: Numbers  # of all occurrences; empty if they were not read

    @property
    def bytes(self) -> int:
        return 80 * len(self.words) + 8 * (2 * len(self.passages) + len(self.positions) + 3 * len(self.sizes))

    def find(self, word: str) -> list[Occurrences]:
        place = bisect_left(self.words, word)
        if place == len(self.words) or self.words[place] != word:
            return []
        first, end = self.word_of.searchsorted([place, place + 1]).tolist()
        start = int(self.sizes[:first].sum())
        before = int(self.counts[:start].sum()) if len(self.positions) else 0
        found = []
        for column, size in zip(self.columns[first:end].tolist(), self.sizes[first:end].tolist(), strict=True):
            counts = self.counts[start : start + size]
            after = before + int(counts.sum()) if len(self.positions) else 0
            found.append(Occurrences(column, self.passages[start : start + size], counts, self.positions[before:after]))
            start, before = start + size, after
        return found

    def up_to(self, word: str) -> Postings:
        """The part with words that are not above this one."""
        return self.part(0, bisect_right(self.words, word))

    def after(self, word: str) -> Postings:
        """The part with words above this one."""
        return self.part(bisect_right(self.words, word), len(self.words))

    def part(self, first: int, end: int) -> Postings:
        """Some of the words, by their places."""
        lists = slice(*self.word_of.searchsorted([first, end]).tolist())
        start = int(self.sizes[: lists.start].sum())
        passages = slice(start, start + int(self.sizes[lists].sum()))
        before = int(self.counts[: passages.start].sum())
        return Postings(
            self.words[first:end],
            self.word_of[lists] - first,
            self.columns[lists],
            self.sizes[lists],
            self.passages[passages],
            self.counts[passages],
            self.positions[before : before + int(self.counts[passages].sum())],
        )


def index(passages: Iterable[PassageTexts]) -> tuple[Postings, dict[int, int]]:
    """Index passages, in the order of their numbers. Also how many words each has."""
    numbering = _Numbering()
    found: list[int] = []
    runs: list[tuple[int, int, int]] = []  # passage, column, words
    lengths: dict[int, int] = {}
    for number, *columns in passages:
        before = len(found)
        for column, text in enumerate(columns):
            if text:
                start = len(found)
                found.extend(map(numbering.__getitem__, folded_words(text)))
                runs.append((number, column, len(found) - start))
        lengths[number] = len(found) - before
    stemmed = stems(list(numbering))
    words = sorted(set(stemmed))
    place = {word: rank for rank, word in enumerate(words)}
    ranks = np.array([place[word] for word in stemmed], np.int64)  # by number of the word as written
    in_run = np.array(runs, np.int64).reshape(-1, 3)
    sizes = in_run[:, 2]
    positions = np.arange(len(found)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    keys = ranks[np.array(found, np.int64)] << _COLUMN_BITS | np.repeat(in_run[:, 1], sizes)
    order = np.argsort(keys, kind="stable")  # passages and positions stay in order
    keys, numbers = keys[order], np.repeat(in_run[:, 0], sizes)[order]
    starts = np.flatnonzero((np.diff(keys, prepend=-1) != 0) | (np.diff(numbers, prepend=-1) != 0))
    counts = np.diff(starts, append=len(keys))
    return _grouped(words, keys[starts], numbers[starts], counts, positions[order]), lengths


def merge(parts: Sequence[Postings], alive: Flags) -> Postings:
    """Join what segments know about the same words, the oldest first, without passages that are not `alive`."""
    words = sorted({word for part in parts for word in part.words})
    rank = {word: place for place, word in enumerate(words)}
    keys, passages, counts, positions = [], [], [], []
    for part in parts:
        ranks = np.array([rank[word] for word in part.words], np.int64)
        keep = alive[part.passages]
        keys.append(np.repeat(ranks[part.word_of] << _COLUMN_BITS | part.columns, part.sizes)[keep])
        passages.append(part.passages[keep])
        counts.append(part.counts[keep])
        positions.append(part.positions[np.repeat(keep, part.counts)])
    key = np.concatenate(keys)
    count = np.concatenate(counts)
    order = np.argsort(key, kind="stable")
    of_occurrences = np.argsort(np.repeat(key, count), kind="stable")
    return _grouped(
        words, key[order], np.concatenate(passages)[order], count[order], np.concatenate(positions)[of_occurrences]
    )


def pack(postings: Postings) -> Iterator[Block]:
    """Cut into blocks."""
    per_word = np.bincount(postings.word_of, postings.sizes, minlength=len(postings.words))
    for first, end in _cuts(per_word.astype(np.int64).tolist()):
        yield _pack_block(postings.part(first, end))


def unpack(data: bytes, positions: bytes | None = None) -> Postings:
    """A block. Without `positions` it has none."""
    lengths = _HEADER.unpack_from(data)
    ends = list(accumulate(lengths, initial=_HEADER.size))
    words, lists, sizes_, gaps, repeated, repeats = (data[start:end] for start, end in pairwise(ends))
    codes = np.frombuffer(lists, np.uint8)
    sizes = _decode(sizes_)
    passages = _decode(gaps)
    counts = np.ones(len(passages), np.int64)
    several = np.unpackbits(np.frombuffer(repeated, np.uint8), count=len(passages)).view(np.bool_)
    counts[several] = _decode(repeats) + 2
    return Postings(
        words.decode().split(" "),
        np.cumsum(codes >= _NEW_WORD) - 1,
        (codes % _NEW_WORD).astype(np.int64),
        sizes,
        _summed(passages, sizes),
        counts,
        _summed(_decode(positions), counts) if positions is not None else np.zeros(0, np.int64),
    )


@dataclass(frozen=True, slots=True)
class PackedBlock:
    """A block as it is stored, without positions. Of a word, its own part is unpacked."""

    data: bytes

    @property
    def bytes(self) -> int:
        return len(self.data)

    def find(self, word: str) -> list[Occurrences]:
        lengths = _HEADER.unpack_from(self.data)
        ends = list(accumulate(lengths, initial=_HEADER.size))
        place = _place(self.data[ends[0] : ends[1]], word.encode())
        if place is None:
            return []
        lists, sizes_, gaps, repeated, repeats = (self.data[start:end] for start, end in pairwise(ends[1:]))
        codes = np.frombuffer(lists, np.uint8)
        sizes = _decode(sizes_)
        first, end = (*(codes >= _NEW_WORD).nonzero()[0][place : place + 2].tolist(), len(codes))[:2]
        start = int(sizes[:first].sum())
        own = sizes[first:end]
        stop = start + int(own.sum())
        passages = _summed(_decode_part(gaps, start, stop), own)
        several = np.unpackbits(np.frombuffer(repeated, np.uint8), count=stop).view(np.bool_)
        counts = np.ones(stop - start, np.int64)
        before, after = (int(np.count_nonzero(several[:end])) for end in (start, stop))
        counts[several[start:]] = _decode_part(repeats, before, after) + 2
        found = []
        at = 0
        for code, size in zip(codes[first:end].tolist(), own.tolist(), strict=True):
            found.append(Occurrences(code % _NEW_WORD, passages[at : at + size], counts[at : at + size], _NO_POSITIONS))
            at += size
        return found


def to_merge(segments: Sequence[SegmentSize]) -> list[int]:
    """The segments to merge next, oldest first; none if there are few. `segments`: in the order of their passages.

    Segments form tiers by size. FAN_IN neighbours that are no larger than their tier become one of the next tier, so
    that each passage is merged once in each tier, and a word is looked up in few segments.
    """
    run: list[int] = []
    total, lowest = 0, 0
    for segment, passages in reversed(segments):
        tier = _tier(passages)
        if tier > lowest:
            if len(run) >= FAN_IN:
                break
            lowest = tier
            run = run if _tier(total) >= tier else []
            total = total if run else 0
        run.append(segment)
        total += passages
    return run[::-1] if len(run) >= FAN_IN else []


def _place(words: bytes, word: bytes) -> int | None:
    """Where a word is among words with blanks between them."""
    at = b" ".join((b"", words, b"")).find(b" ".join((b"", word, b"")))
    return words.count(b" ", 0, at) if at >= 0 else None


class _Numbering(dict[str, int]):
    def __missing__(self, word: str) -> int:
        return self.setdefault(word, len(self))


def _tier(passages: int) -> int:
    tier = 0
    while passages >= FAN_IN ** (tier + 1):
        tier += 1
    return tier


def _cuts(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges of words, each of a block."""
    first = total = 0
    for place, size in enumerate(sizes):
        if total and total + size > POSTINGS_PER_BLOCK:
            yield first, place
            first, total = place, 0
        total += size
    if first < len(sizes):
        yield first, len(sizes)


def _grouped(words: list[str], keys: Numbers, passages: Numbers, counts: Numbers, positions: Numbers) -> Postings:
    """From a key of word and column for each passage, in order; words without a passage are left out."""
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    lists = keys[starts]
    used, word_of = np.unique(lists >> _COLUMN_BITS, return_inverse=True)
    kept = words if len(used) == len(words) else [words[place] for place in used.tolist()]
    sizes = np.diff(starts, append=len(keys))
    return Postings(kept, word_of, lists % _NEW_WORD, sizes, passages, counts, positions)


def _pack_block(postings: Postings) -> Block:
    several = postings.counts > 1
    starts_word = np.diff(postings.word_of, prepend=-1)
    parts = (
        " ".join(postings.words).encode(),
        (postings.columns | starts_word << _COLUMN_BITS).astype(np.uint8).tobytes(),
        _encode(postings.sizes),
        _encode(_gaps(postings.passages, postings.sizes)),
        np.packbits(several).tobytes(),
        _encode(postings.counts[several] - 2),
    )
    positions = _encode(_gaps(postings.positions, postings.counts))
    common = len(postings.passages) if len(postings.words) == 1 else 0
    return Block(postings.words[0], common, _HEADER.pack(*map(len, parts)) + b"".join(parts), positions)


def _gaps(numbers: Numbers, sizes: Numbers) -> Numbers:
    """Within each run of `sizes`: the first number, then the differences."""
    gaps = np.diff(numbers, prepend=0)
    starts = (np.cumsum(sizes) - sizes)[sizes > 0]
    gaps[starts] = numbers[starts]
    return gaps


def _summed(gaps: Numbers, sizes: Numbers) -> Numbers:
    """The reverse of `_gaps`."""
    sums = np.cumsum(gaps)
    starts = np.cumsum(sizes) - sizes
    return sums - np.repeat(sums[starts] - gaps[starts], sizes) if len(gaps) else sums


def _encode(numbers: Numbers) -> bytes:
    """LEB128: seven bits a byte, the lowest first; a byte above 127 continues."""
    if not len(numbers):
        return b""
    if int(numbers.max()) < 0x80:
        return numbers.astype(np.uint8).tobytes()
    width = np.searchsorted(_WIDER, numbers, side="right") + 1
    ends = np.cumsum(width)
    starts = ends - width
    encoded = np.zeros(int(ends[-1]), np.uint8)
    for byte in range(int(width.max())):
        has = width > byte
        more = (width[has] > byte + 1).astype(np.int64) << 7
        encoded[starts[has] + byte] = (numbers[has] >> 7 * byte) & 0x7F | more
    return encoded.tobytes()


def _decode(encoded: bytes) -> Numbers:
    stored = np.frombuffer(encoded, np.uint8)
    last = stored < 0x80
    if last.all():
        return stored.astype(np.int64)
    ends = last.nonzero()[0]
    starts = np.concatenate([[0], ends[:-1] + 1])
    numbers: Numbers = (stored[starts] & 0x7F).astype(np.int64)
    for byte in range(1, int((ends - starts).max()) + 1):
        has = (ends - starts >= byte).nonzero()[0]
        numbers[has] |= (stored[starts[has] + byte] & 0x7F).astype(np.int64) << 7 * byte
    return numbers


def _decode_part(encoded: bytes, first: int, end: int) -> Numbers:
    """The numbers from one place to another."""
    stored = np.frombuffer(encoded, np.uint8)
    ends = (stored < 0x80).nonzero()[0]
    if len(ends) == len(stored):
        return stored[first:end].astype(np.int64)
    return _decode(encoded[int(ends[first - 1]) + 1 if first else 0 : int(ends[end - 1]) + 1 if end else 0])


_NO_POSITIONS: Numbers = np.zeros(0, np.int64)
