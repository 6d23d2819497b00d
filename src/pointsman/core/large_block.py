"""A large block of bytes that grows: in huge pages where Linux has them.

The daemon's malloc returns large blocks to the system at once, and a new one costs a page fault for each 4 KB that are
written to it: 3.5 ms for 8 MB, which is more than a check of their syntax takes. In huge pages it costs 0.3 ms.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

SMALL_BYTES = 1 << 20  # less stays in a bytearray
_HUGE_PAGE_BYTES = 2 << 20
_HAS_HUGE_PAGES = hasattr(mmap, "MADV_HUGEPAGE")  # Linux, where such a block can also grow


class LargeBlock:
    """Bytes, to which parts are added until they are read."""

    __slots__ = ("_block", "_size")

    def __init__(self, expected: int = 0) -> None:
        """`expected`: how many bytes there will be, if that is known."""
        self._block = _reserved(expected)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, part: bytes | memoryview) -> None:
        begin = self._size
        self._size = end = begin + len(part)
        if isinstance(self._block, bytearray):
            self._block += part
            if end > SMALL_BYTES and not isinstance(block := _reserved(2 * end), bytearray):
                block[:end] = self._block
                self._block = block
            return
        if end > len(self._block):
            self._block.resize(_rounded(2 * end))
        self._block[begin:end] = part

    def view(self) -> memoryview:
        """All bytes. While the view is in use, nothing can be added."""
        return memoryview(self._block)[: self._size]


def _reserved(size: int) -> bytearray | mmap.mmap:
    if size <= SMALL_BYTES or not _HAS_HUGE_PAGES:
        return bytearray()
    block = mmap.mmap(-1, _rounded(size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


def _rounded(size: int) -> int:
    """To whole huge pages; what is not written takes no memory."""
    return -(-size // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
