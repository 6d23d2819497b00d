"""JSON with comments and trailing commas: reads it, and changes one member; every other character stays as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 200

# No alternative gives back what it has consumed, so a scan is linear.
_TOKEN = re.compile(
    r'(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")'
    r"|(?P<comment>//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)"
    r"|(?P<mark>[{}\[\],:])"
    r'|(?P<word>[^\s{}\[\],:"/]+)'
    r"|(?P<space>\s+)",
    re.DOTALL,
)


class JsoncError(Exception):
    """The text is not JSON, or not JSON that can be changed safely. `str(error)` says what and where."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # "string", "comment", "mark" or "word"
    text: str
    start: int
    end: int


@dataclass(slots=True)
class _Member:
    key: str
    start: int  # of the key
    value_start: int
    value_end: int
    comma: int | None = None  # the position of the comma behind it


@dataclass(slots=True)
class _Object:
    start: int  # of `{`
    end: int  # of `}`
    members: list[_Member]
    last: int  # the end of the last token before `}`

    def member(self, key: str) -> _Member | None:
        return next((member for member in self.members if member.key == key), None)


def parse(text: str) -> Any:
    """Raises JsoncError."""
    try:
        return json.loads(text, strict=False)  # most files are plain JSON, and some have megabytes
    except (ValueError, RecursionError):
        pass
    parts: list[str] = []
    held = ""  # a comma that is dropped if a closing bracket follows
    for token in _tokens(text):
        if token.kind == "comment":
            continue
        if token.text == ",":
            parts.append(held)
            held = ","
            continue
        parts.append("" if token.text in "}]" and held else held)
        held = ""
        parts.append(token.text)
        parts.append(" ")
    parts.append(held)
    try:
        return json.loads("".join(parts), strict=False)
    except (ValueError, RecursionError):
        return _explain(text)


