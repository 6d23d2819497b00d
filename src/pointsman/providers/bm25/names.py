"""Names in a query: of tools in any spelling (`read_file`, `readFile`, `files:read-file`) or in part; of servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np

from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.documents import IN_NAME, PLURAL, Prepared
from pointsman.providers.bm25.postings import Floats, Rows, by_word
from pointsman.providers.text import squeezed

MAX_CHARS = 1_200  # of a query; no name with its server's is longer
SURE = 0.99  # the relevance of the one tool with that name
ONE_OF_SEVERAL = 0.95  # and of each, if several servers have a tool of that name
OTHERS = 0.9  # the most that any other tool gets: close, but far enough that usage cannot lift it past the name
NOTE = "exact name"
OF_NAMED_SERVER = 0.5  # the least relevance of a tool whose server is all that a query names

_IDENTIFIER = re.compile(r"[^\W_](?:_+|[-.:])[^\W_]|[a-z][A-Z]")
_SEPARATOR = r" (?:or|nor|and) |(?<=,) "  # of the names in a list, which end in their commas
_FORBIDDEN = re.compile(
    r"\b(?:do not|don['\u2019]?t|never|avoid|(?P<other>without|rather than|instead of|not))"
    r"(?: (?:use|using|call|calling|run|running|want|the|tool)){0,4} "
    rf"(?P<names>\S{{1,200}}(?:(?:{_SEPARATOR})\S{{1,200}}){{0,9}})",
    re.IGNORECASE,
)
_LIST_SEPARATOR = re.compile(_SEPARATOR, re.IGNORECASE)
_LIST_END = re.compile(r"\s{0,3}(?:$|[.;!?\n])|,? but\b", re.IGNORECASE)
# Words beside the name of a server that ask for no more than its tools, alone or only with one of `_TOOLS`: `list the
# github tools` does, `list github` does not.
_BESIDE = (
    "a about at by can do does from help how i in me my need of on our please provide provided provides tell the use"
    " using via what with"
)
_BESIDE_TOOLS = "all any are available get give has have is list offer offers see show there which you"
_TOOLS = "actions capabilities commands functions mcp server servers tool tools"
_NEED_TOOLS, _FOR_TOOLS = frozenset(_BESIDE_TOOLS.split()), frozenset(_TOOLS.split())
_FILLERS = frozenset(_BESIDE.split()) | _NEED_TOOLS | _FOR_TOOLS
_SERVER_WORDS = re.compile(r"[^\W_]+")
_MARKS = ".,;:!?"


class ExactNames:
    """The tools of one set by their names, alone and with the server's id or name before them."""

    def __init__(self, tools: Sequence[ToolDocument]) -> None:
        self._rows = _rows_by_spelling(tools)

    def rows(self, query: str) -> list[int]:
        """The rows of the tools whose name is the whole query; else of those that it names as identifiers.

        A plain word in a sentence is not a name: `search` says what to do, `read_file` says with what.
        """
        if len(query) > MAX_CHARS:
            return []
        whole = self._rows.get(squeezed(query))
        if whole:
            return whole
        words = [word for word in query.split() if _IDENTIFIER.search(word)]
        return list(dict.fromkeys(row for word in words for row in self._rows.get(squeezed(word), [])))

    def without_forbidden(self, query: str) -> str:
        """The query without the names of tools that it forbids: `without git_reset`, `never call delete_entities`."""

        def without_names(forbidden: re.Match[str]) -> str:
            end = self._end_of_names(forbidden)
            return forbidden[0] if end is None else forbidden["names"][end:]

        return _FORBIDDEN.sub(without_names, query)

    def _end_of_names(self, forbidden: re.Match[str]) -> int | None:
        """Where the forbidden names end in `names`; None if it begins with no name of a tool.

        Commas alone hardly make a list: `do not use git_reset, git_log is enough` and `instead of git_reset, git_log`
        ask for the second one.
        """
        ends = list(self._ends_of_names(forbidden["names"]))
        if not ends:
            return None
        closing = [end for end, joined in ends if joined]
        if closing:
            return closing[-1]
        first, last = ends[0][0], ends[-1][0]
        is_list = not forbidden["other"] and _LIST_END.match(forbidden.string, forbidden.start("names") + last)
        return last if is_list else first

    def _ends_of_names(self, text: str) -> Iterator[tuple[int, bool]]:
        """Where each of the tool names at the beginning of a text ends, and whether `or` or `and` stands before it."""
        start, joined = 0, False
        for separator in (*_LIST_SEPARATOR.finditer(text), None):
            part = text[start : separator.start() if separator else None]
            name = part.rstrip(_MARKS)
            if not self._are_names(name):
                return
            yield start + len(name), joined
            if separator is None or part[len(name) :] not in ("", ","):
                return
            start, joined = separator.end(), separator[0] != " "

    def _are_names(self, word: str) -> bool:
        """Whether a word is the name of a tool, which may have a slash in it, or several with slashes between them."""
        return self._is_name(word) or ("/" in word and all(map(self._is_name, word.split("/"))))

    def _is_name(self, word: str) -> bool:
        return _IDENTIFIER.search(word) is not None and squeezed(word) in self._rows


