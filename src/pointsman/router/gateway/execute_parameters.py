"""Reads the parameters of `tool_execute`: exactly, and, if that fails, in the other forms in which models write them.

A call is carried out in another form only if it has exactly one meaning. The forms, as the audit names them:

    json_text        `arguments` is a string with JSON
    no_arguments     `arguments` is missing
    beside           the tool's arguments are beside `toolKey`
    envelope         `toolKey` and `arguments` are repeated inside `arguments`
    qualified_name   `server__tool`, `server.tool`, `mcp__pointsman__server:tool`
    bare_name        the name of a tool alone
    trimmed          the key has spaces, quotes or backticks around it
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pointsman.catalog.definitions import KnownTool
from pointsman.catalog.service import ToolCatalogService
from pointsman.catalog.tool_keys import MAX_KEY_CHARS
from pointsman.core import wire
from pointsman.core.errors import ASK_OPERATOR, InvalidArgumentsError, NextStep, UnknownToolError
from pointsman.core.model import Caller, Json, ToolKey
from pointsman.providers.schema import parameters_of
from pointsman.router.gateway.large_results.large_results import RESULT_KEY
from pointsman.router.gateway.large_results.store import is_handle
from pointsman.router.gateway.meta_tools import DISCOVERY, EXECUTE, check_names

REPEATED = (
    "`arguments` repeats the whole call, and the arguments inside it do not fit the tool's inputSchema. Give only the "
    "tool's own arguments, without `toolKey` or `arguments` around them."
)
MAX_LEVELS = 5  # of calls inside one another

_NAMES = ("toolKey", "arguments")
_AROUND = " \t\r\n`'\""  # what models put around a key
_SEPARATORS = (":", "__", ".", "/", "_")
_RESULT = re.compile(r"(?:mcp__.+__|mcp__?)?pointsman(?:__|[:._/])result")
_BARE_RESULT = "result"
_OWN_TOOL = re.compile(rf"(?:mcp__.+__|(?:mcp__?)?pointsman(?:__|[:._/]))?({DISCOVERY}|{EXECUTE})")
_OWN_PREFIX = re.compile(r"\A(?:mcp__?)?pointsman(?:__|[:._/])")  # which clients put before the names of our tools
_SHOWN_KEY_CHARS = 200
_OWN_TOOLS = {
    DISCOVERY: NextStep(
        f"{DISCOVERY} is called by itself, with `query`; {EXECUTE} runs the tools that it finds.", ASK_OPERATOR
    ),
    EXECUTE: NextStep(
        f"{EXECUTE} runs other tools: give the toolKey of one that {DISCOVERY} found.",
        f"{EXECUTE} runs other tools. {ASK_OPERATOR}",
    ),
}
_WHERE_KEYS_ARE = NextStep(f"{DISCOVERY} returns the keys of the tools you can use.", ASK_OPERATOR)


class Reading(Struct, frozen=True):
    """A call as it was read."""

    tool_key: str
    arguments: Json
    forms: tuple[str, ...] = ()  # empty: it was written exactly

    @property
    def read_as(self) -> str | None:
        return "+".join(self.forms) or None

    def read_also(self, *forms: str) -> Reading:
        return replace(self, forms=tuple(dict.fromkeys((*self.forms, *forms))))


def read_exactly(given: Json) -> Reading | None:
    """A call of the documented form; None: any other."""
    tool_key, arguments = given.get("toolKey"), given.get("arguments")
    if len(given) == 2 and type(tool_key) is str and type(arguments) is dict and tool_key.strip(_AROUND) == tool_key:
        return Reading(tool_key, arguments)
    return None


async def read_leniently(catalog: ToolCatalogService, caller: Caller, given: Json) -> Reading:
    """Raises InvalidArgumentsError, UnknownToolError."""
    reading = _trimmed(catalog, caller, read_parameters(given))
    text = reading.tool_key
    if text == RESULT_KEY or catalog.names_usable_server(caller, text):
        return reading
    if (form := _names_result(text, reading.arguments)) is not None:
        return replace(reading.read_also(form), tool_key=RESULT_KEY)
    if len(text) <= MAX_KEY_CHARS and (own := _OWN_TOOL.fullmatch(text)):
        raise UnknownToolError(text, next_step=_OWN_TOOLS[own[1]])
    found = await catalog.read_key(caller, text)
    if found is None:
        return reading
    key, form = found
    return replace(reading.read_also(form), tool_key=str(key))


def read_parameters(given: Json) -> Reading:
    """Read tool key and arguments, wherever they are. Raises InvalidArgumentsError."""
    forms: tuple[str, ...] = ()
    for _ in range(MAX_LEVELS):
        inner = _only_call(given.get("toolKey"), given.get("arguments"))
        if inner is None:
            break
        given, forms = inner, ("envelope",)
    return _read_call(given).read_also(*forms)


def is_envelope(arguments: Json) -> bool:
    """Whether arguments have the form of a call."""
    if "toolKey" in arguments:
        return isinstance(arguments["toolKey"], str)
    return "arguments" in arguments and len(arguments) == 1


def declares_envelope(tool: KnownTool) -> bool:
    """Whether arguments in the form of a call can be the tool's own."""
    schema = tool.tool.get("inputSchema")
    return not parameters_of(schema, schema).properties.keys().isdisjoint(_NAMES)


