"""Which lists of a server are still valid: each kind has a generation, which grows whenever a cached list ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

Kind = Literal["tools", "resources", "prompts"]

KINDS: Final[tuple[Kind, ...]] = ("tools", "resources", "prompts")
CHANGED: Final[dict[str, Kind]] = {f"notifications/{kind}/list_changed": kind for kind in KINDS}
LISTS: Final[dict[str, tuple[Kind, str]]] = {  # method -> the capability that it needs, and the field with its items
    "tools/list": ("tools", "tools"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resources", "resourceTemplates"),
    "prompts/list": ("prompts", "prompts"),
    "skills/list": ("resources", "skills"),
}


class ListGenerations:
    """Of one server. `numbers` are those of all servers, so that none is used twice."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._of: dict[Kind, int] = dict.fromkeys(KINDS, next(numbers))
        self._configured = 0  # the lists of earlier ones were made with another configuration

    def of(self, kind: Kind) -> int:
        return self._of[kind]

    def expire(self, kind: Kind) -> None:
        self._of[kind] = next(self._numbers)

    def reconfigured(self) -> None:
        """Lists from before were made with another configuration."""
        self._configured = next(self._numbers)

    def is_current(self, generation: int) -> bool:
        return generation >= self._configured
