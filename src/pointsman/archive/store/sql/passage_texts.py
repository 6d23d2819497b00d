"""The texts of documents and passages. A document is stored once, compressed; its passages are parts of it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection

from pointsman.archive.store.sql.database import Connection, padded, placeholders

BLOCK = 32_768  # characters that are compressed together: a passage is read without the rest of a long document
_COUNT = struct.Struct("<xI")  # after a zero byte, which starts no zlib stream

PLACED = "passages.document, passages.removed, passages.start, passages.size, passages.text"
"""The columns that `Texts.of` takes."""


def compress(text: str) -> bytes:
    """One zlib stream, or several after a table of their sizes.

    Raises:
        UnicodeEncodeError: the text contains a lone surrogate.
    """
    blocks = [zlib.compress(text[at : at + BLOCK].encode()) for at in range(0, len(text), BLOCK)]
    if len(blocks) <= 1:
        return blocks[0] if blocks else zlib.compress(b"")
    return _COUNT.pack(len(blocks)) + struct.pack(f"<{len(blocks)}I", *map(len, blocks)) + b"".join(blocks)


def decompress(stored: bytes) -> str:
    if stored[0]:
        return zlib.decompress(stored).decode()
    return "".join(_block(stored, number) for number in range(_COUNT.unpack_from(stored)[0]))


class Texts:
    """Texts of passages, within one transaction. Fastest in the order of documents and places."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._source: tuple[int | None, int | None] = (None, None)
        self._loaded: dict[int, tuple[str, bytes]] = {}
        self._title = ""
        self._stored = b""
        self._blocks: dict[int, str] = {}

    def load(self, documents: Collection[int]) -> None:
        """Read these documents together: an engine may be slow to answer, however short the answer."""
        if documents:
            asked = padded(documents)
            rows = self._connection.execute(
                f"SELECT id, title, content FROM documents WHERE id IN ({placeholders(asked)})", asked
            )
            self._loaded = {number: (title, content) for number, title, content in rows}

    def of(self, document: int | None, removed: int | None, start: int, size: int, own: str | None) -> tuple[str, str]:
        """The title of the document and the text of the passage."""
        self._open(document, removed)
        return self._title, self._cut(start, start + size) if own is None else own

    def _open(self, document: int | None, removed: int | None) -> None:
        if (document, removed) == self._source:
            return
        table, number = ("documents", document) if document is not None else ("removed_texts", removed)
        known = self._loaded.get(document) if document is not None else None
        self._title, self._stored = (
            known or self._connection.execute(f"SELECT title, content FROM {table} WHERE id = ?", (number,)).fetchone()
        )
        self._source = document, removed
        self._blocks.clear()

    def _cut(self, start: int, end: int) -> str:
        if self._stored[0]:  # one block, or written before there were blocks
            if not self._blocks:
                self._blocks[0] = decompress(self._stored)
            return self._blocks[0][start:end]
        first, last = start // BLOCK, max(start, end - 1) // BLOCK
        for number in range(first, last + 1):
            if number not in self._blocks:
                self._blocks[number] = _block(self._stored, number)
        for number in [number for number in self._blocks if number < first]:
            del self._blocks[number]
        text = "".join(self._blocks[number] for number in range(first, last + 1))
        return text[start - first * BLOCK : end - first * BLOCK]


def locate(content: str, text: str, after: int) -> int | None:
    """Where the text of a passage is in its document: behind the passage before it, if it can."""
    at = content.find(text, after)
    return at if at >= 0 else None if (at := content.find(text)) < 0 else at


def _block(stored: bytes, number: int) -> str:
    (count,) = _COUNT.unpack_from(stored)
    sizes = struct.unpack_from(f"<{count}I", stored, _COUNT.size)
    start = _COUNT.size + 4 * count + sum(sizes[:number])
    return zlib.decompress(stored[start : start + sizes[number]]).decode()
