"""A modern server (2026-07-28) over HTTP: no session, every request is self-contained."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from pointsman.config.model import Limits
from pointsman.core.model import Json
from pointsman.core.sdk import (
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from pointsman.core.wire import encode
from pointsman.router.downstream.connection import Call, ConnectionLostError, Introduction, OnNotification
from pointsman.router.downstream.http.answer import EVENT_STREAM, read_result, read_stream
from pointsman.router.downstream.http.client import HANDSHAKE_NUMBER, HttpClient, with_headers
from pointsman.router.downstream.http.exchange import HttpResponse
from pointsman.router.downstream.talk.request_meta import with_meta
from pointsman.router.downstream.talk.server_messages import ServerMessages
from pointsman.router.downstream.talk.subscriptions import LISTEN
from pointsman.router.serving.in_flight import AnswerMemory

_ANNOTATION = b'"x-mcp-header"'
_KEPT_HEADS = 1024  # names come from the catalog, so there are few; a bound nonetheless


def modern_head(client: HttpClient, version: str, method: str, name: str | None = None) -> bytes:
    named = {} if name is None else {"Mcp_Name": encode_header_value(name)}
    return client.head("POST", MCP_Protocol_Version=version, Mcp_Method=method, **named)


class ModernHttp:
    """Fits `Connection`. Closing the response cancels the call; leaving `request` early does so."""

    def __init__(
        self,
        client: HttpClient,
        introduction: Introduction,
        limits: Limits,
        on_notification: OnNotification,
        memory: AnswerMemory | None = None,
    ) -> None:
        self.introduction = introduction
        self._client = client
        self._result_bytes = limits.result_bytes
        self._memory = memory
        self._numbers = itertools.count(HANDSHAKE_NUMBER + 1)
        self._heads: dict[tuple[str, str | None], bytes] = {}
        self._params_in_headers: dict[str, dict[tuple[str, ...], str]] = {}  # tool name -> argument path -> header
        self._messages = ServerMessages(limits, on_notification)

    async def request(self, call: Call) -> Json:
        number = next(self._numbers)
        params = with_meta(call, "modern", self.introduction.version, number)
        body = encode({"jsonrpc": "2.0", "id": number, "method": call.method, "params": params})
        self._messages.calls[number] = call
        on_message = partial(self._messages.receive_in_call, call)
        try:
            head = self._head_for(call)
            if call.request is not None and call.request.span is not None:
                head = with_headers(head, call.request.span.context)
            response = await self._client.send(head, body)
            if call.method == LISTEN and response.kind == EVENT_STREAM:
                return await self._listen(response)
            result = await read_result(response, number, self._result_bytes, on_message, self._memory)
        except ConnectionLostError:
            self._client.check_reachable()
            raise
        finally:
            del self._messages.calls[number]
        return self._note_param_headers(result) if call.method == "tools/list" else result

    async def _listen(self, response: HttpResponse) -> Json:
        """Read a stream that stays open: its messages have no budget, but are throttled."""
        messages = self._messages
        await read_stream(response, self._result_bytes, messages.receive_standalone, messages.unsolicited.pause_s)
        return {}

    async def ended(self) -> str:
        return await self._client.unreachable()

    async def close(self) -> None:
        self._messages.close("the connection was closed")
        await self._client.close()

    # ------------------------------------------------------------------ headers

    def _head_for(self, call: Call) -> bytes:
        field = NAME_BEARING_METHODS.get(call.method)
        given = call.params.get(field) if field is not None else None
        name = given if isinstance(given, str) else None
        head = self._heads.get((call.method, name))
        if head is None:
            head = modern_head(self._client, self.introduction.version, call.method, name)
            if len(self._heads) >= _KEPT_HEADS:
                self._heads.clear()
            self._heads[call.method, name] = head
        if not self._params_in_headers or name is None or call.method != "tools/call":
            return head
        mirrored = self._params_in_headers.get(name)
        if mirrored is None:
            return head
        arguments = call.params.get("arguments")
        return with_headers(head, mcp_param_headers(mirrored, arguments if isinstance(arguments, dict) else {}))

    def _note_param_headers(self, page: Json) -> Json:
        """Note which arguments headers must mirror, and drop tools with invalid annotations: they cannot be called."""
        tools = page.get("tools")
        if not isinstance(tools, list):
            return page
        usable, annotated = [], _has_annotation(tools)
        if not annotated and not self._params_in_headers:
            return page
        for tool in tools:
            schema = tool.get("inputSchema") if annotated and isinstance(tool, dict) else None
            if find_invalid_x_mcp_header(schema) is not None:
                continue
            usable.append(tool)
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str):
                continue
            self._params_in_headers.pop(name, None)
            if mirrored := x_mcp_header_map(schema):
                self._params_in_headers[name] = mirrored
        return page if len(usable) == len(tools) else {**page, "tools": usable}


def _has_annotation(tools: list[Any]) -> bool:
    """Whether a tool may have an annotation. Most have none, and to look for one in their JSON is 50 times as fast."""
    try:
        return _ANNOTATION in encode(tools)
    except (ValueError, RecursionError):
        return True
