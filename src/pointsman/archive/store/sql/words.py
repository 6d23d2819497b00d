"""The index of words: segments of packed postings, and which passages there are.

A write adds a segment; the housekeeper merges segments in small steps. While a merge is under way, its sources are
read and its target is not; one transaction exchanges them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import groupby, takewhile
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from pointsman.archive.store.corpus import Corpus
from pointsman.archive.store.lru_cache import LruCache
from pointsman.archive.store.phrase_frequencies import FrequencyCache
from pointsman.archive.store.postings import (
    Occurrences,
    PackedBlock,
    PassageTexts,
    Postings,
    SegmentSize,
    index,
    merge,
    pack,
    to_merge,
    unpack,
)
from pointsman.archive.store.sql.database import Connection, Database, counter, once, padded, placeholders, set_counter
from pointsman.archive.store.sql.passage_map import PassageMap
from pointsman.archive.store.sql.state import read_state
from pointsman.archive.store.text_search import TextSearch

# `first` and `last`: its passages. `ready`: searched. `target`: the segment that it is merged into. `done`: the last
# word that has been merged into this one.
SCHEMA = """
CREATE TABLE segments (
    id INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    passages INTEGER NOT NULL,
    ready INTEGER NOT NULL,
    target INTEGER,
    done TEXT
);
CREATE TABLE postings (
    id INTEGER PRIMARY KEY,
    segment INTEGER NOT NULL,
    word TEXT NOT NULL,
    common INTEGER NOT NULL,
    data BLOB NOT NULL,
    positions BLOB NOT NULL,
    UNIQUE (segment, word)
);
INSERT INTO counters VALUES ('segment', 0);
"""

PASSAGES_PER_SEGMENT = 8_192  # of one write
BLOCKS_PER_STEP = 2  # of each segment that is merged
ROWS_PER_STEP = 64  # of merged segments that are deleted
_BLOCKS_READ = 512  # by one statement
_LONGEST_KEY = 256  # characters
BLOCK_CACHE_BYTES = 16_000_000
FREQUENCY_CACHE_BYTES = 24_000_000
DIRECTORY_CACHE_BYTES = 64_000_000  # about 5 MB for a million passages
_MERGED = "ready = 0 AND target IS NOT NULL"
_MOST_DEAD = 0.5  # of the passages of a segment, before it is rewritten

BlockCache = LruCache[tuple[int, str, bool], PackedBlock | Postings]
"""Blocks by segment, first word and whether they have positions, then unpacked. A segment never changes."""


def write_segment(connection: Connection, passages: Sequence[PassageTexts]) -> dict[int, int]:
    """Index new passages, in the order of their numbers. How many words each has."""
    lengths: dict[int, int] = {}
    for start in range(0, len(passages), PASSAGES_PER_SEGMENT):
        part = passages[start : start + PASSAGES_PER_SEGMENT]
        indexed, counted = index(part)
        lengths |= counted
        segment = _new_segment(connection, part[0].number, part[-1].number, len(part), ready=True)
        _write_blocks(connection, segment, indexed)
    return lengths


def merge_step(connection: Connection, corpus: Corpus) -> bool:
    """Do one bounded step of merging segments and deleting merged ones. False: there is nothing to do.

    Each write adds a segment, which every search of a new word reads: small ones are merged in a single step.
    """
    deleted = _delete_merged(connection)
    return (
        _continue_merge(connection, corpus)
        or (_start_merge(connection, corpus) and _continue_merge(connection, corpus))
        or deleted
    )


class Located(NamedTuple):
    """A block of a segment: its row, its first word or a part of it, and `Block.common`."""

    segment: int
    row: int
    first: str
    common: int


class Directory:
    """The blocks of a segment, by their first words."""

    def __init__(self, blocks: Sequence[Located]) -> None:
        """`blocks`: in the order of words."""
        self._blocks = blocks
        self._firsts = [block.first for block in blocks]
        self.bytes = sum(200 + len(first) for first in self._firsts)

    def find(self, word: str) -> list[Located]:
        """The block that may have a word."""
        place = bisect_right(self._firsts, word)
        return [self._blocks[place - 1]] if place else []


DirectoryCache = LruCache[int, Directory]


class Caches(NamedTuple):
    """What is known of one database."""

    identity: object
    passages: PassageMap
    directories: DirectoryCache
    blocks: BlockCache
    frequencies: FrequencyCache


class SqlWords:
    """Searches in what a transaction sees. Its caches belong to one database: another one in its place starts anew."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._caches = _empty(None)

    def corpus(self, connection: Connection) -> Corpus:
        return self._current_caches(connection).passages.current(connection)[0]

    def search(self, connection: Connection) -> TextSearch:
        return once(connection, "search", lambda: self._search(connection))

    def _search(self, connection: Connection) -> TextSearch:
        caches = self._current_caches(connection)
        corpus, scored = caches.passages.current(connection)
        return TextSearch(Segments(connection, caches), corpus, scored, caches.frequencies)

    def _current_caches(self, connection: Connection) -> Caches:
        identity = self._database.identity(connection)
        if self._caches.identity != identity:
            self._caches = _empty(identity)
        return self._caches