class ServerNames:
    """The servers of one set of tools, by the words of their ids and names."""

    def __init__(self, tools: Sequence[ToolDocument]) -> None:
        self._rows: dict[str, list[int]] = {}
        spellings = cache(_spellings_of_server)  # few servers, each with many tools
        for row, tool in enumerate(tools):
            for spelling in spellings(tool.tool_key.removesuffix(tool.tool_name), tool.server_name):
                self._rows.setdefault(spelling, []).append(row)

    def rows(self, query: str) -> list[int]:
        """The rows of a server's tools if the query names nothing else: `github`, `what can the git server do`."""
        if len(query) > MAX_CHARS:
            return []
        said = _plain_words(query)
        if not _NEED_TOOLS.isdisjoint(said) and _FOR_TOOLS.isdisjoint(said):
            return []
        return self._rows.get(_without_fillers(said), [])


def _spellings_of_server(server_id: str, name: str) -> set[str]:
    return {_without_fillers(_plain_words(text)) for text in (server_id, name)} - {""}


def _plain_words(text: str) -> list[str]:
    return _SERVER_WORDS.findall(text.lower())


def _without_fillers(said: Iterable[str]) -> str:
    return squeezed("".join(word for word in said if word not in _FILLERS))


def raise_named(fit: Floats, rows: Sequence[int]) -> None:
    """Raise the relevance of the tools of a server that a query names, in place, and leave their order as it is."""
    if rows:
        named = list(rows)
        fit[named] = np.maximum(fit[named], OF_NAMED_SERVER + fit[named] / 10)


def put_first(fit: Floats, rows: Sequence[int]) -> None:
    """Raise the relevance of the tools that a query names above all others, in place."""
    if rows:
        fit.clip(max=OTHERS, out=fit)
        fit[list(rows)] = SURE if len(rows) == 1 else ONE_OF_SEVERAL


def _rows_by_spelling(tools: Sequence[ToolDocument]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    squeezed_server = cache(squeezed)  # few servers, each with many tools
    for row, tool in enumerate(tools):
        name = squeezed(tool.tool_name)
        if name:
            server_id = tool.tool_key.removesuffix(tool.tool_name)
            for spelling in {name, squeezed_server(server_id) + name, squeezed_server(tool.server_name) + name}:
                rows.setdefault(spelling, []).append(row)
    return rows


class NameCoverage:
    """How much of each tool's name a query has: `list tables` has all of `list_tables`, but half of `drop_tables`.

    Also, which names have a word in another number: `which issues are open` asks for `list_issues`, not `get_issue`.
    """

    def __init__(self, documents: Sequence[Prepared], idf: Mapping[int, float]) -> None:
        self._size = len(documents)
        fields = np.concatenate([np.empty(0, dtype=np.int32), *(document.fields for document in documents)])
        named = (fields & IN_NAME).astype(bool)
        plural = (fields[named] & PLURAL).astype(bool)
        words = np.concatenate([np.empty(0, dtype=np.int32), *(document.words for document in documents)])[named]
        rows = np.repeat(np.arange(self._size, dtype=np.int32), [len(each.words) for each in documents])[named]
        weights = np.array([idf[word] for word in words.tolist()])
        shares = weights / np.bincount(rows, weights=weights, minlength=self._size)[rows]
        order, self._span = by_word(words)
        self._rows = rows[order]
        self._shares: Floats = shares[order]
        self._plural = plural[order]

    def of(self, query: Iterable[int]) -> Floats:
        """From 0 to 1 for each tool; rare words count more."""
        covered = np.zeros(self._size)
        for word in query:
            span = self._span(word)
            covered[self._rows[span]] += self._shares[span]
        return covered

    def in_other_number(self, word: int, *, plural: bool) -> Rows:
        """The tools whose name has a word in the other number; none if no name has it in this one."""
        span = self._span(word)
        same = self._plural[span] == plural
        rows = self._rows[span]
        others: Rows = rows[~same] if same.any() else rows[:0]
        return others
