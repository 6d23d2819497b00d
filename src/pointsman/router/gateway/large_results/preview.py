"""The preview of a large result: how to read the rest, its structure, and its beginning.

JSON is not decoded for it but opened as far down as the structure shows it.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Raw

from pointsman.core.wire import InvalidJsonError
from pointsman.router.gateway.large_results.pieces import LargeText, opened
from pointsman.router.gateway.large_results.slices import (
    MAX_VALUES,
    OUTLINE_DEPTH,
    is_json,
    is_wrapper,
    member,
    outline,
    values_in,
)

PREVIEW_CHARS = 8_000  # of the beginning
_MAX_HEADINGS = 20
_HEADING = re.compile(r"#{1,3} .{1,80}")
_HEADING_CHARS = 4 + 80
_MAX_CANDIDATES = 1_000  # lines that begin like a heading and are looked at


def preview_of(text: LargeText, structured: LargeText, content: Any, handle: str, limit: int, slice_chars: int) -> str:
    """The text that replaces a large result. `content` is the structured content as it came."""
    read = text if text.chars else structured
    begin = read.begin(min(PREVIEW_CHARS, limit // 4))
    structure, example = _structure(text, structured, content)
    call = f'tool_execute {{"toolKey": "pointsman:result", "arguments": {{"handle": "{handle}", ...}}}}'
    fields = f'- "select": "{example}" for fields by their path, as JSON\n' if example else ""
    return (
        f"This is the beginning of a result of {_size(text, structured)}. The whole result is stored for one hour. "
        f"Read what you need of it with {call} and one of\n"
        f'- "search": "TEXT" for the lines that contain a text\n{fields}'
        f'- "offset": {len(begin)} for the next {slice_chars:,} characters\n\n'
        f"Structure: {structure[: max(limit // 8, 100)]}\n\n{begin}\n"
        f"[cut here; continue with offset {len(begin)}]"
    )


def _size(text: LargeText, structured: LargeText) -> str:
    """How much there is, as a person would count it: text and structured content often say the same."""
    if text.chars and structured.chars:
        return f"{text.chars:,} characters of text and {structured.chars:,} characters of structured content"
    return f"{text.chars + structured.chars:,} characters"


def _structure(text: LargeText, structured: LargeText, content: Any) -> tuple[str, str]:
    """An outline, and a path to select as an example; the path is empty if the result is not JSON."""
    chosen = structured if len(structured) and not _is_wrapped(text, structured, content) else text
    if is_json(chosen.data):
        if values_in(chosen) > MAX_VALUES:
            return "JSON with very many values", ""
        try:
            document = opened(content if chosen is structured else Raw(text.data))
            return outline(document), _example(document)
        except InvalidJsonError:
            pass
    read = text if text.chars else structured
    headings = _headings(read)
    line_ends = read.count(b"\n")
    lines = f"text of {line_ends + 1:,} lines and {read.chars:,} characters"
    return f"{lines} with the headings\n" + "\n".join(headings) if headings else lines, ""


def _is_wrapped(text: LargeText, structured: LargeText, content: Any) -> bool:
    """Whether structured content only wraps the text, which is the JSON then."""
    return len(structured) > len(text) and is_json(text.data) and is_wrapper(content, str(text.data, "utf-8"))


def _headings(text: LargeText) -> list[str]:
    """The first headings. A regular expression over all of the text would hold the interpreter for 6 ms a megabyte."""
    found: list[str] = []
    at = 0
    for _ in range(_MAX_CANDIDATES):
        if match := _HEADING.match(text.begin(_HEADING_CHARS, at)):
            found.append(match[0])
        at = text.find(b"\n#", at) + 1
        if at == 0 or len(found) == _MAX_HEADINGS:
            break
    return found


def _example(document: Any) -> str:
    path = ""
    for _ in range(OUTLINE_DEPTH):
        if isinstance(document, list) and document:
            document = member(document, 0)
            path = f"{path}[*]" if isinstance(document, dict) else f"{path}[0]"
        elif isinstance(document, dict) and document:
            key = next((key for key, value in document.items() if _has_members(value)), next(iter(document)))
            path, document = f"{path}.{key}" if key.isidentifier() else f"{path}['...']", member(document, key)
        else:
            break
    return path.lstrip(".")


def _has_members(value: Any) -> bool:
    """Whether a value, which may be undecoded, is a list or an object."""
    return memoryview(value)[0] in b"[{" if type(value) is Raw else isinstance(value, (list, dict))