def _empty(identity: object) -> Caches:
    return Caches(
        identity,
        PassageMap(),
        DirectoryCache(DIRECTORY_CACHE_BYTES),
        BlockCache(BLOCK_CACHE_BYTES),
        FrequencyCache(FREQUENCY_CACHE_BYTES),
    )


class Segments:
    """Fits `PostingsReader`."""

    def __init__(self, connection: Connection, caches: Caches) -> None:
        self._connection = connection
        self._cache = caches.blocks
        self._known_directories = caches.directories
        self._segments = read_state(connection).segments
        self._directories: dict[int, Directory] | None = None

    def read(self, words: Mapping[str, int], *, positions: bool) -> Mapping[str, Sequence[Occurrences]]:
        located = {word: self._locate(word, after) for word, after in words.items()}
        blocks = self._read_blocks([block for found in located.values() for block in found], positions)
        return {
            word: [each for block in found for each in blocks[block.row].find(word)] for word, found in located.items()
        }

    def common(self, words: Sequence[str]) -> Mapping[str, int]:
        return {word: sum(block.common for block in self._locate(word)) for word in words}

    def _locate(self, word: str, after: int = 0) -> list[Located]:
        """The blocks that may have the word in passages above a number, one of each segment, the oldest first."""
        if self._directories is None:
            self._directories = self._load_directories()
        directories = [self._directories[segment] for segment, last in self._segments if last > after]
        return [block for directory in directories for block in directory.find(word)]

    def _load_directories(self) -> dict[int, Directory]:
        known = {segment: self._known_directories.get(segment) for segment, _ in self._segments}
        missing = [segment for segment, directory in known.items() if directory is None]
        if missing:
            rows = self._connection.execute(
                "SELECT segment, id, word, common FROM postings "
                f"WHERE segment IN ({placeholders(missing)}) ORDER BY segment, word",
                missing,
            )
            blocks = {segment: list(found) for segment, found in groupby(map(Located._make, rows), itemgetter(0))}
            for segment in missing:
                known[segment] = directory = Directory(blocks.get(segment, []))
                self._known_directories.put(segment, directory)
        return {segment: directory for segment, directory in known.items() if directory is not None}

    def _read_blocks(self, wanted: Sequence[Located], positions: bool) -> dict[int, PackedBlock | Postings]:
        """By row. Adjacent words share a block."""
        blocks: dict[int, PackedBlock | Postings] = {}
        missing: dict[int, Located] = {}
        for each in wanted:
            known = blocks.get(each.row) or self._cache.get((each.segment, each.first, positions))
            if known is None:
                missing[each.row] = each
            else:
                blocks[each.row] = known
        rows = list(missing)
        columns = "id, data, positions" if positions else "id, data"
        for start in range(0, len(rows), _BLOCKS_READ):
            some = padded(rows[start : start + _BLOCKS_READ])
            for row, *packed in self._connection.execute(
                f"SELECT {columns} FROM postings WHERE id IN ({placeholders(some)})", some
            ):
                blocks[row] = unpack(*packed) if positions else PackedBlock(*packed)
                self._cache.put((missing[row].segment, missing[row].first, positions), blocks[row])
        return blocks


def _new_segment(connection: Connection, first: int, last: int, passages: int, *, ready: bool) -> int:
    segment = counter(connection, "segment") + 1
    set_counter(connection, "segment", segment)
    connection.execute(
        "INSERT INTO segments (id, first, last, passages, ready) VALUES (?, ?, ?, ?, ?)",
        (segment, first, last, passages, int(ready)),
    )
    return segment