def read_envelope(reading: Reading, tool: KnownTool) -> Reading | None:
    """The call inside arguments that have the form of one; None: it cannot be read, or it may be for another tool.

    Raises:
        InvalidArgumentsError: it is for another tool. The two have no single meaning.
    """
    other = reading.arguments.get("toolKey", reading.tool_key)
    if _is_named(other, reading, tool):
        return _read_inside(reading)
    if declares_envelope(tool):
        return None
    raise InvalidArgumentsError(
        f"The call is for `{reading.tool_key}`, and its `arguments` name another tool, `{_shown(other)}`; nothing was "
        f"sent. Call {EXECUTE} once for each tool, with only that tool's own arguments in `arguments`."
    )


def read_result_call(reading: Reading) -> Reading:
    """A call of `pointsman:result`, unwrapped if its arguments hold the call once more."""
    for _ in range(MAX_LEVELS):
        inside = reading.arguments
        named = inside.get("toolKey", RESULT_KEY)
        if not is_envelope(inside) or not (named == _BARE_RESULT or _is_result(named)):
            break
        inner = _read_inside(reading)
        if inner is None:
            break
        reading = inner
    return reading


def result_handle(given: Json) -> str | None:
    """The handle in a call of `pointsman:result`, in any form; None: the call is for another tool, or has none."""
    try:
        reading = read_parameters(given)
    except InvalidArgumentsError:
        return None
    text = reading.tool_key.strip(_AROUND)
    if text != RESULT_KEY and _names_result(text, reading.arguments) is None:
        return None
    handle = read_result_call(reading).arguments.get("handle")
    return handle.strip() if isinstance(handle, str) else None


def _read_inside(reading: Reading) -> Reading | None:
    inside = reading.arguments
    try:
        inner = _read_call({**inside, "toolKey": reading.tool_key})
    except InvalidArgumentsError:
        return None
    return replace(inner, forms=reading.forms).read_also(*inner.forms, "envelope")


def check_beside(reading: Reading, tool: KnownTool) -> None:
    """Parameters beside `toolKey` are the tool's only if it declares them. Raises InvalidArgumentsError."""
    schema = tool.tool.get("inputSchema")
    declared = schema.get("properties") if isinstance(schema, dict) else None
    undeclared = [name for name in reading.arguments if not isinstance(declared, dict) or name not in declared]
    check_names(dict.fromkeys(undeclared), EXECUTE, _NAMES)


