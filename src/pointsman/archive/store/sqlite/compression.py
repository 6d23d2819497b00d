"""Whole documents are kept compressed: their passages are there as plain text, so nobody searches in them."""

from __future__ import annotations

import zlib


def packed(text: str) -> bytes:
    """Raises UnicodeEncodeError: it holds half a character."""
    return zlib.compress(text.encode())


def unpacked(kept: bytes) -> str:
    return zlib.decompress(kept).decode()
