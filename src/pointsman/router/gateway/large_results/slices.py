"""What a model sees of a stored result: the preview, a selected part, the lines that contain a text. Pure functions.

All of it takes time linear in the size of the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from pointsman.core import wire
from pointsman.core.errors import InvalidArgumentsError
from pointsman.core.model import Json
from pointsman.router.gateway.large_results.store import StoredResult

MAX_PATH_CHARS = 500
MAX_WORDS_CHARS = 200
MAX_VALUES = 1_000_000  # in JSON that is decoded for `select`; each takes about 100 bytes of memory
TOO_MANY = "`select` has too many values to read here. Use `offset` or `search`."
MAX_MATCHES = 50
PREVIEW_CHARS = 8_000  # of the beginning
OUTLINE_CHARS = 1_500
_CONTEXT_CHARS = 200  # on each side of a match, within its line
_WINDOW_CHARS = 65_536
_WRAPPER_KEYS = 4
_OUTLINE_DEPTH = 3
_OUTLINE_KEYS = 12
_SHORT_KEY_CHARS = 60
_MAX_HEADINGS = 20
# In quotes a backslash stands before a quote or a backslash; before others it is itself. The alternatives exclude one
# another, so that no path takes more than linear time.
_STEP = re.compile(
    r"""\.?([^.\[\]"'][^.\[\]]*)|\[(-?\d{1,9}|\*)\]"""
    r"""|\[(?:"((?:[^"\\]|\\["'\\]|\\(?!["'\\]))*)"|'((?:[^'\\]|\\["'\\]|\\(?!["'\\]))*)')\]"""
)
_ESCAPED = re.compile(r"""\\(["'\\])""")
_HEADING = re.compile(r"#{1,3} .{1,80}")
_MAX_CANDIDATES = 1_000  # lines that begin like a heading and are looked at

Step = str | int | None  # a key, an index; None: all members


class Matches(Struct, frozen=True):
    matches: list[Json]
    next_offset: int | None  # None: the whole text was searched


class View:
    """One text to read: the text of a result, its structured content if it has no text, or a selected part."""

    def __init__(self, stored: StoredResult, text: str | None = None) -> None:
        self._stored = stored
        self.text = text if text is not None else stored.text or stored.structured.decode()

    @property
    def size(self) -> str:
        """How much there is, as a person would count it: text and structured content often say the same."""
        text, structured = len(self._stored.text), len(self._stored.structured.decode())
        if text and structured:
            return f"{text:,} characters of text and {structured:,} characters of structured content"
        return f"{text + structured:,} characters"

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

    def document(self) -> Any:
        """The JSON that a path is looked for first, or `_NO_DOCUMENT`. Raises InvalidArgumentsError."""
        return _decoded(self._candidates()[0])

    def _candidates(self) -> list[bytes]:
        """Structured content and text, if there are both; text first if the other one only wraps it.

        Servers put a text that they read into `{"content": "..."}`, and what is JSON then is the text.
        """
        structured, text = self._stored.structured, self._stored.text.encode()
        if not structured or not text:
            return [structured or text]
        wraps = len(structured) > len(text) and _is_json(text) and _wraps(structured, self._stored.text)
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


def outline(value: Any, depth: int = _OUTLINE_DEPTH) -> str:
    """The structure of a JSON value in a few words: keys, types and numbers of members."""
    text = _outline(value, depth)
    return text if len(text) <= OUTLINE_CHARS else f"{text[:OUTLINE_CHARS]} ..."


def preview_of(view: View, handle: str, limit: int, slice_chars: int) -> str:
    """The text that replaces a large result: how to read it, its structure, and its beginning."""
    begin = view.text[: min(PREVIEW_CHARS, limit // 4)]
    structure, example = _structure(view)
    call = f'tool_execute {{"toolKey": "pointsman:result", "arguments": {{"handle": "{handle}", ...}}}}'
    fields = f'- "select": "{example}" for fields by their path, as JSON\n' if example else ""
    return (
        f"This is the beginning of a result of {view.size}. The whole result is stored for one hour. "
        f"Read what you need of it with {call} and one of\n"
        f'- "search": "TEXT" for the lines that contain a text\n{fields}'
        f'- "offset": {len(begin)} for the next {slice_chars:,} characters\n\n'
        f"Structure: {structure[: max(limit // 8, 100)]}\n\n{begin}\n"
        f"[cut here; continue with offset {len(begin)}]"
    )


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
        self._left -= _values_in(data)
        if self._left < 0:
            raise InvalidArgumentsError(TOO_MANY)
        inner = _decoded(data)
        return value if inner is _NO_DOCUMENT else inner


def _decoded(data: bytes) -> Any:
    """The document, or `_NO_DOCUMENT`. Raises InvalidArgumentsError."""
    if not _is_json(data):
        return _NO_DOCUMENT
    if _values_in(data) > MAX_VALUES:
        raise InvalidArgumentsError(TOO_MANY)
    try:
        return wire.decode(data)
    except wire.InvalidJsonError:
        return _NO_DOCUMENT


def _is_json(data: bytes) -> bool:
    """Whether it begins like an object or a list."""
    return data.lstrip()[:1] in (b"{", b"[")


def _values_in(data: bytes) -> int:
    """At least as many as there are."""
    return sum(map(data.count, (b",", b"[", b"{")))


def _wraps(structured: bytes, text: str) -> bool:
    """Whether an object has the text as one of few values."""
    try:
        document = _decoded(structured)
    except InvalidArgumentsError:
        return False
    return isinstance(document, dict) and len(document) <= _WRAPPER_KEYS and text in document.values()


def _structure(view: View) -> tuple[str, str]:
    """An outline, and a path to select as an example; the path is empty if the result is not JSON."""
    try:
        document = view.document()
    except InvalidArgumentsError:
        return "JSON with very many values", ""
    if document is not _NO_DOCUMENT:
        return outline(document), _example(document)
    text = view.text
    headings = _headings(text)
    lines = f"text of {text.count(chr(10)) + 1:,} lines and {len(text):,} characters"
    return f"{lines} with the headings\n" + "\n".join(headings) if headings else lines, ""


def _headings(text: str) -> list[str]:
    """The first headings. A regular expression over all of the text would hold the interpreter for 6 ms a megabyte."""
    found: list[str] = []
    at = 0
    for _ in range(_MAX_CANDIDATES):
        if match := _HEADING.match(text, at):
            found.append(match[0])
        at = text.find("\n#", at) + 1
        if at == 0 or len(found) == _MAX_HEADINGS:
            break
    return found


def _example(document: Any) -> str:
    path = ""
    for _ in range(_OUTLINE_DEPTH):
        if isinstance(document, list) and document:
            path, document = f"{path}[*]" if isinstance(document[0], dict) else f"{path}[0]", document[0]
        elif isinstance(document, dict) and document:
            key = next(
                (key for key, value in document.items() if isinstance(value, (list, dict))), next(iter(document))
            )
            path, document = f"{path}.{key}" if key.isidentifier() else f"{path}['...']", document[key]
        else:
            break
    return path.lstrip(".")


def _outline(value: Any, depth: int) -> str:
    if isinstance(value, dict):
        return _outline_of_object(value, depth)
    if isinstance(value, list):
        if not value or not depth:
            return f"[{len(value):,} items]"
        return f"[{len(value):,} x {_outline(value[0], depth - 1)}]"
    if isinstance(value, str):
        return "string" if len(value) <= _CONTEXT_CHARS else f"string of {len(value):,} characters"
    if value is None:
        return "null"
    return "boolean" if isinstance(value, bool) else "number"


def _outline_of_object(value: Json, depth: int) -> str:
    if not depth:
        return f"{{{len(value):,} keys}}"
    shown = [f"{_shown(key)}: {_outline(value[key], depth - 1)}" for key in list(value)[:_OUTLINE_KEYS]]
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
