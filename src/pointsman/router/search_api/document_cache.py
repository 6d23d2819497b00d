"""Caches parsed tools by the digest of their bytes, so that a repeated list costs one lookup."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b

from pointsman.providers.base import ToolDocument

KEPT_TOOLS = 20_000
KEPT_LISTS = 16  # as many as the local provider caches indexes

Documents = tuple[ToolDocument, ...]
Digest = bytes


def digest(content: bytes | bytearray | memoryview) -> Digest:
    return blake2b(content, digest_size=16).digest()


class DocumentCache:
    """Thread-safe LRU cache. Returns the same object for the same list: the provider caches its index by identity."""

    def __init__(self, kept_tools: int = KEPT_TOOLS, kept_lists: int = KEPT_LISTS) -> None:
        self._kept_tools = kept_tools
        self._kept_lists = kept_lists
        self._tools: OrderedDict[Digest, ToolDocument] = OrderedDict()
        self._lists: OrderedDict[Digest, Documents] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def tools(self) -> int:
        return len(self._tools)

    def get_list(self, content: Digest) -> Documents | None:
        with self._lock:
            documents = self._lists.get(content)
            if documents is not None:
                self._lists.move_to_end(content)
            return documents

    def documents(self, tools: Sequence[memoryview], parse: Callable[[int], ToolDocument]) -> Documents:
        """Return the documents of `tools`. `parse` makes the one at an index; it is called for unknown tools."""
        by_key: dict[str, ToolDocument] = {}  # the first of two with one key wins
        for index, tool in enumerate(tools):
            document = self._tool(digest(tool), index, parse)
            by_key.setdefault(document.tool_key, document)
        return tuple(by_key.values())

    def put_list(self, content: Digest, documents: Documents) -> None:
        with self._lock:
            self._lists[content] = documents
            while len(self._lists) > self._kept_lists:
                self._lists.popitem(last=False)

    def _tool(self, content: Digest, index: int, parse: Callable[[int], ToolDocument]) -> ToolDocument:
        with self._lock:
            known = self._tools.get(content)
            if known is not None:
                self._tools.move_to_end(content)
                return known
        parsed = parse(index)
        with self._lock:
            document = self._tools.setdefault(content, parsed)
            while len(self._tools) > self._kept_tools:
                self._tools.popitem(last=False)
        return document
