"""What a model reads of a stored result: a selected part, the lines that contain a text, a structure. Pure functions.

All of it takes time linear in the size of the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Raw, Struct

from pointsman.core import wire
from pointsman.core.errors import InvalidArgumentsError
from pointsman.core.model import Json
from pointsman.router.gateway.large_results.pieces import LargeText, opened
from pointsman.router.gateway.large_results.store import StoredResult

MAX_PATH_CHARS = 500
MAX_WORDS_CHARS = 200
MAX_VALUES = 1_000_000  # in JSON that is decoded for `select`; each takes about 100 bytes of memory
TOO_MANY = "`select` has too many values to read here. Use `offset` or `search`."
MAX_MATCHES = 50
OUTLINE_CHARS = 1_500
OUTLINE_DEPTH = 3
_CONTEXT_CHARS = 200  # on each side of a match, within its line
_WINDOW_CHARS = 65_536
_WRAPPER_KEYS = 4
_OUTLINE_KEYS = 12
_SHORT_KEY_CHARS = 60
# In quotes a backslash stands before a quote or a backslash; before others it is itself. The alternatives exclude one
# another, so that no path takes more than linear time.
_STEP = re.compile(
    r"""\.?([^.\[\]"'][^.\[\]]*)|\[(-?\d{1,9}|\*)\]"""
    r"""|\[(?:"((?:[^"\\]|\\["'\\]|\\(?!["'\\]))*)"|'((?:[^'\\]|\\["'\\]|\\(?!["'\\]))*)')\]"""
)
_JSON_BEGIN = re.compile(rb"\s*[{\[]")
_ESCAPED = re.compile(r"""\\(["'\\])""")

Step = str | int | None  # a key, an index; None: all members


class Matches(Struct, frozen=True):
    matches: list[Json]
    next_offset: int | None  # None: the whole text was searched


class View:
    """One text to read: the text of a result, its structured content if it has no text, or a selected part."""

    def __init__(self, stored: StoredResult, text: str | None = None) -> None:
        self._stored = stored
        self.text = text if text is not None else stored.text or stored.structured.decode()

    def select(self, path: str) -> View:
        """The values at a path: a single string as it is, anything else as JSON. Raises InvalidArgumentsError.

        The path is one in the structured content or, where that has none of it, in text that is JSON.
        """
        refusal = ""
        for data in self._candidates():
            try:
                document = _decoded(data)
                chosen = select(document, path) if document is not _NO_DOCUMENT else _NO_DOCUMENT
            except InvalidArgumentsError as error:
                refusal = refusal or str(error)
                continue
            if chosen is not _NO_DOCUMENT:
                return View(self._stored, chosen if isinstance(chosen, str) else wire.encode(chosen).decode())
        raise InvalidArgumentsError(
            refusal or "`select` needs JSON, which this result is not. Use `offset` or `search`."
        )

    def _candidates(self) -> list[bytes]:
        """Structured content and text, if there are both; text first if the other one only wraps it."""
        structured, text = self._stored.structured, self._stored.text.encode()
        if not structured or not text:
            return [structured or text]
        wraps = len(structured) > len(text) and is_json(text) and is_wrapper(Raw(structured), self._stored.text)
        return [text, structured] if wraps else [structured, text]

    def search(self, words: str, begin: int, most_chars: int) -> Matches:
        """The lines from `begin` on that contain `words`, in any case; of long lines the part around the match."""
        text, needle = self.text, _fold(words)
        matches: list[Json] = []
        at, line, counted = begin, 1, 0
        while at < len(text):
            found = _fold(text[at : at + _WINDOW_CHARS + len(needle) - 1]).find(needle)
            if found < 0:
                at += _WINDOW_CHARS
                continue
            start, end = _excerpt(text, at + found, len(needle), at)
            line, counted = line + text.count("\n", counted, start), start
            matches.append({"offset": start, "line": line, "text": text[start:end]})
            most_chars -= end - start
            at = end
            if len(matches) == MAX_MATCHES or most_chars <= 0:
                return Matches(matches, at if at < len(text) else None)
        return Matches(matches, None)


def select(document: Any, path: str) -> Any:
    """The value at a path such as `a.b[0].c`, or the list of values if it contains `[*]`. A text that is JSON is read.

    Raises:
        InvalidArgumentsError: no such path; the message has the structure where it ended.
    """
    values, several, decoder = [document], False, _Decoder()
    for step in _steps(path):
        several = several or step is None
        found = [member for value in values for member in _members(decoder.inside(value), step)]
        if values and not found and step is not None:
            shown = str(step)[:_SHORT_KEY_CHARS]
            raise InvalidArgumentsError(f"`select` finds no `{shown}` in {outline(values[0])}.")
        values = found
    return values if several else values[0]


def outline(value: Any, depth: int = OUTLINE_DEPTH) -> str:
    """The structure of a JSON value in a few words: keys, types and numbers of members.

    Raises:
        InvalidJsonError: members are undecoded, and a number is out of range.
    """
    text = _outline(value, depth)
    return text if len(text) <= OUTLINE_CHARS else f"{text[:OUTLINE_CHARS]} ..."


def member(container: Any, key: str | int) -> Any:
    """A member of a list or object; one that is undecoded is opened in its place. Raises InvalidJsonError."""
    value = container[key]
    if type(value) is Raw:
        value = container[key] = opened(value)
    return value


def is_wrapper(structured: Any, text: str) -> bool:
    """Whether structured content is an object with the text as one of few values.

    Servers put a text that they read into `{"content": "..."}`, and what is JSON then is the text.
    """
    try:
        document = opened(structured)
        if not isinstance(document, dict) or len(document) > _WRAPPER_KEYS:
            return False
        return any(opened(value) == text for value in document.values())
    except wire.InvalidJsonError:
        return False


def is_json(data: bytes | memoryview) -> bool:
    """Whether it begins like an object or a list."""
    return _JSON_BEGIN.match(data) is not None


def values_in(data: bytes | LargeText) -> int:
    """At least as many as there are."""
    return sum(map(data.count, (b",", b"[", b"{")))


class _NoDocument:
    pass


_NO_DOCUMENT = _NoDocument()


class _Decoder:
    """Reads texts that are JSON, all together within the budget of values."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def inside(self, value: Any) -> Any:
        """What a text says, if it is JSON; any other value as it is. Raises InvalidArgumentsError."""
        if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
            return value
        data = value.encode(errors="surrogatepass")
        self._left -= values_in(data)
        if self._left < 0:
            raise InvalidArgumentsError(TOO_MANY)
        inner = _decoded(data)
        return value if inner is _NO_DOCUMENT else inner


def _decoded(data: bytes) -> Any:
    """The document, or `_NO_DOCUMENT`. Raises InvalidArgumentsError."""
    if not is_json(data):
        return _NO_DOCUMENT
    if values_in(data) > MAX_VALUES:
        raise InvalidArgumentsError(TOO_MANY)
    try:
        return wire.decode(data)
    except wire.InvalidJsonError:
        return _NO_DOCUMENT


def _outline(value: Any, depth: int) -> str:
    if isinstance(value, dict):
        return _outline_of_object(value, depth)
    if isinstance(value, list):
        if not value or not depth:
            return f"[{len(value):,} items]"
        return f"[{len(value):,} x {_outline(member(value, 0), depth - 1)}]"
    if isinstance(value, str):
        return "string" if len(value) <= _CONTEXT_CHARS else f"string of {len(value):,} characters"
    if value is None:
        return "null"
    return "boolean" if isinstance(value, bool) else "number"


def _outline_of_object(value: Json, depth: int) -> str:
    if not depth:
        return f"{{{len(value):,} keys}}"
    shown = [f"{_shown(key)}: {_outline(member(value, key), depth - 1)}" for key in list(value)[:_OUTLINE_KEYS]]
    if len(value) > _OUTLINE_KEYS:
        shown.append(f"... {len(value) - _OUTLINE_KEYS:,} more")
    return f"{{{', '.join(shown)}}}"


def _shown(key: str) -> str:
    short = key if len(key) <= _SHORT_KEY_CHARS else f"{key[:_SHORT_KEY_CHARS]}..."
    return short if short.isidentifier() else wire.encode(short).decode()


def _steps(path: str) -> list[Step]:
    """Raises InvalidArgumentsError."""
    rest = path.strip().removeprefix("$")
    steps: list[Step] = []
    at = 0
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None:
            raise InvalidArgumentsError(
                "`select` must be a path of names and indexes, such as `a.b[0].c`, `a[*].name` or `a['some key']`."
            )
        name, index, *quoted = match.groups()
        if name is None and index is None:
            steps.append(_ESCAPED.sub(r"\1", next(text for text in quoted if text is not None)))
        elif "*" in (name, index):
            steps.append(None)
        else:
            steps.append(name if name is not None else int(index))
        at = match.end()
    return steps


def _members(value: Any, step: Step) -> Iterable[Any]:
    if isinstance(value, dict):
        if step is None:
            return value.values()
        return (value[str(step)],) if str(step) in value else ()
    if not isinstance(value, list):
        return ()
    if step is None:
        return value
    index = step if isinstance(step, int) else int(step) if step.isdecimal() and len(step) < 10 else len(value)
    return (value[index],) if -len(value) <= index < len(value) else ()


def _excerpt(text: str, at: int, length: int, earliest: int) -> tuple[int, int]:
    lowest = max(earliest, at - _CONTEXT_CHARS)
    begin = text.rfind("\n", lowest, at) + 1 or lowest
    highest = min(len(text), at + length + _CONTEXT_CHARS)
    end = text.find("\n", at + length, highest)
    return begin, end if end >= 0 else highest


def _fold(text: str) -> str:
    """Lower case of the same length: a dotted capital I is the one letter that grows."""
    return text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")
