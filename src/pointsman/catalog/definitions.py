"""What is shown of the definitions that servers send, and which of a server's tools changed theirs."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pointsman.core.model import Json
from pointsman.providers.visible import is_visible_name, visible

logger = logging.getLogger(__name__)

MAX_REMEMBERED = 50_000  # definitions of all servers together; a server may invent new names without end
MAX_NAMED = 10  # names in one line of the log

_TEXTS = ("title", "description")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")

# Keywords of a schema whose values are compared to the letter: what a model reads there it has to send back, or it
# leads to another part of the schema.
_VERBATIM = frozenset(
    {"enum", "const", "default", "example", "examples", "pattern", "required", "dependentRequired"}
    | {"$ref", "$dynamicRef", "$recursiveRef"}
)
# Keywords whose objects have names for keys: of parameters, of definitions.
_NAMES_INSIDE = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)

_MAY_HIDE = re.compile(rb"[^\x20-\x7e]|\\[ubfr]")  # in JSON; other escapes (`\n`, `\"`) stand for visible text

ChangedTools = Callable[[str, Sequence[str]], None]
"""Told the id of a server and which of its known tools have another definition now."""


def shown_tool(tool: Json, encoded: bytes) -> Json:
    """A tool without invisible text, and of its annotations those that the protocol knows. `encoded` is its JSON."""
    if "annotations" in tool:
        annotations = _annotations(tool["annotations"])
        tool = {key: value for key, value in tool.items() if key != "annotations"}
        if annotations:
            tool["annotations"] = annotations
    if not _MAY_HIDE.search(encoded):
        return tool
    shown = _with_visible_texts(tool, _TEXTS)
    for key in ("inputSchema", "outputSchema"):
        if key in shown:
            shown[key] = _visible_schema(shown[key])
    return shown


def shown_entry(entry: Json, key: str, encoded: bytes) -> Json:
    """A prompt, resource or template without invisible text; `key` is the field that names it."""
    if not _MAY_HIDE.search(encoded):
        return entry
    shown = _with_visible_texts(entry, _TEXTS if key == "name" else ("name", "mimeType", *_TEXTS))
    arguments = shown.get("arguments")
    if isinstance(arguments, list):
        shown["arguments"] = [
            _with_visible_texts(argument, _TEXTS) if isinstance(argument, dict) else argument for argument in arguments
        ]
    return shown


class Definitions:
    """The last definition of every tool that was seen in this run, by its digest: also of one that went meanwhile."""

    def __init__(self, changed: ChangedTools) -> None:
        self._changed = changed
        self._last: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    def note(self, server_id: str, digests: Mapping[str, bytes]) -> None:
        """Compare a server's new list with what was seen of it before, and report what changed."""
        changed: list[str] = []
        for name, digest in digests.items():
            key = (server_id, name)
            before = self._last.get(key)
            if before == digest:
                continue
            self._last[key] = digest
            if before is not None:
                changed.append(name)
        while len(self._last) > MAX_REMEMBERED:
            self._last.popitem(last=False)
        if changed:
            count = "1 known tool" if len(changed) == 1 else f"{len(changed)} known tools"
            logger.warning("server %s changed the definition of %s: %s", server_id, count, listed_names(changed))
            self._changed(server_id, changed)


def listed_names(names: Sequence[str]) -> str:
    """For the log: quoted, so that a name can neither hide anything nor forge a line."""
    named = ", ".join(ascii(name[:100]) for name in names[:MAX_NAMED])
    return named if len(names) <= MAX_NAMED else f"{named} and {len(names) - MAX_NAMED} more"


def _annotations(annotations: Any) -> Json:
    """The five that the protocol knows, where they have the right type."""
    if not isinstance(annotations, dict):
        return {}
    shown: Json = {}
    title = annotations.get("title")
    if isinstance(title, str) and (clean := visible(title)):
        shown["title"] = clean
    return shown | {hint: annotations[hint] for hint in _HINTS if isinstance(annotations.get(hint), bool)}


def _with_visible_texts(entry: Json, keys: Sequence[str]) -> Json:
    return {key: visible(value) if key in keys and isinstance(value, str) else value for key, value in entry.items()}


def _visible_schema(schema: Any) -> Any:
    """Every text but what must be sent back as it is; keywords with invisible names are left out."""
    if isinstance(schema, str):
        return visible(schema)
    if isinstance(schema, list):
        return [_visible_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    shown: Json = {}
    for key, value in schema.items():
        if key in _VERBATIM:
            shown[key] = value
        elif key in _NAMES_INSIDE and isinstance(value, dict):
            shown[key] = {name: _named_part(part) for name, part in value.items()}
        elif is_visible_name(key):
            shown[key] = _visible_schema(value)
    return shown


def _named_part(part: Any) -> Any:
    """A list here is one of names (`dependencies`)."""
    return part if isinstance(part, list) else _visible_schema(part)
