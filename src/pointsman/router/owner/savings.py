"""Estimates the context tokens that models did not have to read: all schemas, minus the two tools and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from msgspec import Struct

from pointsman.catalog.rights import OWNER_ID
from pointsman.catalog.service import ToolCatalogService
from pointsman.core import wire
from pointsman.core.model import Caller, Json
from pointsman.router.gateway.meta_tools import described_tools
from pointsman.router.observe.context_use import ContextUse, Used

CHARS_PER_TOKEN = 4
BASIS = "characters / 4"
_SEEN_BY_MODELS = ("name", "description", "inputSchema")


class _Context(Struct, frozen=True):
    """Of one caller: the definitions that a client would list, and what it is given instead."""

    tools: tuple[Json, ...]
    own_chars: int  # the two tools and the instructions


async def estimate_savings(catalog: ToolCatalogService, use: ContextUse) -> Json:
    """Return the figures of `pointsman status`, with the tools as they are now and the counts since the start.

    Each time that a client lists tools counts as one conversation: without the gateway it would have received the
    definitions of all tools that its token and project allow.
    """
    everything = await _context_of(catalog, Caller(OWNER_ID, None))
    used = {caller: used for caller, used in use.by_caller.items() if _counts(catalog, caller)}
    contexts = {caller: await _context_of(catalog, caller) for caller in used}
    all_chars, by_caller = await asyncio.to_thread(_measure, everything, contexts)
    return {
        "basis": BASIS,
        "tools": len(everything.tools),
        "allToolsTokens": _tokens(all_chars),
        "ownToolsTokens": _tokens(everything.own_chars),
        "conversations": sum(each.lists for each in used.values()),
        "discoveries": sum(each.answers for each in used.values()),
        "discoveryTokens": _tokens(sum(each.answer_chars for each in used.values())),
        "savedTokens": _tokens(sum(_saved(used[caller], chars) for caller, chars in by_caller.items())),
    }


def schema_tokens(tools: Iterable[Json]) -> int:
    """What the definitions of these tools would take in a model's context."""
    return _tokens(sum(_chars([tool]) for tool in tools))


def _counts(catalog: ToolCatalogService, caller: Caller) -> bool:
    return caller.token_id != OWNER_ID and catalog.still_valid(caller) and not catalog.rights.is_flat(caller)


async def _context_of(catalog: ToolCatalogService, caller: Caller) -> _Context:
    own = described_tools(await catalog.overview(caller))
    instructions = await catalog.instructions(caller) or ""
    return _Context(tuple(catalog.known_tools(caller)), _chars(own) + len(instructions))


def _measure(everything: _Context, contexts: Mapping[Caller, _Context]) -> tuple[int, dict[Caller, int]]:
    """Return the characters of all tools, and for each caller those that one conversation saves."""
    sizes: dict[int, int] = {}

    def size_of(tools: Iterable[Json]) -> int:
        return sum(sizes.get(id(tool)) or sizes.setdefault(id(tool), _chars([tool])) for tool in tools)

    saved = {caller: size_of(context.tools) - context.own_chars for caller, context in contexts.items()}
    return size_of(everything.tools), saved


def _saved(used: Used, chars: int) -> int:
    return used.lists * chars - used.answer_chars


def _chars(tools: list[Json]) -> int:
    """The size of the definitions as models read them."""
    shown = [{key: tool[key] for key in _SEEN_BY_MODELS if key in tool} for tool in tools]
    return len(wire.encode(shown).decode())


def _tokens(chars: int) -> int:
    return round(chars / CHARS_PER_TOKEN)
