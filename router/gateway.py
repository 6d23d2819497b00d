"""The gateway behind the front: who is calling, what there is, and the two tools."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pointsman.catalog.model import Caller, Json
from pointsman.catalog.service import ToolCatalogService
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.rows import Kind
from pointsman.router.discover import discover
from pointsman.router.downstream.fleet import Fleet
from pointsman.router.execute import Executor
from pointsman.router.meta_tools import DISCOVERY, EXECUTE, described_tools
from pointsman.router.seams import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    BackChannel,
    Change,
    Era,
    FrontRequest,
    ProtocolError,
)
from pointsman.router.usage import UsageMemory

INSTRUCTIONS = (
    "Many tools stand behind this server. Find the ones that fit a task with tool_discovery, one query for each step, "
    "and run them with tool_execute."
)


class PointsmanGateway:
    """Fits `router.seams.Gateway`."""

    def __init__(self, catalog: ToolCatalogService, fleet: Fleet, audit: AuditLog, usage: UsageMemory) -> None:
        self._catalog = catalog
        self._usage = usage
        self._audit = audit
        self._executor = Executor(catalog, fleet, audit)

    def identify(self, token: str | None, project: str | None) -> Caller:
        return self._catalog.identify(token, project)

    def refused(self, code: str, token: str | None, method: str | None, params: Json, client: str) -> None:
        name, given = params.get("name"), params.get("arguments")
        kind: Kind = "discovery" if name == DISCOVERY else "execute"
        tool_key = given.get("toolKey") if isinstance(given, dict) else None
        self._audit.refused(
            code,
            kind=kind,
            method=method or "",
            token_id=self._catalog.rights.token_id(token) if token else None,
            client=client,
            tool_key=tool_key if isinstance(tool_key, str) else None,
        )

    def may_see(self, caller: Caller, server_id: str) -> bool:
        return self._catalog.rights.may_use_server(caller, server_id)

    def capabilities(self, caller: Caller, era: Era) -> Json:
        return {"tools": {}, "logging": {}}

    async def handle(self, request: FrontRequest, back: BackChannel) -> Json:
        if request.method == "tools/call":
            return await self._call(request, back)
        if request.method == "tools/list":
            return {"tools": described_tools(await self._catalog.overview(request.caller))}
        raise ProtocolError(METHOD_NOT_FOUND, "Method not found")

    async def changes(self, caller: Caller) -> AsyncIterator[Change]:
        """The two tools never change, and nothing else is listed: there is nothing to tell."""
        return
        yield  # makes this an iterator

    async def _call(self, request: FrontRequest, back: BackChannel) -> Json:
        name, given = request.params.get("name"), request.params.get("arguments")
        if given is None:
            given = {}
        if not isinstance(name, str) or not isinstance(given, dict):
            raise ProtocolError(INVALID_PARAMS, "tools/call needs a `name` and, if any, `arguments` as an object")
        if name == EXECUTE:
            return await self._executor.execute(request, back, given)
        if name == DISCOVERY:
            return await discover(self._catalog, self._audit, self._usage, request, given)
        caller = request.caller
        self._audit.refused(
            "unknown_tool",
            kind="execute",
            method=request.method,
            token_id=caller.token_id,
            project_id=caller.project_id,
            client=request.client.name,
            request_id=request.id,
            tool_key=name,
        )
        raise ProtocolError(
            INVALID_PARAMS, f"No tool of that name here: find it with {DISCOVERY} and run it with {EXECUTE}"
        )
