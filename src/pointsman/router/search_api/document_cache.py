"""Tools that were sent before: known again by their bytes, so that a list that comes back costs one look."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b

from pointsman.providers.base import ToolDocument

KEPT_TOOLS = 20_000
KEPT_LISTS = 16  # as many as the local provider keeps indexes

Documents = tuple[ToolDocument, ...]
Digest = bytes


def digest(content: bytes | bytearray | memoryview) -> Digest:
    return blake2b(content, digest_size=16).digest()


class DocumentCache:
    """Shared by threads. What is handed out twice is the same object, by which the provider knows its index again."""

    def __init__(self, kept_tools: int = KEPT_TOOLS, kept_lists: int = KEPT_LISTS) -> None:
        self._kept_tools = kept_tools
        self._kept_lists = kept_lists
        self._tools: OrderedDict[Digest, ToolDocument] = OrderedDict()
        self._lists: OrderedDict[Digest, Documents] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def tools(self) -> int:
        return len(self._tools)

    def known_list(self, content: Digest) -> Documents | None:
        with self._lock:
            documents = self._lists.get(content)
            if documents is not None:
                self._lists.move_to_end(content)
            return documents

    def documents(self, tools: Sequence[memoryview], read: Callable[[int], ToolDocument]) -> Documents:
        """`read` makes the document of the tool at a place; it is asked for tools that are not known."""
        found: dict[str, ToolDocument] = {}  # by key: the first of two counts
        for place, tool in enumerate(tools):
            document = self._tool(digest(tool), place, read)
            found.setdefault(document.tool_key, document)
        return tuple(found.values())

    def keep_list(self, content: Digest, documents: Documents) -> None:
        with self._lock:
            self._lists[content] = documents
            while len(self._lists) > self._kept_lists:
                self._lists.popitem(last=False)

    def _tool(self, content: Digest, place: int, read: Callable[[int], ToolDocument]) -> ToolDocument:
        with self._lock:
            known = self._tools.get(content)
            if known is not None:
                self._tools.move_to_end(content)
                return known
        made = read(place)
        with self._lock:
            document = self._tools.setdefault(content, made)
            while len(self._tools) > self._kept_tools:
                self._tools.popitem(last=False)
        return document
