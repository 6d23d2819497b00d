"""Packed postings: nothing is lost by packing, cutting and merging; removed passages are left out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from pointsman.archive.store import postings
from pointsman.archive.store.postings import FAN_IN, PassageTexts, Postings, SegmentSize, index
from tests.archive.fts5 import Fts5, passages
from tests.archive.store.agreement import instances


def segments(texts: Sequence[PassageTexts], size: int) -> list[Postings]:
    return [index(texts[start : start + size])[0] for start in range(0, len(texts), size)]


def alive(texts: Sequence[PassageTexts], dead: Sequence[int] = ()) -> postings.Flags:
    flags = np.ones(texts[-1].number + 1, np.bool_)
    flags[list(dead)] = False
    return flags


def test_the_index_has_every_word_where_fts5_has_it() -> None:
    reference = Fts5(passages())
    columns = {"title": 0, "heading": 1, "text": 2, "parts": 3}
    rows = reference.connection.execute("SELECT term, doc, col, offset FROM found").fetchall()
    indexed, lengths = index(passages())
    assert instances(indexed) == sorted((word, number, columns[column], place) for word, number, column, place in rows)
    assert lengths == dict(Counter(row[1] for row in rows))


def test_blocks_hold_the_same_as_what_was_packed() -> None:
    indexed, _ = index(passages())
    blocks = list(postings.pack(indexed))
    assert len(blocks) > 5
    assert [block.first for block in blocks] == sorted(block.first for block in blocks)
    read = [postings.unpack(block.data, block.positions) for block in blocks]
    assert [word for each in read for word in each.words] == indexed.words
    assert sorted(each for part in read for each in instances(part)) == instances(indexed)
    assert all(block.first == part.words[0] for block, part in zip(blocks, read, strict=True))
    assert sum(len(block.data) + len(block.positions) for block in blocks) < 6 * len(indexed.passages)


def test_without_positions_a_block_still_has_passages_and_counts() -> None:
    indexed, _ = index(passages())
    for block in postings.pack(indexed):
        packed, unpacked = postings.PackedBlock(block.data), postings.unpack(block.data)
        assert not packed.find("") + packed.find("nowhere") + packed.find(f"{block.first} {block.first}")
        for word in unpacked.words:
            for bare, full in zip(unpacked.find(word), indexed.find(word), strict=True):
                assert bare.column == full.column
                assert (bare.passages == full.passages).all()
                assert (bare.counts == full.counts).all()
            for one, other in zip(packed.find(word), unpacked.find(word), strict=True):
                assert one.column == other.column
                assert (one.passages == other.passages).all()
                assert (one.counts == other.counts).all()


@pytest.mark.parametrize("size", [1, 7, 100])
def test_merged_segments_equal_one_that_was_written_at_once(size: int) -> None:
    texts = passages()[:300]
    assert instances(postings.merge(segments(texts, size), alive(texts))) == instances(index(texts)[0])


def test_a_merge_leaves_out_removed_passages_and_words_that_only_they_had() -> None:
    texts = passages()[:300]
    dead = random.Random(1).sample(range(1, 301), 120)
    merged = postings.merge(segments(texts, 40), alive(texts, dead))
    assert instances(merged) == instances(index([text for text in texts if text.number not in dead])[0])
    assert all(merged.find(word) for word in merged.words)


def test_a_merge_of_removed_passages_only_is_empty() -> None:
    texts = passages()[:20]
    merged = postings.merge(segments(texts, 5), np.zeros(21, np.bool_))
    assert list(postings.pack(merged)) == []


def test_a_merge_can_be_done_in_parts() -> None:
    texts = passages()[:200]
    whole = index(texts)[0]
    middle = whole.words[len(whole.words) // 2]
    low, high = whole.up_to(middle), whole.after(middle)
    assert low.words + high.words == whole.words
    assert sorted(instances(low) + instances(high)) == instances(whole)


def test_large_numbers_and_many_repetitions_are_kept() -> None:
    texts = [
        PassageTexts(3, "t", None, "again " * 70_000, None),
        PassageTexts(2_000_000_000, "t", None, "again", None),
        PassageTexts(4_294_967_295, "t", None, "x again", None),
    ]
    indexed, lengths = index(texts)
    read = [instances(postings.unpack(block.data, block.positions)) for block in postings.pack(indexed)]
    assert sorted(each for part in read for each in part) == instances(indexed)
    assert lengths == {3: 70_001, 2_000_000_000: 2, 4_294_967_295: 3}


def test_an_index_of_nothing_has_no_blocks() -> None:
    for texts in ([], [PassageTexts(1, "", None, "…", None)]):
        assert list(postings.pack(index(texts)[0])) == []


def test_segments_are_merged_by_tiers() -> None:
    rewritten = 0
    present: list[SegmentSize] = []
    for number in range(1, 5_001):
        present.append(SegmentSize(number, 1))
        while chosen := postings.to_merge(present):
            places = [place for place, each in enumerate(present) if each.segment in chosen]
            assert [present[place].segment for place in places] == chosen
            assert places == list(range(places[0], places[-1] + 1)), "neighbours only"
            total = sum(present[place].passages for place in places)
            rewritten += total
            present[places[0] : places[-1] + 1] = [SegmentSize(-number, total)]
    assert len(present) < 4 * FAN_IN
    assert rewritten <= 5 * 5_000


def test_large_and_small_writes_leave_few_segments() -> None:
    chance = random.Random(5)
    present: list[SegmentSize] = []
    rewritten = written = 0
    for number in range(3_000):
        size = chance.choice([1, 1, 1, 10, 10, 200, 2_000])
        written += size
        present.append(SegmentSize(number, size))
        while chosen := postings.to_merge(present):
            first = next(place for place, each in enumerate(present) if each.segment == chosen[0])
            total = sum(each.passages for each in present[first : first + len(chosen)])
            rewritten += total
            present[first : first + len(chosen)] = [SegmentSize(chosen[0], total)]
    assert len(present) < 6 * FAN_IN
    assert rewritten <= 6 * written