def _write_blocks(connection: Connection, segment: int, postings: Postings) -> None:
    connection.executemany(
        "INSERT INTO postings (segment, word, common, data, positions) VALUES (?, ?, ?, ?, ?)",
        [(segment, _key(postings.words, block.first), *block[1:]) for block in pack(postings)],
    )


def _key(words: Sequence[str], first: str) -> str:
    """What a block is found by: its first word, or of a long one the part that sets it apart from the word before.

    An index of PostgreSQL takes keys of up to 2,700 bytes.
    """
    if len(first) <= _LONGEST_KEY:
        return first
    place = bisect_left(words, first)
    before = words[place - 1] if place else ""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, before, strict=False)))
    return first[: same + 1]


def _start_merge(connection: Connection, corpus: Corpus) -> bool:
    rows = connection.execute(
        "SELECT id, passages, first, last FROM segments WHERE ready = 1 ORDER BY first"
    ).fetchall()
    chosen = to_merge([SegmentSize(*row[:2]) for row in rows])
    if not chosen:  # a segment of which most was deleted is rewritten alone
        dead = [row[0] for row in rows if _alive(corpus, row[2], row[3]) <= row[1] * (1 - _MOST_DEAD)]
        chosen = dead[:1]
    if not chosen:
        return False
    sources = [row for row in rows if row[0] in chosen]
    target = _new_segment(connection, sources[0][2], sources[-1][3], 0, ready=False)
    connection.executemany("UPDATE segments SET target = ? WHERE id = ?", [(target, source) for source in chosen])
    return True


def _continue_merge(connection: Connection, corpus: Corpus) -> bool:
    """False: no merge is under way."""
    building = connection.execute(
        "SELECT id, first, last, done FROM segments WHERE ready = 0 AND target IS NULL"
    ).fetchone()
    if building is None:
        return False
    target, first, last, done = building
    sources = connection.execute("SELECT id FROM segments WHERE target = ? ORDER BY first", (target,)).fetchall()
    parts: list[Postings] = []
    ends: list[str] = []
    for (source,) in sources:
        blocks, more = _next_blocks(connection, source, done)
        parts += blocks
        if more:
            ends.append(blocks[-1].words[-1])
    end = min(ends, default=None)
    if done is not None:
        parts = [part.after(done) for part in parts]
    if end is not None:
        parts = [part.up_to(end) for part in parts]
    if parts:
        _write_blocks(connection, target, merge(parts, corpus.alive))
    if end is not None:
        connection.execute("UPDATE segments SET done = ? WHERE id = ?", (end, target))
        return True
    connection.execute("UPDATE segments SET ready = 0 WHERE target = ?", (target,))
    connection.execute(
        "UPDATE segments SET ready = 1, done = NULL, passages = ? WHERE id = ?", (_alive(corpus, first, last), target)
    )
    connection.execute("DELETE FROM segments WHERE id = ? AND passages = 0", (target,))
    return True


def _next_blocks(connection: Connection, segment: int, done: str | None) -> tuple[list[Postings], bool]:
    """The blocks with the next words after `done`, and whether there are more."""
    rows = connection.execute(
        "SELECT data, positions FROM postings WHERE segment = ? AND word >= coalesce("
        "(SELECT max(word) FROM postings WHERE segment = ? AND word <= ?), '') ORDER BY word LIMIT ?",
        (segment, segment, done or "", BLOCKS_PER_STEP + 1),
    ).fetchall()
    return [unpack(*row) for row in rows[:BLOCKS_PER_STEP]], len(rows) > BLOCKS_PER_STEP


def _delete_merged(connection: Connection) -> bool:
    if not connection.execute(f"SELECT 1 FROM segments WHERE {_MERGED} LIMIT 1").fetchone():
        return False
    deleted = connection.execute(
        "DELETE FROM postings WHERE id IN (SELECT postings.id FROM segments JOIN postings ON segment = segments.id "
        f"WHERE {_MERGED} LIMIT ?)",
        (ROWS_PER_STEP,),
    ).rowcount
    if deleted < ROWS_PER_STEP:
        connection.execute(f"DELETE FROM segments WHERE {_MERGED}")
    return True


def _alive(corpus: Corpus, first: int, last: int) -> int:
    return int(np.count_nonzero(corpus.alive[first : last + 1]))
