"""`tool_discovery`: from a model's queries to the few tools that fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pointsman.catalog.answer import render_answer
from pointsman.catalog.service import ToolCatalogService
from pointsman.core import wire
from pointsman.core.errors import GatewayError, InvalidArgumentsError
from pointsman.core.model import Json
from pointsman.core.seams import FrontRequest
from pointsman.router.audit.log import AuditLog, Record
from pointsman.router.gateway.meta_tools import (
    DEFAULT_RESULTS,
    DISCOVERY,
    END_DIVISOR,
    MAX_ALL_TEXT,
    MAX_QUERIES,
    MAX_RESULTS,
    MAX_TEXT,
    RESULTS_EACH,
    check_names,
)
from pointsman.router.gateway.rates import Rates
from pointsman.router.gateway.results import failure, structured
from pointsman.router.observe.usage import UsageMemory

MAX_NAMED = 3  # queries that were cut

_WHOLE = re.compile(r"\s*[0-9]{1,3}\s*")


async def discover(
    catalog: ToolCatalogService, audit: AuditLog, usage: UsageMemory, rates: Rates, request: FrontRequest, given: Json
) -> Json:
    """Search the catalog, with one row in the audit however it ends."""
    try:
        with audit.begin(request, "discovery", queries=_recorded_queries(given)) as record:
            await rates.count("discoveries", request.caller)
            return await _search(catalog, record, usage, request, given)
    except GatewayError as error:
        return failure(error, catalog.rights.view(request.caller))


async def _search(
    catalog: ToolCatalogService, record: Record, usage: UsageMemory, request: FrontRequest, given: Json
) -> Json:
    asked = read_discovery(given)
    found = await catalog.search(
        *(request.caller, asked.queries, asked.context, asked.max_results),
        least_each=asked.least_each,
        request_id=request.id,
    )
    if asked.notice:
        found = replace(found, notice=" ".join(filter(None, (found.notice, asked.notice))))
    shown = structured(render_answer(found))
    size = len(shown["content"][0]["text"].encode())
    counts = {"results": len(found.results), "bytes": size}
    record.finish("ok", found.code, **counts, provider=found.provider, fallback=found.fallback)
    if catalog.learns:
        usage.discovered(request.caller, asked.queries, found.results)
    return shown


def _recorded_queries(given: Json) -> list[str] | None:
    """Return the queries for the audit, before they are validated: a refused request has a row, too."""
    queries = _listed(given.get("query"))
    return [query for query in queries if isinstance(query, str)] if isinstance(queries, list) else None


class DiscoveryArguments(Struct, frozen=True):
    queries: tuple[str, ...]
    context: str | None
    max_results: int
    least_each: int  # results for each of several queries
    notice: str | None  # what was cut


def read_discovery(given: Json) -> DiscoveryArguments:
    """Raises InvalidArgumentsError."""
    check_names(given, DISCOVERY, ("query", "context", "maxResults"))
    asked, long_context = _queries(given.get("query")), _context(given.get("context"))
    distinct = _first_places(asked)  # a query that is there several times is searched once
    chars = _chars_for_each([*(len(asked[place]) for place in distinct), len(long_context or "")])
    queries = tuple([_cut(query, chars) for query in asked])
    context = _cut(long_context, chars) if long_context else None
    notice = _cut_notice({place: asked[place] for place in distinct}, long_context, chars)
    if len(distinct) == 1:
        queries = queries[:1]
    if given.get("maxResults") is None:
        most = min(max(DEFAULT_RESULTS, RESULTS_EACH * len(distinct)), MAX_RESULTS)
        return DiscoveryArguments(queries, context, most, RESULTS_EACH, notice)
    return DiscoveryArguments(queries, context, _max_results(given["maxResults"]), 1, notice)


def _queries(value: Any) -> tuple[str, ...]:
    value = _listed(value)
    if not isinstance(value, list) or not value or not all(isinstance(query, str) for query in value):
        raise InvalidArgumentsError('`query` must be a list of one or more strings, such as ["read a file"].')
    if len(value) > MAX_QUERIES:
        raise InvalidArgumentsError(f"`query` holds {len(value)} queries; at most {MAX_QUERIES} are taken at once.")
    return tuple(value)


def _listed(value: Any) -> Any:
    """The list that a string stands for: models often send one query bare, or the list as JSON."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return [value]
    try:
        inside = wire.decode(text.encode())
    except (wire.InvalidJsonError, UnicodeEncodeError):
        return [value]
    return inside if all(isinstance(query, str) for query in inside) else [value]


def _first_places(queries: Sequence[str]) -> list[int]:
    """Where each distinct query is first; spaces make no difference."""
    places: dict[str, int] = {}
    for place, query in enumerate(queries):
        places.setdefault(" ".join(query.split()), place)
    return list(places.values())


def _chars_for_each(lengths: Sequence[int]) -> int:
    """The characters that are searched of each text: less than MAX_TEXT if all together are too long."""
    left = MAX_ALL_TEXT
    for place, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - place)
        if length > share:
            return min(share, MAX_TEXT)
        left -= length
    return MAX_TEXT


def _cut(text: str, chars: int) -> str:
    """The beginning and the end of a long text, such as a pasted log: what is wanted is said before or after it."""
    end = chars // END_DIVISOR
    return text if len(text) <= chars else f"{text[: chars - end]}\n{text[1 - end :]}"


def _cut_notice(queries: Mapping[int, str], context: str | None, chars: int) -> str | None:
    """Name a few of the texts that were cut, the queries by their places, with their lengths."""
    long = [f"query[{place}] ({len(query)})" for place, query in queries.items() if len(query) > chars]
    if len(long) > MAX_NAMED:
        long[MAX_NAMED:] = [f"{len(long) - MAX_NAMED} more queries"]
    if context and len(context) > chars:
        long.append(f"`context` ({len(context)})")
    if not long:
        return None
    return (
        f"Of a text of more than {chars} characters, only the beginning and the end were searched: "
        f"{', '.join(long)}. One sentence that says what should be done finds more."
    )


def _context(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise InvalidArgumentsError("`context` must be a string.")


def _max_results(value: Any) -> int:
    if (isinstance(value, float) and value.is_integer()) or (isinstance(value, str) and _WHOLE.fullmatch(value)):
        value = int(value)
    if type(value) is not int or not 1 <= value <= MAX_RESULTS:
        raise InvalidArgumentsError(f"`maxResults` must be a whole number from 1 to {MAX_RESULTS}.")
    return value
