"""The question that a person is asked before a call: what runs, with which arguments, and what it may do.

Its size is bounded whatever the arguments are. Long values are shortened one by one, so that none can hide another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import nsmallest
from typing import Any, Final

import msgspec

from pointsman.catalog.confirmation import Rule
from pointsman.catalog.definitions import KnownTool
from pointsman.config.secrets import MASK, mask_secrets
from pointsman.core import wire
from pointsman.core.escape import escaped, escaped_json
from pointsman.core.model import Json
from pointsman.router.audit.redaction import free_tail, free_text, is_secret_name

MAX_CHARS: Final = 6_000  # of the arguments as shown
_BUDGET: Final = 3_000  # of these, without indentation
_MAX_NAME: Final = 200
_MAX_TEXT: Final = 300  # of one value
_MIN_TEXT: Final = 24
_WIDEST: Final = 12  # characters of JSON for one of the text
_MAX_ITEMS: Final = 40  # of one object or array
_MAX_LISTED_NAME: Final = 40  # characters of the name of a member that is not shown
_MAX_DEPTH: Final = 8
_MIN_CONTAINER: Final = 24
_PER_ITEM: Final = 8
_CLAIMS: Final = {
    "read": "only reads",
    "write": "writes, but destroys nothing",
    "destructive": "may change or destroy something",
}


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
    shortening = _Shortening(_declared(tool), masked)
    shown, _ = shortening.shorten(arguments, _BUDGET, 0)
    text = escaped_json(msgspec.json.format(wire.encode(shown), indent=2).decode())
    if len(text) > MAX_CHARS:
        shortening.cut, text = True, text[:MAX_CHARS] + "…"
    return f"{text}\n(shortened: the arguments have more than is shown here)" if shortening.cut else text


def _declared(tool: KnownTool | None) -> Collection[str]:
    schema = tool.tool.get("inputSchema") if tool is not None else None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else ()


class _Shortening:
    """Walks arguments of any size. Each member gets an equal part of the characters that are left for its object.

    Methods return what is shown of a value, and how many characters that takes.
    """

    def __init__(self, declared: Collection[str], masked: bool) -> None:
        self.cut = False
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
        most = max(min(_MAX_TEXT, chars), _MIN_TEXT)
        if len(text) <= most and _width(text) <= most:
            shown = mask_secrets(text) if self._masked else text
            return shown, _width(shown)
        self.cut = True
        head, tail = self._ends(text, most)
        if _width(head) + _width(tail) > most:
            head, tail = self._ends(text, most // _WIDEST)
        shown = f"{head}… ({len(text):,} characters) …{tail}"
        return shown, _width(shown)

    def _ends(self, text: str, most: int) -> tuple[str, str]:
        of_tail = most // 2
        of_head = most - of_tail
        if self._masked:
            return free_text(text, of_head + 1)[:of_head], free_tail(text, of_tail)
        return text[:of_head], text[-of_tail:]

    def _object(self, value: dict[str, Any], chars: int, depth: int) -> tuple[Any, int]:
        if value and (depth >= _MAX_DEPTH or chars < _MIN_CONTAINER):
            return self._omitted(len(value), "members")
        if len(value) <= _MAX_ITEMS:
            return self._members(value, chars, depth)
        chosen = set(nsmallest(_MAX_ITEMS, value, key=lambda name: self._rank(name, value[name], depth)))
        names, of_names = self._more_members([name for name in value if name not in chosen], chars // 4)
        shown, used = self._members({name: value[name] for name in value if name in chosen}, chars - of_names, depth)
        return {**shown, "…": names}, used + of_names

    def _rank(self, name: str, item: Any, depth: int) -> tuple[bool, int]:
        """Arguments that the tool declares first, then short ones: what fills the list cannot push these out."""
        undeclared = depth > 0 or name not in self._declared
        size = len(item) if isinstance(item, (str, dict, list)) else 0
        return undeclared, len(name) + size

    def _members(self, value: dict[str, Any], chars: int, depth: int) -> tuple[dict[str, Any], int]:
        shown: dict[str, Any] = {}
        left = chars
        for at, (key, item) in enumerate(value.items()):
            share = left // (len(value) - at)
            name, of_name = self._text(key, share // 2)
            name = f"{name} (member {at + 1})" if name in shown else name
            secret = self._masked and item is not None and is_secret_name(key)
            shown[name], of_item = (MASK, 8) if secret else self.shorten(item, share - of_name, depth + 1)
            left -= of_name + of_item + _PER_ITEM
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
        if value and (depth >= _MAX_DEPTH or chars < _MIN_CONTAINER):
            return self._omitted(len(value), "items")
        shown: list[Any] = []
        left, most = chars, min(len(value), _MAX_ITEMS)
        for at, item in enumerate(value):
            if at == most:
                shown.append(self._omitted(len(value) - at, "more items")[0])
                break
            one, used = self.shorten(item, left // (most - at), depth + 1)
            shown.append(one)
            left -= used + _PER_ITEM
        return shown, chars - left

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
