"""Traces: what a collector receives of a gateway, and what servers receive of the trace."""

from __future__ import annotations

import asyncio
import gc
import json
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import SecretStr

from tests.e2e.client import BOTH_ERAS, Assistant, Mode, assistant
from tests.e2e.people import person
from tests.e2e.test_eras import CELLS, stdio_asker
from tests.gateway_process import GatewayProcess, gateway_process
from tests.servers.asker_http import AskerHttp, asker_http
from tests.servers.otlp_collector import CLIENT, ERROR, SERVER, Collector, attributes, otlp_collector

# isort: split
from opentelemetry.sdk.trace import ReadableSpan

from pointsman.config.model import Telemetry
from pointsman.core.errors import CallTimeoutError
from pointsman.core.model import Caller, Json
from pointsman.core.seams import ProtocolError
from pointsman.router.observe.tracing import MAX_NAME_CHARS, Tracing

QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "50"}  # milliseconds
SECRET = "what-nobody-but-the-tool-may-see"
PARENT = "b7ad6b7169203331"


class Traced:
    def __init__(self, gateway: GatewayProcess, collector: Collector, http: dict[str, AskerHttp]) -> None:
        self.gateway = gateway
        self.collector = collector
        self.http = http


@pytest.fixture(scope="module")
async def traced(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Traced]:
    folder = tmp_path_factory.mktemp("traced")
    trace = folder / "trace"
    async with asker_http("legacy", trace) as legacy, asker_http("modern", trace) as modern:
        servers = {
            "stdio_legacy": stdio_asker("legacy", trace),
            "stdio_modern": stdio_asker("modern", trace),
            "http_legacy": {"url": legacy.url},
            "http_modern": {"url": modern.url},
        }
        with otlp_collector() as collector:
            telemetry = {"endpoint": collector.url, "headers": {"X-Key": "sesame"}}
            config = {"servers": servers, "telemetry": telemetry}
            async with gateway_process(folder, config, env=QUICK) as gateway:
                yield Traced(gateway, collector, {"http_legacy": legacy, "http_modern": modern})


def new_trace() -> tuple[str, dict[str, str]]:
    trace_id = secrets.token_hex(16)
    return trace_id, {"traceparent": f"00-{trace_id}-{PARENT}-01", "tracestate": "vendor=1"}


@asynccontextmanager
async def client_with(gateway: GatewayProcess, mode: Mode, headers: dict[str, str]) -> AsyncIterator[Assistant]:
    """A client whose HTTP requests have these headers as well."""
    async with (
        httpx2.AsyncClient(headers=gateway.headers | headers, timeout=60) as http,
        Client(streamable_http_client(gateway.url, http_client=http), mode=mode) as client,
    ):
        yield Assistant(client)


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_call_has_a_server_span_in_the_clients_trace_and_a_client_child_that_its_server_continues(
    mode: Mode, traced: Traced
) -> None:
    async with assistant(traced.gateway, mode) as model:
        for cell in CELLS:
            trace_id, meta = new_trace()
            given: Any = meta
            answer = await model.client.call_tool(
                "tool_execute", {"toolKey": f"{cell}:report", "arguments": {"tag": SECRET}}, meta=given
            )
            assert not answer.is_error, answer
            server, client = await asyncio.to_thread(traced.collector.of_trace, trace_id, 2)
            assert (server.name, server.kind) == ("tools/call tool_execute", SERVER)
            assert (client.name, client.kind) == ("tools/call report", CLIENT)
            assert server.parent_span_id.hex() == PARENT
            assert client.parent_span_id == server.span_id
            assert server.start_time_unix_nano <= client.start_time_unix_nano
            assert client.end_time_unix_nano <= server.end_time_unix_nano
            (block, *_) = answer.content
            assert block.type == "text"
            arrived = json.loads(block.text)
            passed_on = f"00-{trace_id}-{client.span_id.hex()}-01"
            assert (arrived["traceparent"], arrived["tracestate"]) == (passed_on, "vendor=1")
            if cell in traced.http:
                headers = traced.http[cell].headers
                assert (headers["traceparent"], headers["tracestate"]) == (passed_on, "vendor=1")
            _check_attributes(attributes(server), attributes(client), cell, mode)
    assert SECRET.encode() not in b"".join(traced.collector.bodies)
    assert traced.collector.headers["x-key"] == "sesame"
    assert traced.collector.resource["service.name"] == "pointsman"