def _only_call(tool_key: object, arguments: Any) -> Json | None:
    """The call inside `arguments`, if nothing outside of it names a tool."""
    names_no_tool = tool_key is None or (isinstance(tool_key, str) and _is_execute(tool_key))
    return arguments if names_no_tool and isinstance(arguments, dict) and "toolKey" in arguments else None


def _is_execute(text: str) -> bool:
    own = _OWN_TOOL.fullmatch(text) if len(text) <= MAX_KEY_CHARS else None
    return own is not None and own[1] == EXECUTE


def _read_call(given: Json) -> Reading:
    tool_key, arguments = given.get("toolKey"), given.get("arguments")
    if not isinstance(tool_key, str) or not tool_key:
        check_names(given, EXECUTE, _NAMES)
        raise InvalidArgumentsError("`toolKey` must be a string such as `server:tool`.", _WHERE_KEYS_ARE)
    beside = {name: value for name, value in given.items() if name not in _NAMES}
    if beside and not arguments:
        return Reading(tool_key, beside, ("beside",))
    check_names(given, EXECUTE, _NAMES)
    if arguments is None:
        return Reading(tool_key, {}, ("no_arguments",))
    if isinstance(arguments, str):
        return Reading(tool_key, _object(_decoded(arguments)), ("json_text",))
    return Reading(tool_key, _object(arguments))


def _trimmed(catalog: ToolCatalogService, caller: Caller, reading: Reading) -> Reading:
    """The key without what is around it, unless it is a key as it is."""
    text = reading.tool_key
    trimmed, key = text.strip(_AROUND), ToolKey.parse(text)
    if trimmed == text or not trimmed:
        return reading
    if key is not None and catalog.names_usable_server(caller, text) and catalog.was_listed(key):
        return reading
    return replace(reading.read_also("trimmed"), tool_key=trimmed)


def _names_result(text: str, arguments: Json) -> str | None:
    """The form in which a text names `pointsman:result`; its bare name does so only with a handle."""
    if _is_result(text):
        return "qualified_name"
    handle = arguments.get("handle")
    return "bare_name" if text == _BARE_RESULT and isinstance(handle, str) and is_handle(handle.strip()) else None


def _is_result(text: str) -> bool:
    return len(text) <= MAX_KEY_CHARS and _RESULT.fullmatch(text) is not None


def _is_named(text: str, reading: Reading, tool: KnownTool) -> bool:
    """Whether a text names the tool that the call is for, or `tool_execute`, which runs it."""
    if len(text) > MAX_KEY_CHARS:
        return text == reading.tool_key
    own_names = (reading.tool_key, tool.tool_name, *(f"{tool.server_id}{one}{tool.tool_name}" for one in _SEPARATORS))
    trimmed = text.strip(_AROUND)
    if trimmed in own_names or _OWN_PREFIX.sub("", trimmed) in own_names or _is_execute(trimmed):
        return True
    return trimmed.startswith("mcp__") and trimmed.endswith(f"__{tool.server_id}:{tool.tool_name}")


def _shown(key: str) -> str:
    """A key as a message shows it: callers can send megabytes."""
    return key if len(key) <= _SHOWN_KEY_CHARS else f"{key[:_SHOWN_KEY_CHARS]}..."


def _decoded(text: str) -> Any:
    """The JSON in a text, which models sometimes encode twice; `null` is an empty object."""
    value = _decoded_once(text)
    value = _decoded_once(value) if isinstance(value, str) else value
    return {} if value is None else value


def _decoded_once(text: str) -> Any:
    try:
        return wire.decode(text.encode()) if text.strip() else {}
    except (wire.InvalidJsonError, UnicodeEncodeError):
        raise InvalidArgumentsError("`arguments` is a string that is not JSON; give an object.") from None


def _object(value: Any) -> Json:
    if not isinstance(value, dict):
        raise InvalidArgumentsError("`arguments` must be an object that fits the tool's inputSchema.")
    return value
