"""`tool_discovery`: from a model's queries to the few tools that fit."""

from __future__ import annotations

from pointsman.catalog.answer import render_answer
from pointsman.catalog.service import ToolCatalogService
from pointsman.core.errors import GatewayError
from pointsman.core.model import Json
from pointsman.core.seams import FrontRequest
from pointsman.router.audit.log import AuditLog, Record
from pointsman.router.gateway.meta_tools import read_discovery
from pointsman.router.gateway.results import failure, structured
from pointsman.router.observe.usage import UsageMemory


async def discover(
    catalog: ToolCatalogService, audit: AuditLog, usage: UsageMemory, request: FrontRequest, given: Json
) -> Json:
    """Search the catalog, with one row in the audit however it ends."""
    try:
        with audit.begin(request, "discovery", queries=_recorded_queries(given)) as record:
            return await _search(catalog, record, usage, request, given)
    except GatewayError as error:
        return failure(error)


async def _search(
    catalog: ToolCatalogService, record: Record, usage: UsageMemory, request: FrontRequest, given: Json
) -> Json:
    asked = read_discovery(given)
    found = await catalog.search(request.caller, asked.queries, asked.context, asked.max_results, request_id=request.id)
    shown = structured(render_answer(found))
    size = len(shown["content"][0]["text"].encode())
    counts = {"results": len(found.results), "bytes": size}
    record.finish("ok", found.code, **counts, provider=found.provider, fallback=found.fallback)
    if catalog.learns:
        usage.discovered(request.caller, asked.queries, found.results)
    return shown


def _recorded_queries(given: Json) -> list[str] | None:
    """Return the queries for the audit, before they are validated: a refused request has a row, too."""
    queries = given.get("query")
    if isinstance(queries, str):
        return [queries]
    return [query for query in queries if isinstance(query, str)] if isinstance(queries, list) else None
