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
_MAX_NAME: Final = 200
_MAX_TEXT: Final = 300  # of one value
_MAX_ITEMS: Final = 40  # of one object or array
_MAX_DEPTH: Final = 8
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
    budget = _Budget(MAX_CHARS)
    text = msgspec.json.format(wire.encode(budget.shorten(arguments, 0)), indent=2).decode()
    text = escaped_json(text)
    if len(text) > MAX_CHARS:
        budget.cut, text = True, text[:MAX_CHARS] + "…"
    return f"{text}\n(shortened: the arguments have more than is shown here)" if budget.cut else text


class _Budget:
    """Walks arguments of any size, and builds at most so many characters of them."""

    def __init__(self, chars: int) -> None:
        self._chars = chars
        self.cut = False

    def shorten(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, list):
            return self._array(value, depth)
        if isinstance(value, int) and value.bit_length() > 256:
            self.cut = True
            return "…"
        self._chars -= 8
        return value

    def _text(self, text: str) -> str:
        most = max(min(_MAX_TEXT, self._chars), 1)
        self._chars -= min(len(text), most) + 4
        if len(text) <= most:
            return text
        self.cut = True
        return f"{text[:most]}… ({len(text):,} characters)"

    def _object(self, value: dict[str, Any], depth: int) -> Any:
        if depth >= _MAX_DEPTH:
            return self._omitted(len(value), "members")
        shown: dict[str, Any] = {}
        for at, (key, item) in enumerate(value.items()):
            if at >= _MAX_ITEMS or self._chars <= 0:
                shown["…"] = self._omitted(len(value) - at, "more members")
                break
            shown[self._text(key)] = self.shorten(item, depth + 1)
        return shown

    def _array(self, value: list[Any], depth: int) -> Any:
        if depth >= _MAX_DEPTH:
            return self._omitted(len(value), "items")
        shown: list[Any] = []
        for at, item in enumerate(value):
            if at >= _MAX_ITEMS or self._chars <= 0:
                shown.append(self._omitted(len(value) - at, "more items"))
                break
            shown.append(self.shorten(item, depth + 1))
        return shown

    def _omitted(self, count: int, what: str) -> str:
        self.cut = True
        return f"… ({count:,} {what})"
