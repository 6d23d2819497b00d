"""The shape of what a modern client answers to a question: checked while it can still be told what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pointsman.core.model import Json

_ACTIONS: Final = ("accept", "decline", "cancel")
_ROLES: Final = ("user", "assistant")


def wrong_with(method: str, response: Json) -> str | None:
    """What keeps `response` from being an answer to a question of that method, in words; None: nothing does."""
    return _CHECKS[method](response)


def _elicitation(response: Json) -> str | None:
    if response.get("action") not in _ACTIONS:
        return "`action` must be one of " + ", ".join(_ACTIONS)
    if type(response.get("content", {})) not in (dict, type(None)):
        return "`content` must be an object"
    return None


def _sampling(response: Json) -> str | None:
    if response.get("role") not in _ROLES:
        return "`role` must be one of " + ", ".join(_ROLES)
    if type(response.get("model")) is not str:
        return "`model` must be a string"
    content = response.get("content")
    blocks = content if type(content) is list else [content]
    if not all(type(block) is dict and type(block.get("type")) is str for block in blocks):
        return "`content` must be a content block with a `type`, or a list of such"
    return None


def _roots(response: Json) -> str | None:
    roots = response.get("roots")
    if type(roots) is not list or not all(type(root) is dict and type(root.get("uri")) is str for root in roots):
        return "`roots` must be a list of objects with a `uri`"
    return None


_CHECKS: Final[dict[str, Callable[[Json], str | None]]] = {
    "elicitation/create": _elicitation,
    "sampling/createMessage": _sampling,
    "roots/list": _roots,
}
