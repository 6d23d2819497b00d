"""The SDK's server in front of our gateway: what the suite says of ours is compared with what it says of this."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, get_args

import mcp_types as types
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel.server import Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from pointsman.core.model import Caller, Json
from pointsman.core.seams import Change, Client, Era, FrontRequest, Gateway, ProtocolError
from tests.conformance.fixture.conversation import Context
from tests.conformance.sdk_call import SdkCall

NAME = "pointsman-behind-the-sdk"
CARRIED: dict[str, type[types.RequestParams]] = {
    "tools/list": types.PaginatedRequestParams,
    "tools/call": types.CallToolRequestParams,
    "resources/list": types.PaginatedRequestParams,
    "resources/templates/list": types.PaginatedRequestParams,
    "resources/read": types.ReadResourceRequestParams,
    "resources/subscribe": types.SubscribeRequestParams,
    "resources/unsubscribe": types.UnsubscribeRequestParams,
    "prompts/list": types.PaginatedRequestParams,
    "prompts/get": types.GetPromptRequestParams,
    "completion/complete": types.CompleteRequestParams,
}
_LOG_LEVEL = "io.modelcontextprotocol/logLevel"


class _Declaring(Server[Any]):
    """Declares what the gateway says, where the SDK would go by its handlers."""

    declared: Callable[[Era], Json]

    def create_initialization_options(self, *args: Any, **kwargs: Any) -> InitializationOptions:
        options = super().create_initialization_options(*args, **kwargs)
        return options.model_copy(update={"capabilities": self._capabilities("legacy")})

    def get_capabilities(self, *args: Any, protocol_version: str | None = None, **kwargs: Any) -> Any:
        return self._capabilities("modern" if protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy")

    def _capabilities(self, era: Era) -> types.ServerCapabilities:
        return types.ServerCapabilities.model_validate(self.declared(era))


class SdkFront:
    def __init__(self, gateway: Gateway, caller: Caller) -> None:
        self._gateway = gateway
        self._caller = caller
        self._levels: dict[int, str] = {}
        self._numbers = iter(range(1, 1_000_000))
        self._bus = InMemorySubscriptionBus()
        self._parked: dict[str | None, SdkCall] = {}

    def server(self) -> Server[Any]:
        hints = {method: CacheHint(ttl_ms=0, scope="private") for method in get_args(CacheableMethod)}
        server = _Declaring(NAME, version="1.0", cache_hints=hints, on_subscriptions_listen=ListenHandler(self._bus))
        server.declared = lambda era: self._gateway.capabilities(self._caller, era)
        for method, params in CARRIED.items():
            server.add_request_handler(method, params, self._handler(method))
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
        return server

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        """Pass the gateway's changes on to modern listeners."""
        task = asyncio.create_task(self._publish())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _publish(self) -> None:
        async for change in self._gateway.changes(self._caller):
            event = _event(change)
            if event is not None:
                await self._bus.publish(event)

    def _handler(self, method: str) -> Callable[[Context, Any], Awaitable[Json]]:
        async def handle(context: Context, _params: Any) -> Json:
            request = self._request(context, method)
            call = self._parked.pop(request.params.get("requestState"), None)
            if call is None:
                call = SdkCall(context, request.client)
                call.start(self._gateway.handle(request, call))
            else:
                call.resume(context, request.params.get("inputResponses") or {})
            try:
                result = await call.next_answer()
            except ProtocolError as error:
                raise MCPError(error.code, error.message, error.data) from None
            if call.waits:
                self._parked[call.id] = call
            return {"resultType": "complete", **result}

        return handle

    def _request(self, context: Context, method: str) -> FrontRequest:
        params = dict(context.params or {})
        meta = dict(params.pop("_meta", None) or {})
        era: Era = "modern" if context.protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy"
        declared = context.session.client_capabilities
        client = Client(
            "conformance",
            era,
            context.protocol_version,
            declared.model_dump(by_alias=True, mode="json", exclude_none=True) if declared else {},
            meta.pop("progressToken", None),
            meta.get(_LOG_LEVEL) if era == "modern" else self._levels.get(id(context.session._connection)),
        )
        kept = {key: value for key, value in meta.items() if not key.startswith("io.modelcontextprotocol/")}
        return FrontRequest(f"sdk-{next(self._numbers)}", method, {**params, "_meta": kept}, self._caller, client)

    async def _set_level(self, context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self._levels[id(context.session._connection)] = params.level
        return types.EmptyResult()


def _event(change: Change) -> ServerEvent | None:
    match change.method:
        case "notifications/tools/list_changed":
            return ToolsListChanged()
        case "notifications/prompts/list_changed":
            return PromptsListChanged()
        case "notifications/resources/list_changed":
            return ResourcesListChanged()
        case "notifications/resources/updated":
            return ResourceUpdated(uri=change.params["uri"])
    return None