def _check_attributes(server: dict[str, Any], client: dict[str, Any], cell: str, mode: Mode) -> None:
    assert server.pop("pointsman.request.id")
    assert server.pop("jsonrpc.request.id")
    assert server.pop("pointsman.client.name")
    assert server == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25" if mode == "legacy" else "2026-07-28",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "tool_execute",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "pointsman.token.id": "test",
    }
    assert client.pop("mcp.protocol.version") in ("2025-11-25", "2026-07-28")
    assert client == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "report",
        "pointsman.token.id": "test",
        "pointsman.server.id": cell,
    }


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_the_context_may_come_in_headers_and_that_in_meta_wins(mode: Mode, traced: Traced) -> None:
    of_header, headers = new_trace()
    async with client_with(traced.gateway, mode, headers) as model:
        await model.text("stdio_modern:plain", tag="t")
        of_meta, meta = new_trace()
        given: Any = meta
        await model.client.call_tool("tool_discovery", {"query": ["asks"]}, meta=given)
    in_header = await asyncio.to_thread(traced.collector.of_trace, of_header, 3)
    assert {span.parent_span_id.hex() for span in in_header if span.kind == SERVER} == {PARENT}
    opening = in_header[0].name
    assert opening == ("initialize" if mode == "legacy" else "server/discover")
    (span,) = await asyncio.to_thread(traced.collector.of_trace, of_meta, 1)
    assert span.name == "tools/call tool_discovery"
    assert [link.trace_id.hex() for link in span.links] == [of_header]


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_what_fails_has_an_error_status_and_no_text(mode: Mode, traced: Traced) -> None:
    of_tool, of_gateway, of_protocol = new_trace(), new_trace(), new_trace()
    async with person(traced.gateway, mode, able=False) as (_, model):

        async def call(tool: str, arguments: Json, meta: Any) -> None:
            answer = await model.client.call_tool(tool, arguments, meta=meta)
            assert answer.is_error

        await call("tool_execute", {"toolKey": "stdio_legacy:name", "arguments": {"tag": "t"}}, of_tool[1])
        await call("tool_execute", {"toolKey": "stdio_legacy:none"}, of_gateway[1])
        with pytest.raises(Exception, match="Tool not found"):
            await call("nothing", {}, of_protocol[1])
    server, client = await asyncio.to_thread(traced.collector.of_trace, of_tool[0], 2)
    for span in (server, client):
        assert (span.status.code, span.status.message) == (ERROR, "")
        assert attributes(span)["error.type"] == "tool_error"
    (refused,) = await asyncio.to_thread(traced.collector.of_trace, of_gateway[0], 1)
    assert (refused.status.code, attributes(refused)["error.type"]) == (ERROR, "unknown_tool")
    (failed,) = await asyncio.to_thread(traced.collector.of_trace, of_protocol[0], 1)
    shown = attributes(failed)
    assert (failed.status.code, shown["error.type"], shown["rpc.response.status_code"]) == (ERROR, "-32602", "-32602")


async def test_each_round_of_a_parked_call_is_a_span_and_the_server_call_belongs_to_the_first(traced: Traced) -> None:
    trace_id, headers = new_trace()
    before = len(traced.collector.spans)
    async with person(traced.gateway, "auto") as (ada, model):
        given: Any = headers
        answer = await model.client.call_tool(
            "tool_execute", {"toolKey": "stdio_legacy:name", "arguments": {"tag": "t"}}, meta=given
        )
        assert not answer.is_error, answer
        assert ada.asked == ["t"]
    spans = await asyncio.to_thread(traced.collector.of_trace, trace_id, 2)
    first = spans[0]
    (call,) = [span for span in spans if span.kind == CLIENT]
    assert attributes(first)["pointsman.input_required"] is True
    assert call.parent_span_id == first.span_id
    assert call.end_time_unix_nano > first.end_time_unix_nano
    rounds = [span for span in traced.collector.spans[before:] if span.name == "tools/call tool_execute"]
    assert len(rounds) == 2


# ------------------------------------------------------------------ collectors that are away


