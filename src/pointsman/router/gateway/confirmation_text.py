"""The question that a person is asked before a call: what runs, with which arguments, and what it may do.

Its size is bounded whatever the arguments are. Long values are shortened one by one, so that none can hide another.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from pointsman.catalog.confirmation import Rule
from pointsman.catalog.definitions import KnownTool
from pointsman.core import wire
from pointsman.core.escape import escaped, escaped_json
from pointsman.core.model import Json

MAX_CHARS: Final = 6_000  # of the arguments as shown
_BUDGET: Final = 3_000  # of these, without indentation
_MAX_NAME: Final = 200
_MAX_TEXT: Final = 300  # of one value
_MIN_TEXT: Final = 24
_WIDEST: Final = 12  # characters of JSON for one of the text
_MAX_ITEMS: Final = 40  # of one object or array
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
        f"Arguments: {shown_arguments(arguments)}\n"
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


def shown_arguments(arguments: Any) -> str:
    """The arguments as JSON in which nothing is invisible, at most MAX_CHARS of it and a note."""
    shortening = _Shortening()
    shown, _ = shortening.shorten(arguments, _BUDGET, 0)
    text = escaped_json(msgspec.json.format(wire.encode(shown), indent=2).decode())
    if len(text) > MAX_CHARS:
        shortening.cut, text = True, text[:MAX_CHARS] + "…"
    return f"{text}\n(shortened: the arguments have more than is shown here)" if shortening.cut else text


class _Shortening:
    """Walks arguments of any size. Each member gets an equal part of the characters that are left for its object.

    Methods return what is shown of a value, and how many characters that takes.
    """

    def __init__(self) -> None:
        self.cut = False

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
        most = max(min(_MAX_TEXT, chars), _MIN_TEXT)
        shown = text[:most]
        if _width(shown) > most:
            shown = text[: most // _WIDEST]
        if len(shown) == len(text):
            return text, _width(text)
        self.cut = True
        shown = f"{shown}… ({len(text):,} characters)"
        return shown, _width(shown)

    def _object(self, value: dict[str, Any], chars: int, depth: int) -> tuple[Any, int]:
        if value and (depth >= _MAX_DEPTH or chars < _MIN_CONTAINER):
            return self._omitted(len(value), "members")
        shown: dict[str, Any] = {}
        left, most = chars, min(len(value), _MAX_ITEMS)
        for at, (key, item) in enumerate(value.items()):
            if at == most:
                shown["…"], used = self._omitted(len(value) - at, "more members")
                left -= used
                break
            share = left // (most - at)
            name, of_name = self._text(key, share // 2)
            name = f"{name} (member {at + 1})" if name in shown else name
            shown[name], of_item = self.shorten(item, share - of_name, depth + 1)
            left -= of_name + of_item + _PER_ITEM
        return shown, chars - left

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


def _width(text: str) -> int:
    """How many characters of JSON a text takes in which nothing is invisible."""
    return len(escaped_json(wire.encode(text).decode()))
