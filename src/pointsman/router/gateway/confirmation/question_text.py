"""The question that a person is asked before a call: what runs, with which arguments, and what it may do.

Its size is bounded whatever the arguments are. Long values are shortened one by one, so that none can hide another.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import nsmallest
from typing import Any, Final, NamedTuple

import msgspec

from pointsman.catalog.confirmation import Rule
from pointsman.catalog.definitions import KnownTool
from pointsman.config.secrets import MASK, mask_secrets
from pointsman.core import wire
from pointsman.core.escape import escaped, escaped_json
from pointsman.core.model import Json
from pointsman.router.audit.redaction import free_tail, free_text, is_secret_name

MAX_CHARS: Final = 6_000  # of the arguments as shown
_MAX_NAME: Final = 200
_MIN_TEXT: Final = 24
_MARK: Final = 28  # characters for how long a text is
_MAX_LISTED_NAME: Final = 40  # characters of the name of a member that is not shown
_MIN_CONTAINER: Final = 24
_PER_ITEM: Final = 8
_CLAIMS: Final = {
    "read": "only reads",
    "write": "writes, but destroys nothing",
    "destructive": "may change or destroy something",
}


_SHORTENED: Final = "(shortened: the arguments have more than is shown here)"


class _Bounds(NamedTuple):
    chars: int  # as shown
    budget: int  # of these, without indentation
    items: int  # of one object or array
    depth: int


_ASKED: Final = _Bounds(MAX_CHARS, 3_000, 40, 8)
_WHOLE: Final = _Bounds(131_072, 65_536, 2_000, 32)


def question(rule: Rule, tool: KnownTool, arguments: Json, life: str | None) -> Json:
    """The parameters of `elicitation/create`. `life`: what `session` means for this client; None: not offered."""
    answers = ["once", "refuse"] if life is None else ["once", "session", "refuse"]
    means = "`once` runs this call" if life is None else f"`once` runs this call, `session` also {life}"
    message = (
        f"Run {name(tool.document.tool_key)}?\n"
        f"Server: {name(tool.document.server_name)} (`{tool.server_id}`)\n"
        f"Effect: {effect(rule, tool)}\n"
        f"Arguments: {shown_arguments(arguments, tool)}\n"
        f"Answers: {means}; `refuse` runs nothing."
    )
    answer = {"type": "string", "title": "Run it?", "description": "Nothing runs without a yes.", "enum": answers}
    schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    return {"mode": "form", "message": message, "requestedSchema": schema}


def effect(rule: Rule, tool: KnownTool) -> str:
    """What the tool may do, and who says so."""
    claims = _CLAIMS[tool.claimed] if "annotations" in tool.tool else ""
    if rule.server.trusts_annotations:
        return f"{claims}, as its annotations say" if claims else f"{_CLAIMS['destructive']}: it has no annotations"
    if not claims:
        return f"counts as destructive: it {_CLAIMS['destructive']}, as far as is known"
    return f"counts as destructive; its annotations say that it {claims}, which is not believed (`trust_annotations`)"


def name(text: str) -> str:
    shown = text if len(text) <= _MAX_NAME else f"{text[:_MAX_NAME]}…"
    return f"`{escaped(shown)}`"


def shown_arguments(arguments: Any, tool: KnownTool | None = None, *, masked: bool = False) -> str:
    """The arguments as JSON in which nothing is invisible, at most MAX_CHARS of it and a note.

    What `tool` declares is shown before what it does not. `masked`: without secrets, and else the same.
    """
    text, cut = _shown(arguments, tool, masked, _ASKED)
    return f"{text}\n{_SHORTENED}" if cut else text


def is_shortened(shown: str) -> bool:
    return shown.endswith(_SHORTENED)


def whole_arguments(arguments: Any, tool: KnownTool | None = None) -> str | None:
    """The arguments without secrets up to 64 KiB, for the owner; None: the question has them all."""
    _, cut = _shown(arguments, tool, True, _ASKED)
    if not cut:
        return None
    text, cut = _shown(arguments, tool, True, _WHOLE)
    return f"{text}\n(shortened: they have {len(wire.encode(arguments)):,} bytes)" if cut else text


def _shown(arguments: Any, tool: KnownTool | None, masked: bool, bounds: _Bounds) -> tuple[str, bool]:
    """The text, and whether it lacks something."""
    shortening = _Shortening(_declared(tool), masked, bounds)
    shown, _ = shortening.shorten(arguments, bounds.budget, 0)
    text = escaped_json(msgspec.json.format(wire.encode(shown), indent=2).decode())
    if len(text) > bounds.chars:
        return text[: bounds.chars] + "…", True
    return text, shortening.cut


def _declared(tool: KnownTool | None) -> Collection[str]:
    schema = tool.tool.get("inputSchema") if tool is not None else None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else ()


class _Shortening:
    """Walks arguments of any size. Each member gets an equal part of the characters that are left for its object, the
    short ones first, so that long ones have what these leave.

    Methods return what is shown of a value, and how many characters that takes.
    """

    def __init__(self, declared: Collection[str], masked: bool, bounds: _Bounds) -> None:
        self.cut = False
        self._bounds = bounds
        self._declared = declared  # names of arguments
        self._masked = masked

    def shorten(self, value: Any, chars: int, depth: int) -> tuple[Any, int]:
        if isinstance(value, str):
            return self._text(value, chars)
        if isinstance(value, dict):
            return self._object(value, chars, depth)
        if isinstance(value, list):
            return self._array(value, chars, depth)
        if isinstance(value, int) and value.bit_length() > 256:
            return self._omitted(value.bit_length(), "bits")
        return value, 8

    def _text(self, text: str, chars: int) -> tuple[str, int]:
        """The head and the tail of a long text: what matters may be at either end."""
        most = max(chars, _MIN_TEXT)
        if len(text) <= most and _width(text) <= most:
            shown = mask_secrets(text) if self._masked else text
            return shown, _width(shown)
        self.cut = True
        head, tail = self._ends(text, max(most - _MARK, _MIN_TEXT) // 2)
        shown = f"{head}… ({len(text):,} characters) …{tail}"
        return shown, _width(shown)

    def _ends(self, text: str, most: int) -> tuple[str, str]:
        """As much of both ends as takes `most` characters of JSON each."""
        head, tail = text[:most], text[-most:]
        if self._masked:
            head, tail = free_text(text, most + 1)[:most], free_tail(text, most)
        of_head = _longest(most, len(head), lambda count: head[:count])
        of_tail = _longest(most, len(tail), lambda count: tail[len(tail) - count :])
        return head[:of_head], tail[len(tail) - of_tail :]

    def _object(self, value: dict[str, Any], chars: int, depth: int) -> tuple[Any, int]:
        if value and (depth >= self._bounds.depth or chars < _MIN_CONTAINER):
            return self._omitted(len(value), "members")
        if len(value) <= self._bounds.items:
            return self._members(value, chars, depth)
        chosen = set(nsmallest(self._bounds.items, value, key=lambda name: self._rank(name, value[name], depth)))
        names, of_names = self._more_members([name for name in value if name not in chosen], chars // 4)
        shown, used = self._members({name: value[name] for name in value if name in chosen}, chars - of_names, depth)
        return {**shown, "…": names}, used + of_names

    def _rank(self, name: str, item: Any, depth: int) -> tuple[bool, int]:
        """Arguments that the tool declares first, then short ones: what fills the list cannot push these out."""
        undeclared = depth > 0 or name not in self._declared
        size = len(item) if isinstance(item, (str, dict, list)) else 0
        return undeclared, len(name) + size

    def _members(self, value: dict[str, Any], chars: int, depth: int) -> tuple[dict[str, Any], int]:
        names: dict[str, Any] = {}
        left = chars
        for at, key in enumerate(value):
            name, of_name = self._text(key, left // (2 * (len(value) - at)))
            names[f"{name} (member {at + 1})" if name in names else name] = key
            left -= of_name + _PER_ITEM
        items, used = self._share_out([self._open(key, item) for key, item in value.items()], left, depth)
        return dict(zip(names, items, strict=True)), chars - left + used

    def _open(self, key: str, item: Any) -> Any:
        return MASK if self._masked and item is not None and is_secret_name(key) else item

    def _share_out(self, items: Sequence[Any], chars: int, depth: int) -> tuple[list[Any], int]:
        shown: list[Any] = [None] * len(items)
        left = chars
        for done, at in enumerate(sorted(range(len(items)), key=lambda at: _size(items[at]))):
            shown[at], used = self.shorten(items[at], left // (len(items) - done), depth + 1)
            left -= used
        return shown, chars - left

    def _more_members(self, names: list[str], chars: int) -> tuple[str, int]:
        """How many members are not shown, and the names of some, the shortest first."""
        text, used = self._omitted(len(names), "more members")
        listed: list[str] = []
        for name in nsmallest(chars, names, key=len):
            one = mask_secrets(name[:_MAX_LISTED_NAME]) if self._masked else name[:_MAX_LISTED_NAME]
            used += _width(one)
            if used > chars:
                break
            listed.append(one)
        text = _joined(text, listed, len(names))
        return text, _width(text)

    def _array(self, value: list[Any], chars: int, depth: int) -> tuple[Any, int]:
        if value and (depth >= self._bounds.depth or chars < _MIN_CONTAINER):
            return self._omitted(len(value), "items")
        most = self._bounds.items
        first = value[:most]
        shown, used = self._share_out(first, chars - len(first) * _PER_ITEM, depth)
        if len(value) > most:
            shown.append(self._omitted(len(value) - most, "more items")[0])
        return shown, used + len(first) * _PER_ITEM

    def _omitted(self, count: int, what: str) -> tuple[str, int]:
        self.cut = True
        text = f"… ({count:,} {what})"
        return text, len(text)


def _joined(text: str, names: Iterable[str], of: int) -> str:
    shown = list(names)
    if not shown:
        return text
    return f"{text}: {', '.join(shown)}{', …' if len(shown) < of else ''}"


def _width(text: str) -> int:
    """How many characters of JSON a text takes in which nothing is invisible."""
    return len(escaped_json(wire.encode(text).decode()))


def _longest(most: int, chars: int, cut: Callable[[int], str]) -> int:
    """How many of `chars` characters take at most `most` of JSON, without the quotes."""
    return bisect_right(range(1, chars + 1), most, key=lambda count: _width(cut(count)) - 2)


def _size(value: Any) -> int:
    """By which the short ones come first: objects and arrays last."""
    if isinstance(value, (dict, list)):
        return sys.maxsize
    return len(value) if isinstance(value, str) else 8
