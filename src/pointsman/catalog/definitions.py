"""Tools as servers define them: built from a list's entries, without invisible text, and watched for changes."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from pointsman.catalog.apps import is_for_apps_only
from pointsman.catalog.effects import Effect, claimed_effect
from pointsman.catalog.field_types import tool_with_right_types, with_right_types
from pointsman.catalog.scan.scan import Flag, scan_hidden
from pointsman.catalog.schema.arguments import ArgumentCheck
from pointsman.config.model import GatewayConfig
from pointsman.core.errors import ASK_OPERATOR, NextStep, ServerUnavailableError
from pointsman.core.model import Json, ToolKey, ToolSource
from pointsman.core.seams import EXAMPLE_REQUESTS
from pointsman.providers.base import ToolDocument
from pointsman.providers.visible import is_visible_name, visible

logger = logging.getLogger(__name__)

MAX_DEPTH = 200  # of a definition; one near the encoder's own limit would fail inside an answer, with all others in it
MAX_REMEMBERED = 50_000  # definitions of all servers together; a server may invent new names without end
MAX_LOGGED_NAMES = 10  # in one line
ASK_TO_APPROVE = "The call was not sent. The operator reviews the change with `pointsman pin diff`."
LOOK_AGAIN = NextStep(
    "Call tool_discovery to see its tools as they are now.",
    ASK_OPERATOR,
    "Call `tools/list` to see its tools as they are now.",
).after("The call was not sent.")

MAX_EXAMPLES = 64  # of a tool
MAX_EXAMPLE_CHARS = 200

_TEXTS = ("title", "description")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")

# Keywords of a schema whose values are compared exactly: the model has to send them back as they are, or they refer
# to another part of the schema.
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
"""Called with a server's id and the names of its known tools whose definition changed."""


class KnownTool(msgspec.Struct, frozen=True, eq=False):
    """One definition of a tool. The object stays the same for as long as the server's definition does."""

    server_id: str
    tool_name: str
    tool: Json  # as the server sent it, without invisible text, fields of a wrong type and example requests
    digest: bytes  # of what the server sent
    document: ToolDocument
    check_arguments: ArgumentCheck
    for_apps_only: bool = False
    claimed: Effect = "destructive"  # `effect_of` says whether it counts
    hidden: tuple[Flag, ...] = ()  # texts of which invisible characters were removed


def build_tools(
    source: ToolSource,
    entries: dict[str, Json],
    before: dict[str, KnownTool],
    *,
    bundled: bool = False,
    not_configured: Container[str] = (),
) -> dict[str, KnownTool]:
    """Build the tools of a list; an unchanged definition keeps its object. Unusable definitions are skipped.

    Example requests count for servers that are `bundled`: with them, another one could draw all requests to itself.
    """
    tools: dict[str, KnownTool] = {}
    for name, entry in entries.items():
        encoded = encode_entry(entry)
        if encoded is None:
            continue
        digest = sha256(encoded).digest()
        old, configured = before.get(name), name not in not_configured
        if old is not None and old.digest == digest and _is_current(old.document, source, configured):
            tools[name] = old
        elif not _is_deep(entry, encoded):
            hidden = scan_hidden(name, entry) if _may_hide(encoded) else ()
            examples = example_requests_of(entry) if bundled else ()
            shown = without_examples(visible_tool(entry, encoded))
            document = _document_of(source, name, shown, examples, configured)
            tools[name] = _build_tool(source, name, shown, document, digest, hidden)
    return tools


def bundled_servers(config: GatewayConfig) -> frozenset[str]:
    """The servers that are part of Pointsman: they check arguments themselves and are trusted with caller ids."""
    return frozenset(server_id for server_id, server in config.servers.items() if server.bundled is not None)


def tools_not_configured(config: GatewayConfig) -> dict[str, frozenset[str]]:
    """By server, the tools that refuse every call because a key that they need is not set."""
    named = ((server_id, server.tools_not_configured) for server_id, server in config.servers.items())
    return {server_id: tools for server_id, tools in named if tools}


def example_requests_of(tool: Json) -> tuple[str, ...]:
    """Requests that a tool is for: of many the first ones, and of a long one the beginning."""
    meta = tool.get("_meta")
    listed = meta.get(EXAMPLE_REQUESTS) if isinstance(meta, dict) else None
    if not isinstance(listed, list):
        return ()
    return tuple([text[:MAX_EXAMPLE_CHARS] for text in listed[:MAX_EXAMPLES] if isinstance(text, str)])


def without_examples(tool: Json) -> Json:
    """A definition without example requests, which are for tool search and not for clients."""
    meta = tool.get("_meta")
    if not isinstance(meta, dict) or EXAMPLE_REQUESTS not in meta:
        return tool
    others = {key: value for key, value in meta.items() if key != EXAMPLE_REQUESTS}
    bare = {key: value for key, value in tool.items() if key != "_meta"}
    return {**bare, "_meta": others} if others else bare


def encode_entry(entry: Json) -> bytes | None:
    """The entry's JSON; None if it cannot be encoded (lone surrogates, too deep)."""
    try:
        return msgspec.json.encode(entry)
    except (ValueError, RecursionError):
        return None


def _is_current(document: ToolDocument, source: ToolSource, configured: bool) -> bool:
    """Whether what the configuration adds to a definition is as it was."""
    return document.server_name == source.name and document.configured == configured


