"""One call of a tool, from the caller's rights to the server's answer: by `tool_execute`, or by its flat name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pointsman.catalog.errors import DownstreamRefusal, GatewayError, ServerUnavailable, UnknownTool
from pointsman.catalog.flat import FlatTools
from pointsman.catalog.listing import KnownTool
from pointsman.catalog.model import Json, ToolKey
from pointsman.catalog.service import ToolCatalogService
from pointsman.router import wire
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.rows import Ending
from pointsman.router.caller_ids import KEY as CALLER_KEY
from pointsman.router.caller_ids import CallerIds
from pointsman.router.check_process import CheckProcess
from pointsman.router.downstream.fleet import Fleet
from pointsman.router.links import Links
from pointsman.router.meta_tools import read_execute
from pointsman.router.results import carried, failure, own_result
from pointsman.router.rounds import Rounds, with_round
from pointsman.router.seams import INVALID_PARAMS, BackChannel, FrontRequest, ProtocolError

_ENDINGS: dict[str, Ending] = {"unknown_tool": "denied", "timeout": "timeout"}
TOOL_ERROR = "tool_error"  # the row's code when the tool itself said `isError`
RATE_LIMITED = "rate_limited"  # and when that was because a bundled server is asked too often

Carry = Callable[[FrontRequest, BackChannel, Any], Awaitable[Json]]
"""Makes the call that the last argument describes. Raises GatewayError, DownstreamRefusal."""


class Executor:
    """Carries calls. Every one has a row in the audit, written before anything is sent."""

    def __init__(
        self,
        catalog: ToolCatalogService,
        flat: FlatTools,
        fleet: Fleet,
        audit: AuditLog,
        links: Links,
        caller_ids: CallerIds,
        check_process: CheckProcess,
    ) -> None:
        self._catalog = catalog
        self._flat = flat
        self._fleet = fleet
        self._audit = audit
        self._links = links
        self._caller_ids = caller_ids
        self._check_process = check_process

    async def execute(self, request: FrontRequest, back: BackChannel, given: Json) -> Json:
        """`tool_execute`."""
        tool_key = given.get("toolKey")
        named = tool_key if isinstance(tool_key, str) else None
        try:
            return carried(await self._recorded(request, back, named, given.get("arguments"), self._asked, given))
        except GatewayError as error:
            return failure(error)

    async def call(self, request: FrontRequest, back: BackChannel, name: str, arguments: Json) -> Json:
        """A tool by its flat name. Raises ProtocolError for a name that this caller cannot call."""
        try:  # before the row is begun, because a name may fit several servers and the row names one
            found: KnownTool | GatewayError = await self._flat.resolve(request.caller, name)
        except GatewayError as error:
            found = error
        tool_key = found.document.tool_key if isinstance(found, KnownTool) else self._likeliest(request, name)
        try:
            return own_result(await self._recorded(request, back, tool_key, arguments, self._named, (found, arguments)))
        except UnknownTool:
            raise ProtocolError(INVALID_PARAMS, "No tool of that name here: `tools/list` has those there are") from None
        except GatewayError as error:
            return failure(error)

    def _likeliest(self, request: FrontRequest, name: str) -> str:
        keys = self._flat.keys(request.caller, name)
        return str(keys[0]) if keys else name

    async def _recorded(
        self, request: FrontRequest, back: BackChannel, tool_key: str | None, arguments: object, carry: Carry, what: Any
    ) -> Json:
        """`carry(request, back, what)` with its row. Raises GatewayError, ProtocolError."""
        key = ToolKey.parse(tool_key) if tool_key is not None else None
        server_id = key.server_id if key and self._fleet.get(key.server_id) else None
        rounds = Rounds(self._audit, request, back, tool_key, server_id, arguments)
        try:
            # A legacy client answers within its one request, which is one row.
            result = await carry(request, back if request.client.era == "legacy" else rounds, what)
        except GatewayError as error:
            rounds.record.finish(_ENDINGS.get(error.code, "error"), error.code)
            raise
        except DownstreamRefusal as error:
            rounds.record.finish("error", str(error.code))
            raise ProtocolError(error.code, error.message, error.data) from None
        except asyncio.CancelledError:
            rounds.record.finish("cancelled")
            raise
        except BaseException:
            rounds.record.finish("error", "internal")
            raise
        bundled = server_id is not None and self._catalog.is_bundled(server_id)
        rounds.record.finish(*_ending(result, bundled), bytes=len(wire.encode(result)))
        return result

    async def _asked(self, request: FrontRequest, back: BackChannel, given: Json) -> Json:
        asked = read_execute(given)
        catalog = self._catalog
        tool = catalog.resolve_known(request.caller, asked.tool_key)
        if tool is None:
            tool = await catalog.resolve(request.caller, asked.tool_key)
        return await self._carry(request, back, tool, asked.arguments)

    async def _named(
        self, request: FrontRequest, back: BackChannel, what: tuple[KnownTool | GatewayError, Json]
    ) -> Json:
        found, arguments = what
        if isinstance(found, GatewayError):
            raise found
        return await self._carry(request, back, found, arguments)

    async def _carry(self, request: FrontRequest, back: BackChannel, tool: KnownTool, arguments: Json) -> Json:
        unproven = self._catalog.check_arguments(tool, arguments)
        if unproven is not None:
            await self._check_process.settle(unproven)
        server = self._fleet.get(tool.server_id)
        if server is None:  # a reload took it away while its list was fetched
            raise ServerUnavailable(tool.server_id, "it was taken out of the configuration")
        params = with_round({"name": tool.tool_name, "arguments": arguments}, request.params)
        if self._catalog.is_bundled(tool.server_id):
            params["_meta"] = {CALLER_KEY: self._caller_ids.of(request.caller)}
        result = await server.request("tools/call", params, request, back)
        self._links.note(request.caller, tool.server_id, result.get("content"))
        return result


def _ending(result: Json, bundled: bool) -> tuple[Ending, str | None]:
    if result.get("resultType") == "input_required":
        return "input_required", None
    if not result.get("isError"):
        return "ok", None
    said = result.get("structuredContent")
    limited = bundled and isinstance(said, dict) and said.get("code") == RATE_LIMITED
    return "error", RATE_LIMITED if limited else TOOL_ERROR
