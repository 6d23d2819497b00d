"""The kinds of lists that a server may have: what each is asked with, and what makes an entry of it usable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Family = Literal["tools", "resources", "prompts"]

MAX_NAME_CHARS = 512
MAX_URI_CHARS = 8_192


@dataclass(frozen=True, slots=True)
class ListKind:
    method: str
    family: Family  # whose `list_changed` concerns it
    field: str  # of the answer
    key: str  # the field of an entry that names it
    max_key_chars: int
    words: str  # for people

    def is_usable(self, entry: object) -> bool:
        """Whether a list's entry can be offered: it has a name and, if it has an inputSchema, that is an object."""
        if not isinstance(entry, dict):
            return False
        key = entry.get(self.key)
        if not isinstance(key, str) or not 0 < len(key) <= self.max_key_chars:
            return False
        return self.family != "tools" or isinstance(entry.get("inputSchema", {}), dict)


TOOLS = ListKind("tools/list", "tools", "tools", "name", MAX_NAME_CHARS, "tools")
RESOURCES = ListKind("resources/list", "resources", "resources", "uri", MAX_URI_CHARS, "resources")
TEMPLATES = ListKind(
    "resources/templates/list", "resources", "resourceTemplates", "uriTemplate", MAX_URI_CHARS, "resource templates"
)
PROMPTS = ListKind("prompts/list", "prompts", "prompts", "name", MAX_NAME_CHARS, "prompts")
