"""Tools that a query names, however the name is spelt: `read_file`, `readFile`, `files:read-file`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.postings import Floats
from pointsman.providers.text import squeezed

MAX_CHARS = 1_200  # of a query; no name with its server's is longer
SURE = 0.99  # the relevance of the one tool that is meant
ONE_OF_SEVERAL = 0.95  # and of each, where several servers have a tool of that name
OTHERS = 0.9  # the most that any other tool gets; so near that usage cannot lift it past the name
NOTE = "exact name"

_IDENTIFIER = re.compile(r"[^\W_](?:_+|[-.:])[^\W_]|[a-z][A-Z]")


class ExactNames:
    """The tools of one set by their names, alone and with the server's id or name before them."""

    def __init__(self, tools: Sequence[ToolDocument]) -> None:
        self._rows = _by_spelling(tools)

    def rows(self, query: str) -> list[int]:
        """The tools, by their place, that the whole query is the name of; else those that it names as identifiers."""
        if len(query) > MAX_CHARS:
            return []
        return self._rows.get(squeezed(query)) or self._identified(query)

    def _identified(self, query: str) -> list[int]:
        """Plain words are no names here: `search` in a sentence says what to do, `read_file` says with what."""
        words = (word for word in query.split() if _IDENTIFIER.search(word))
        return list(dict.fromkeys(row for word in words for row in self._rows.get(squeezed(word), [])))


def put_first(fit: Floats, rows: Sequence[int]) -> None:
    """Change what one query found in favour of the tools that it names."""
    if rows:
        fit.clip(max=OTHERS, out=fit)
        fit[list(rows)] = SURE if len(rows) == 1 else ONE_OF_SEVERAL


def _by_spelling(tools: Sequence[ToolDocument]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    of_server = cache(squeezed)  # few, each with many tools
    for row, tool in enumerate(tools):
        name = squeezed(tool.tool_name)
        if name:
            server_id = tool.tool_key.removesuffix(tool.tool_name)
            for spelling in {name, of_server(server_id) + name, of_server(tool.server_name) + name}:
                rows.setdefault(spelling, []).append(row)
    return rows
