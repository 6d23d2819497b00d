"""One call of a tool, from the caller's rights to the server's answer: by `tool_execute`, or by its flat name."""

from __future__ import annotations

from pointsman.catalog.definitions import KnownTool
from pointsman.catalog.flat import FlatTools
from pointsman.catalog.service import ToolCatalogService
from pointsman.core import wire
from pointsman.core.errors import (
    BUNDLED_CODES,
    DownstreamError,
    GatewayError,
    ServerUnavailableError,
    UnknownToolError,
)
from pointsman.core.model import Json, ToolKey
from pointsman.core.seams import INVALID_PARAMS, BackChannel, FrontRequest, ProtocolError
from pointsman.router.audit.log import AuditLog, Record
from pointsman.router.audit.rows import Ending
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.gateway.caller_ids import KEY as CALLER_KEY
from pointsman.router.gateway.caller_ids import CallerIds
from pointsman.router.gateway.check_process import CheckProcess
from pointsman.router.gateway.links import Links
from pointsman.router.gateway.meta_tools import read_execute
from pointsman.router.gateway.results import carried, failure, own_result
from pointsman.router.gateway.rounds import recorded, with_round

TOOL_ERROR = "tool_error"  # the row's code when a tool said `isError`; those of bundled servers say why


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
        """`tool_execute`. Raises ProtocolError."""
        named = given.get("toolKey")
        try:
            with self._begin(request, named if isinstance(named, str) else None, given.get("arguments")) as record:
                asked = read_execute(given)
                tool = self._catalog.resolve_known(request.caller, asked.tool_key)
                if tool is None:
                    tool = await self._catalog.resolve(request.caller, asked.tool_key)
                return carried(await self._call(request, back, record, tool, asked.arguments))
        except GatewayError as error:
            return failure(error)

    async def call(self, request: FrontRequest, back: BackChannel, name: str, arguments: Json) -> Json:
        """A tool by its flat name. Raises ProtocolError, also for a name that this caller cannot call."""
        try:  # before the row is begun, because a name may fit several servers and the row names one
            found: KnownTool | GatewayError = await self._flat.resolve(request.caller, name)
        except GatewayError as error:
            found = error
        tool_key = found.document.tool_key if isinstance(found, KnownTool) else self._likeliest(request, name)
        try:
            with self._begin(request, tool_key, arguments) as record:
                if isinstance(found, GatewayError):
                    raise found
                return own_result(await self._call(request, back, record, found, arguments))
        except UnknownToolError:
            raise ProtocolError(INVALID_PARAMS, "No tool of that name here: `tools/list` has those there are") from None
        except GatewayError as error:
            return failure(error)

    def _likeliest(self, request: FrontRequest, name: str) -> str:
        keys = self._flat.keys(request.caller, name)
        return str(keys[0]) if keys else name

    def _begin(self, request: FrontRequest, tool_key: str | None, arguments: object) -> Record:
        """Raises AuditUnavailableError."""
        key = ToolKey.parse(tool_key) if tool_key is not None else None
        server_id = key.server_id if key and self._fleet.get(key.server_id) else None
        return self._audit.begin(request, "execute", tool_key=tool_key, server_id=server_id, arguments=arguments)

    async def _call(
        self, request: FrontRequest, back: BackChannel, record: Record, tool: KnownTool, arguments: Json
    ) -> Json:
        """The server's result, whose row is finished. Raises GatewayError, ProtocolError."""
        bundled = self._catalog.is_bundled(tool.server_id)
        deferred = None if bundled else tool.check_arguments(arguments)  # bundled servers check their own arguments
        if deferred is not None:
            await self._check_process.settle(deferred, request.caller.token_id)
        server = self._fleet.get(tool.server_id)
        if server is None:  # a reload took it away while its list was fetched
            raise ServerUnavailableError(tool.server_id, "it was taken out of the configuration")
        params = with_round({"name": tool.tool_name, "arguments": arguments}, request.params)
        if bundled:
            params["_meta"] = {CALLER_KEY: self._caller_ids.of(request.caller)}
        try:
            result = await server.request("tools/call", params, request, recorded(back, request, record))
        except DownstreamError as error:
            raise ProtocolError(error.code, error.message, error.data) from None
        self._links.note(request.caller, tool.server_id, result.get("content"))
        record.finish(*_ending(result, bundled), bytes=len(wire.encode(result)))
        return result


def _ending(result: Json, bundled: bool) -> tuple[Ending, str | None]:
    if result.get("resultType") == "input_required":
        return "input_required", None
    if not result.get("isError"):
        return "ok", None
    said = result.get("structuredContent")
    code = said.get("code") if bundled and isinstance(said, dict) else None
    return "error", code if isinstance(code, str) and code in BUNDLED_CODES else TOOL_ERROR
