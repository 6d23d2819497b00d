"""The kinds of lists that a server may offer, and of questions that it may ask."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Family = Literal["tools", "resources", "prompts"]

MAX_NAME_CHARS = 512
MAX_URI_CHARS = 8_192


SKILLS_EXTENSION = "io.modelcontextprotocol/skills"
APPS_EXTENSION = "io.modelcontextprotocol/ui"
APP_TYPE = "text/html;profile=mcp-app"  # of a page; the extension has no other
APPS_CAPABILITY: dict[str, Any] = {APPS_EXTENSION: {"mimeTypes": [APP_TYPE]}}  # in `extensions`

QUESTION_CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""Each question that a server may ask a client, and the capability that a client declares to be asked it."""


class ListKind(Struct, frozen=True):
    """One kind of list: the request for it, and what makes an entry usable."""

    method: str
    family: Family  # whose `list_changed` invalidates it
    field: str  # of the answer, with the entries
    key: str  # the field of an entry with its name
    max_key_chars: int
    words: str  # for people

    def is_usable(self, entry: object) -> bool:
        """Whether an entry can be offered: it has a name and, for a tool, an inputSchema that is an object, if any."""
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
SKILLS = ListKind("skills/list", "resources", "skills", "uri", MAX_URI_CHARS, "skills")
PROMPTS = ListKind("prompts/list", "prompts", "prompts", "name", MAX_NAME_CHARS, "prompts")


def declares(capabilities: dict[str, Any], question: str) -> bool:
    """Whether a client with these capabilities can be asked `question`, a method; False for one that is not known."""
    capability = QUESTION_CAPABILITIES.get(question)
    return capability is not None and isinstance(capabilities.get(capability), dict)