def _document_of(
    source: ToolSource, name: str, tool: Json, examples: tuple[str, ...], configured: bool
) -> ToolDocument:
    return ToolDocument(
        tool_key=str(ToolKey(source.id, name)),
        tool_name=name,
        server_name=source.name,
        description=tool.get("description", ""),
        input_schema=tool.get("inputSchema", {}),
        title=_title_of(tool),
        examples=examples,
        configured=configured,
    )


def _build_tool(
    source: ToolSource, name: str, tool: Json, document: ToolDocument, digest: bytes, hidden: tuple[Flag, ...]
) -> KnownTool:
    check = ArgumentCheck(document.tool_key, tool.get("inputSchema", {}))
    for_apps, effect = is_for_apps_only(tool), claimed_effect(tool)
    return KnownTool(source.id, name, tool, digest, document, check, for_apps, effect, hidden)


def _title_of(tool: Json) -> str:
    """The title, which versions of the protocol before 2025-06-18 have among the annotations."""
    title: str = tool.get("title") or tool.get("annotations", {}).get("title", "")
    return title


def check_unchanged(before: KnownTool, now: KnownTool | None, *, held: bool = False) -> None:
    """Raises ServerUnavailableError unless a tool is as it was before its server restarted, as the call expects.

    `held`: a definition of it waits for approval.
    """
    if now is None and held:
        reason = "its definition of this tool has changed and waits for the operator's approval"
        raise ServerUnavailableError(before.server_id, reason, ASK_TO_APPROVE)
    if now is None:
        raise ServerUnavailableError(before.server_id, "it no longer has this tool", LOOK_AGAIN)
    if now.digest != before.digest:
        reason = "its definition of this tool has changed"
        raise ServerUnavailableError(before.server_id, reason, LOOK_AGAIN)


def _is_deep(entry: Json, encoded: bytes) -> bool:
    """Whether an entry is deeper than MAX_DEPTH; one with few brackets in its JSON cannot be."""
    return encoded.count(b"{") + encoded.count(b"[") > MAX_DEPTH and _is_deeper_than(entry, MAX_DEPTH)


def _is_deeper_than(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        containers = [value for value in level if isinstance(value, (dict, list))]
        level = [part for value in containers for part in (value.values() if isinstance(value, dict) else value)]
        if not level:
            return False
    return True


class DefinitionHistory:
    """The digest of the last definition of every tool seen in this run, including tools that are gone."""

    def __init__(self, changed: ChangedTools) -> None:
        self._changed = changed
        self._digests: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    def record(self, server_id: str, digests: Mapping[str, bytes]) -> None:
        """Compare a server's new definitions with the last ones, and report those that changed."""
        changed: list[str] = []
        for name, digest in digests.items():
            key = (server_id, name)
            before = self._digests.get(key)
            if before == digest:
                continue
            self._digests[key] = digest
            if before is not None:
                changed.append(name)
        while len(self._digests) > MAX_REMEMBERED:
            self._digests.popitem(last=False)
        if changed:
            count = "1 known tool" if len(changed) == 1 else f"{len(changed)} known tools"
            logger.warning("server %s changed the definition of %s: %s", server_id, count, quote_names(changed))
            self._changed(server_id, changed)


def quote_names(names: Sequence[str]) -> str:
    """Names for the log, quoted so that they can neither hide text nor forge a line."""
    quoted = ", ".join(ascii(name[:100]) for name in names[:MAX_LOGGED_NAMES])
    return quoted if len(names) <= MAX_LOGGED_NAMES else f"{quoted} and {len(names) - MAX_LOGGED_NAMES} more"


def visible_tool(tool: Json, encoded: bytes) -> Json:
    """The tool without invisible text and fields of a wrong type, with only the annotations that the protocol defines.

    `encoded` is its JSON.
    """
    tool = tool_with_right_types(tool)
    if "annotations" in tool:
        annotations = _visible_annotations(tool["annotations"])
        tool = {key: value for key, value in tool.items() if key != "annotations"}
        if annotations:
            tool["annotations"] = annotations
    if not _may_hide(encoded):
        return tool
    shown = _with_visible_texts(tool, _TEXTS)
    for key in ("inputSchema", "outputSchema"):
        if key in shown:
            shown[key] = _visible_schema(shown[key])
    return shown


def visible_entry(entry: Json, key: str, encoded: bytes) -> Json:
    """A prompt, resource or template without invisible text and fields of a wrong type.

    `key` is the field that names it.
    """
    entry = with_right_types(entry, key)
    if not _may_hide(encoded):
        return entry
    shown = _with_visible_texts(entry, _TEXTS if key == "name" else ("name", "mimeType", *_TEXTS))
    arguments = shown.get("arguments")
    if isinstance(arguments, list):
        shown["arguments"] = [
            _with_visible_texts(argument, _TEXTS) if isinstance(argument, dict) else argument for argument in arguments
        ]
    return shown


def _may_hide(encoded: bytes) -> bool:
    """Whether an entry may have invisible text, by its JSON, in which control characters are escaped."""
    if encoded.isascii() and b"\\" not in encoded and b"\x7f" not in encoded:
        return False
    return _MAY_HIDE.search(encoded) is not None


def _visible_annotations(annotations: Any) -> Json:
    """The five that the protocol defines, if they have the right type."""
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
    """Clean every text but those that must be sent back verbatim; drop keywords with invisible names."""
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
            shown[key] = {name: _visible_named_part(part) for name, part in value.items()}
        elif is_visible_name(key):
            shown[key] = _visible_schema(value)
    return shown


def _visible_named_part(part: Any) -> Any:
    """A list here is a list of names (`dependencies`)."""
    return part if isinstance(part, list) else _visible_schema(part)