async def test_a_collector_that_hangs_costs_no_call_and_does_not_delay_the_end(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # accepts, and never answers
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        env = {**QUICK, "OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_EXPORTER_OTLP_TIMEOUT": "600"}
        servers = {"stdio": stdio_asker("legacy", tmp_path / "trace")}
        async with gateway_process(tmp_path, {"servers": servers}, env=env) as gateway:
            async with assistant(gateway) as model:
                for number in range(20):
                    assert await model.text("stdio:plain", tag=str(number)) == f"plain {number}"
                deaf.settimeout(30)
                connection, _ = await asyncio.to_thread(deaf.accept)  # so the gateway does send to it
            assert await gateway.stop() == 0
            connection.close()


async def test_spans_that_cannot_be_sent_take_bounded_memory_and_are_reported_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    tracing = Tracing(Telemetry(endpoint=f"http://127.0.0.1:{port}"))  # where nobody listens
    for number in range(10_000):
        tracing.begin(message(number), {}, Caller("t", None)).end({})
    gc.collect()  # of what failed exports have left in their tracebacks
    kept = sum(isinstance(one, ReadableSpan) for one in gc.get_objects())
    assert kept < 2048 + 512 + 100  # the SDK's queue, and the batch that is being sent
    async with asyncio.timeout(30):
        while "could not send spans" not in caplog.text:
            await asyncio.sleep(0.02)
    await tracing.close()
    assert caplog.text.count("could not send spans") == 1


# ------------------------------------------------------------------ without a gateway


def message(number: object = 1, method: str = "tools/call", **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {"name": "tool_execute", **params}}


def spans_of(collector: Collector) -> list[dict[str, Any]]:
    return [attributes(span) for span in collector.spans]


async def test_a_client_that_records_its_trace_is_recorded_whatever_the_share() -> None:
    trace_id, meta = new_trace()
    with otlp_collector() as collector:
        tracing = Tracing(Telemetry(endpoint=collector.url + "/", sample=0, headers={"k": SecretStr("v")}))
        skipped = tracing.begin(message(), {}, Caller("t", "p"))
        flags = skipped.call("s", "", "tools/call", {}).context["traceparent"].rpartition("-")[2]
        assert int(flags, 16) & 1 == 0  # the server need not record it either
        skipped.end({})
        tracing.begin(message(_meta=meta), {}, Caller("t", "p")).end({})
        await tracing.close()
    assert [span.trace_id.hex() for span in collector.spans] == [trace_id]
    assert spans_of(collector)[0]["pointsman.project.id"] == "p"


@pytest.mark.parametrize(
    "meta",
    [
        None,
        7,
        {"traceparent": 7},
        {"traceparent": ["00"]},
        {"traceparent": "00-" + "0" * 32 + "-" + PARENT + "-01"},
        {"traceparent": "ff-" + "1" * 32 + "-" + PARENT + "-01"},
        {"traceparent": "x" * 4_000_000, "tracestate": "y" * 4_000_000},
        {"tracestate": "vendor=1"},
        {"traceparent": "\ud800", "tracestate": None},
    ],
)
async def test_an_invalid_context_begins_a_new_trace(meta: Any) -> None:
    with otlp_collector() as collector:
        tracing = Tracing(Telemetry(endpoint=collector.url))
        head = {b"traceparent": b"\xff\x00", b"tracestate": b"\xff" * 9000}
        span = tracing.begin(message(_meta=meta), head, Caller("t", None))
        assert "tracestate" not in span.context
        span.end({})
        await tracing.close()
        (sent,) = collector.spans
        assert sent.parent_span_id == b""
        assert len(collector.bodies[0]) < 4096


async def test_what_clients_choose_is_bounded_and_an_error_is_named_by_its_code() -> None:
    long = "n" * 1_000_000
    with otlp_collector() as collector:
        tracing = Tracing(Telemetry(endpoint=collector.url))
        tracing.begin(message(long, name=long), {}, Caller("t", None)).end({"isError": True})
        tracing.begin(message(method=long), {}, Caller("t", None)).end(asyncio.CancelledError())
        span = tracing.begin(message(), {}, Caller("t", None))
        span.call("s", "", "tools/call", {"name": long}).end(CallTimeoutError("s", 1))
        span.end(ProtocolError(-32603, SECRET, {"secret": SECRET}))
        span.end({})  # too late
        limited = ProtocolError(-32603, SECRET, {"code": "rate_limited", "retryAfterS": 1})  # a read
        tracing.begin(message(method="resources/read"), {}, Caller("t", None)).end(limited)
        flat = {"isError": True, "structuredContent": {"error": {"code": SECRET}}}
        tracing.begin(message(), {}, Caller("t", None)).end(flat)
        await tracing.close()
    assert [one["error.type"] for one in spans_of(collector)] == [
        "tool_error",
        "cancelled",
        "timeout",
        "-32603",
        "rate_limited",
        "tool_error",
    ]
    assert collector.spans[1].name == "_OTHER"
    assert max(len(span.name) for span in collector.spans) <= MAX_NAME_CHARS + len("tools/call ")
    assert SECRET.encode() not in b"".join(collector.bodies)
    assert len(b"".join(collector.bodies)) < 8192
