"""Tells glibc's malloc to return large blocks to the system as soon as they are freed."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# From malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MAPPED_BYTES = 384 << 10  # above the 256 KiB that a read of a socket or pipe allocates
_TRIM_BYTES = 4 << 20  # free at the end of the heap before it shrinks: fewer system calls than the default of 128 KiB
_ARENAS = 2


def return_large_blocks() -> None:
    """Fix the size from which blocks are mapped on their own. Does nothing where malloc is not glibc's.

    By default glibc raises that size to that of the largest block that was ever freed, and keeps such blocks for reuse:
    after sixty answers of 8 MiB at once the process stays hundreds of megabytes larger.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_TRIM_THRESHOLD, _TRIM_BYTES)
        mallopt(_ARENA_MAX, _ARENAS)