def put(text: str, section: str, key: str, value: Any) -> str:
    """Set `section.key`; create the section if there is none. Raises JsoncError."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if not text.strip():
        return json.dumps({section: {key: value}}, indent=2, ensure_ascii=False).replace("\n", newline) + newline
    root = _object_at(text, _first(text))
    found = root.member(section)
    if found is None:
        return _append(text, root, section, {key: value}, newline)
    body = _object_at(text, found.value_start)
    old = body.member(key)
    if old is None:
        return _append(text, body, key, value, newline)
    rendered = _rendered(value, _indent_of(text, old.start), _unit(text), newline)
    return text[: old.value_start] + rendered + text[old.value_end :]


def drop(text: str, section: str, key: str) -> str:
    """Remove `section.key`. Raises JsoncError."""
    found = _object_at(text, _first(text)).member(section)
    body = _object_at(text, found.value_start) if found is not None else None
    index = next((i for i, member in enumerate(body.members) if member.key == key), None) if body else None
    if body is None or index is None:
        raise JsoncError(f"`{section}.{key}` is not there")
    member = body.members[index]
    end = member.comma + 1 if member.comma is not None else member.value_end
    start = member.start
    if _indent_of(text, start) is not None:  # alone on its lines: take the lines away
        line_end = text.find("\n", end)
        if line_end >= 0 and not text[end:line_end].strip():
            start, end = text.rfind("\n", 0, start) + 1, line_end + 1
    text = text[:start] + text[end:]
    before = body.members[index - 1] if index > 0 else None
    if before is not None and before.comma is not None and index == len(body.members) - 1:
        text = text[: before.comma] + text[before.comma + 1 :]  # it would now be a trailing one
    return text


def _tokens(text: str, start: int = 0) -> Iterator[_Token]:
    position = start
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JsoncError(f"{_place(text, position)}: unexpected {text[position]!r}")
        position = match.end()
        if match.lastgroup != "space":
            yield _Token(str(match.lastgroup), match[0], match.start(), match.end())


def _first(text: str) -> int:
    start = next((token.start for token in _tokens(text) if token.kind != "comment"), None)
    if start is None:
        raise JsoncError("the file has comments only")
    return start


def _object_at(text: str, start: int) -> _Object:
    """The members of the object that starts here; what is inside their values is skipped."""
    if text[start : start + 1] != "{":
        raise JsoncError(f"{_place(text, start)}: an object `{{...}}` was expected")
    found = _Object(start, -1, [], start + 1)
    depth = 0
    key: _Token | None = None
    value_start: int | None = None
    for token in _tokens(text, start):
        if token.kind == "mark" and token.text in "}]":
            depth -= 1
            if depth == 0:
                found.end = token.start
                return found
            if depth == 1 and key is not None and value_start is not None:
                found.members.append(_Member(json.loads(key.text, strict=False), key.start, value_start, token.end))
                key = value_start = None
        elif depth == 1 and token.kind != "comment":
            key, value_start = _take(found, token, key, value_start)
        if token.kind == "mark" and token.text in "{[":
            depth += 1
        if depth >= 1 and token.start > start:
            found.last = token.end
    raise JsoncError(f"{_place(text, start)}: this `{{` is not closed")


def _take(
    found: _Object, token: _Token, key: _Token | None, value_start: int | None
) -> tuple[_Token | None, int | None]:
    """Take up one token between the braces themselves; return the member that is being read."""
    if token.text == "," and token.kind == "mark":
        if found.members:
            found.members[-1].comma = token.start
        return None, None
    if token.text == ":" and token.kind == "mark":
        return key, value_start
    if key is None:
        return token, None
    if token.kind == "mark":  # `{` or `[`: the value ends with its counterpart
        return key, token.start
    found.members.append(_Member(json.loads(key.text, strict=False), key.start, token.start, token.end))
    return None, None


def _append(text: str, body: _Object, key: str, value: Any, newline: str) -> str:
    """Add a member behind the last one, and behind the comments that follow that."""
    unit = _unit(text)
    if not body.members:
        outer = _indent_of(text, text.rfind("\n", 0, body.start) + 1, line=True) or ""
        indent = outer + unit
        member = f"{json.dumps(key, ensure_ascii=False)}: {_rendered(value, indent, unit, newline)}"
        tail = text[body.end :] if "\n" in text[body.last : body.end] else f"{newline}{outer}{text[body.end :]}"
        rest = text[body.last : body.end] if "\n" in text[body.last : body.end] else ""
        return f"{text[: body.last]}{newline}{indent}{member}{rest}{tail}"
    last = body.members[-1]
    own = _indent_of(text, last.start)
    member = f"{json.dumps(key, ensure_ascii=False)}: {_rendered(value, own, unit, newline)}"
    own_line = own is not None or "\n" in text[last.value_end : body.end]  # behind a `//` comment, it must be
    gap = newline + (own or "") if own_line else " "
    if last.comma is None:
        text = text[: last.value_end] + "," + text[last.value_end :]
        at = body.last + 1
    else:
        at = body.last
    return text[:at] + gap + member + text[at:]


def _rendered(value: Any, indent: str | None, unit: str, newline: str) -> str:
    """`indent` is that of the key; None: the key shares its line with others, and so does the value."""
    if indent is None:
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", newline + indent)


def _indent_of(text: str, position: int, *, line: bool = False) -> str | None:
    """The blanks before `position` on its line; None: something else is there. `line`: those that start the line."""
    if line:
        found = re.compile(r"[ \t]*").match(text, position)
        return found[0] if found else ""
    before = text[text.rfind("\n", 0, position) + 1 : position]
    return None if before.strip() or "\n" not in text else before


def _unit(text: str) -> str:
    """One step of indentation as the file has it."""
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found[1] if found else "  "


def _explain(text: str) -> Any:
    """Raise the error of a text that is not JSON, with the line as the person sees it."""
    depth = 0
    for token in _tokens(text):
        depth += (token.text in ("{", "[")) - (token.text in ("}", "]")) if token.kind == "mark" else 0
        if depth > MAX_DEPTH:
            raise JsoncError(f"{_place(text, token.start)}: nested deeper than {MAX_DEPTH} levels")
    blanked = _TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]) if m.lastgroup == "comment" else m[0], text)
    try:
        json.loads(re.sub(r",(?=\s*[}\]])", " ", blanked), strict=False)
    except json.JSONDecodeError as error:
        raise JsoncError(f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError):
        pass
    raise JsoncError("it is not JSON")


def _place(text: str, position: int) -> str:
    return f"line {text.count(chr(10), 0, position) + 1}"
