"""pgvector's type `halfvec` on the wire: our vectors are half-precision numbers, little-endian; its are big-endian."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

if TYPE_CHECKING:
    from psycopg.abc import Buffer

_HEADER = struct.Struct(">hh")  # the dimension, and nothing


class Halfvec:
    """A vector to bind, with a cast: `?::halfvec`."""

    __slots__ = ("packed",)

    def __init__(self, vector: bytes) -> None:
        """`vector`: float16, little-endian."""
        self.packed = _HEADER.pack(len(vector) // 2, 0) + _swapped(vector)


def unpacked(received: bytes) -> bytes:
    """What a binary result has, as float16, little-endian."""
    return _swapped(received[_HEADER.size :])


class _HalfvecDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Halfvec) -> Buffer:
        return obj.packed


def _swapped(halves: bytes) -> bytes:
    swapped = bytearray(len(halves))
    swapped[::2], swapped[1::2] = halves[1::2], halves[::2]
    return bytes(swapped)


psycopg.adapters.register_dumper(Halfvec, _HalfvecDumper)
