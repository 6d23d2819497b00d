"""A large block has the bytes that were added, whatever it expected."""

from __future__ import annotations

import random

import pytest

from pointsman.core.large_block import SMALL_BYTES, LargeBlock


@pytest.mark.parametrize("expected", [0, 10, SMALL_BYTES + 1, 5 * SMALL_BYTES, 64 * SMALL_BYTES])
@pytest.mark.parametrize("part", [1_000, 70_000, SMALL_BYTES, 3 * SMALL_BYTES])
def test_a_block_has_the_bytes_that_were_added(expected: int, part: int) -> None:
    block, added = LargeBlock(expected), bytearray()
    assert bytes(block.view()) == b""
    for number in range(9 * SMALL_BYTES // part):
        data = random.Random(number).randbytes(part)
        block.add(data)
        added += data
        assert len(block) == len(added)
    assert block.view() == added


def test_a_view_keeps_its_bytes_when_the_block_is_gone() -> None:
    block = LargeBlock()
    block.add(b"x" * 3 * SMALL_BYTES)
    view = block.view()
    del block
    assert bytes(view[-1:]) == b"x"
