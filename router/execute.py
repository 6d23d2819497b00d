"""`tool_execute`: one call, from the caller's rights to the server's answer."""

from __future__ import annotations

import asyncio

from pointsman.catalog.errors import DownstreamRefusal, GatewayError, ServerUnavailable
from pointsman.catalog.model import Json, ToolKey
from pointsman.catalog.service import ToolCatalogService
from pointsman.router import wire
from pointsman.router.audit.log import AuditLog
from pointsman.router.audit.rows import Ending
from pointsman.router.downstream.fleet import Fleet
from pointsman.router.meta_tools import read_execute
from pointsman.router.results import carried, failure
from pointsman.router.seams import BackChannel, FrontRequest, ProtocolError

_ENDINGS: dict[str, Ending] = {"unknown_tool": "denied", "timeout": "timeout"}
TOOL_ERROR = "tool_error"  # the row's code when the tool itself said `isError`


class Executor:
    """Carries calls. Every one has a row in the audit, written before anything is sent."""

    def __init__(self, catalog: ToolCatalogService, fleet: Fleet, audit: AuditLog) -> None:
        self._catalog = catalog
        self._fleet = fleet
        self._audit = audit

    async def execute(self, request: FrontRequest, back: BackChannel, given: Json) -> Json:
        tool_key = given.get("toolKey")
        key = ToolKey.parse(tool_key) if isinstance(tool_key, str) else None
        try:
            record = self._audit.begin(
                request,
                "execute",
                tool_key=tool_key if isinstance(tool_key, str) else None,
                server_id=key.server_id if key and self._fleet.get(key.server_id) else None,
                arguments=given.get("arguments"),
            )
        except GatewayError as error:
            return failure(error)
        try:
            result = await self._carry(request, back, given)
        except GatewayError as error:
            record.finish(_ENDINGS.get(error.code, "error"), error.code)
            return failure(error)
        except DownstreamRefusal as error:
            record.finish("error", str(error.code))
            raise ProtocolError(error.code, error.message, error.data) from None
        except asyncio.CancelledError:
            record.finish("cancelled")
            raise
        except BaseException:
            record.finish("error", "internal")
            raise
        record.finish(*_ending(result), bytes=len(wire.encode(result)))
        return carried(result)

    async def _carry(self, request: FrontRequest, back: BackChannel, given: Json) -> Json:
        asked = read_execute(given)
        catalog = self._catalog
        tool = catalog.resolve_known(request.caller, asked.tool_key)
        if tool is None:
            tool = await catalog.resolve(request.caller, asked.tool_key)
        catalog.check_arguments(tool, asked.arguments)
        server = self._fleet.get(tool.server_id)
        if server is None:  # a reload took it away while its list was fetched
            raise ServerUnavailable(tool.server_id, "it was taken out of the configuration")
        return await server.request("tools/call", {"name": tool.tool_name, "arguments": asked.arguments}, request, back)


def _ending(result: Json) -> tuple[Ending, str | None]:
    if result.get("resultType") == "input_required":
        return "input_required", None
    return ("error", TOOL_ERROR) if result.get("isError") else ("ok", None)
