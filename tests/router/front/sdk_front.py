"""The oracle: the same gateway behind the SDK's own server, to compare our front with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.routing import Route

from pointsman.config.model import Limits
from pointsman.core.model import Caller, Json
from pointsman.core.sdk import MODERN_PROTOCOL_VERSIONS
from pointsman.core.seams import CannotAskError, Client, Era, FrontRequest, ProtocolError
from pointsman.router.front.http.protocol import guarded_protocol
from tests.router.front.served_front import SERVER_INFO, Served, free_port, listening
from tests.router.front.small_gateway import SmallGateway

CARRIED: dict[str, type[types.RequestParams]] = {
    "tools/list": types.PaginatedRequestParams,
    "tools/call": types.CallToolRequestParams,
    "resources/list": types.PaginatedRequestParams,
    "resources/templates/list": types.PaginatedRequestParams,
    "resources/read": types.ReadResourceRequestParams,
    "prompts/list": types.PaginatedRequestParams,
    "prompts/get": types.GetPromptRequestParams,
    "completion/complete": types.CompleteRequestParams,
}
Context = ServerRequestContext[Any, Any]


class SdkBackChannel:
    """Fits `BackChannel`, on the SDK's request context."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.said: list[tuple[str, Json]] = []

    def reachable(self) -> bool:
        return True

    def notify(self, method: str, params: Json) -> None:
        self.said.append((method, params))

    async def ask(self, method: str, params: Json) -> Json:
        raise CannotAskError  # the comparison asks nothing

    async def send_all(self) -> None:
        for method, params in self.said:
            await self._context.session._request_outbound.notify(method, params)


class SdkFront:
    def __init__(self, gateway: SmallGateway) -> None:
        self._gateway = gateway
        hints = {method: CacheHint(ttl_ms=0, scope="private") for method in CARRIED if method.endswith("list")}
        self.server: Server[Any] = Server(
            SERVER_INFO["name"],
            version=SERVER_INFO["version"],
            instructions="Two tools.",
            cache_hints=hints,  # type: ignore[arg-type]
            get_tool_input_schema=lambda name: None,
        )
        for method, params in CARRIED.items():
            self.server.add_request_handler(method, params, self._handler(method))
        self.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._accept)

    def _handler(self, method: str) -> Callable[[Context, Any], Awaitable[Json]]:
        async def handle(context: Context, _params: Any) -> Json:
            era: Era = "modern" if context.protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy"
            client = Client("sdk", era, context.protocol_version, {}, None, None)
            request = FrontRequest("sdk", method, dict(context.params or {}), Caller("a", None), client)
            back = SdkBackChannel(context)
            try:
                result = await self._gateway.handle(request, back)
            except ProtocolError as error:
                raise MCPError(error.code, error.message, error.data) from None
            finally:
                await back.send_all()
            return {"resultType": "complete", **result}

        return handle

    async def _accept(self, context: Context, _params: Any) -> Json:
        return {}


@asynccontextmanager
async def sdk_serving(gateway: SmallGateway) -> AsyncIterator[Served]:
    listener = free_port()
    port = listener.getsockname()[1]
    hosts = [f"127.0.0.1:{port}", f"localhost:{port}"]
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts])
    manager = StreamableHTTPSessionManager(SdkFront(gateway).server, security_settings=security)
    app = Starlette(routes=[Route("/mcp", StreamableHTTPASGIApp(manager))])
    async with manager.run(), listening(app, listener, http=guarded_protocol(Limits)) as server:
        yield Served(port, gateway, None, server)  # type: ignore[arg-type]  # the comparison needs no front
