"""Traces requests with OpenTelemetry: a SERVER span for each request of a client, a CLIENT child for each server call.

Imported only if `telemetry` is on. Spans contain neither arguments nor results. They wait in a bounded queue, and a
thread of the SDK sends them: a collector that is away or hangs costs spans, never a call.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Link, SpanKind, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import Tracer as OtelTracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pointsman import __version__
from pointsman.config.model import Telemetry
from pointsman.core.errors import DownstreamError, GatewayError
from pointsman.core.model import Caller, Json
from pointsman.core.seams import FrontRequest, ProtocolError
from pointsman.router.observe import conventions as name

PATH = "/v1/traces"  # of an OTLP/HTTP collector
MAX_NAME_CHARS = 128  # of what a client or server chose: names, ids
MAX_TRACEPARENT_CHARS = 64  # version 00 has 55
MAX_TRACESTATE_CHARS = 512  # as W3C asks to support
CLOSE_S = 3.0  # for the last spans, when the daemon ends
_PROPAGATOR = TraceContextTextMapPropagator()
_LIMITS = {"traceparent": MAX_TRACEPARENT_CHARS, "tracestate": MAX_TRACESTATE_CHARS}

Attributes = dict[str, str | bool]

logger = logging.getLogger(__name__)


class Tracing:
    """Fits `core.seams.Tracer`."""

    def __init__(self, settings: Telemetry) -> None:
        """What `settings` leave open, the SDK reads from `OTEL_*` variables."""
        endpoint = None if settings.endpoint is None else settings.endpoint.rstrip("/") + PATH
        headers = {key: value.get_secret_value() for key, value in settings.headers.items()} or None
        sampler = None if settings.sample is None else ParentBased(TraceIdRatioBased(settings.sample))
        self._provider = TracerProvider(sampler=sampler, resource=_resource(), shutdown_on_exit=False)
        exporter = _Exporter(endpoint, headers=headers)
        self.collector = exporter.collector
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("pointsman", __version__)
        # The exporter's own messages would repeat every few seconds; ours appear once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

    def begin(self, message: Json, head: Mapping[bytes, bytes], caller: Caller) -> TracedOperation:
        """The parent is the context in `_meta`; one in the headers as well, such as a proxy's, becomes a link."""
        params = message.get("params") or {}
        in_meta, in_headers = _context_in_meta(params.get("_meta")), _context_in_headers(head)
        own = _caller_attributes(caller)
        shown, attributes = _described(message.get("method"), params)
        attributes |= own
        attributes |= {
            name.JSONRPC_ID: _bounded(message.get("id")),
            name.TRANSPORT: "tcp",
            name.NETWORK_PROTOCOL: "http",
        }
        span = self._tracer.start_span(
            shown,
            in_meta or in_headers or Context(),
            SpanKind.SERVER,
            attributes,
            links=_links(in_meta, in_headers),
        )
        return TracedOperation(self._tracer, span, own)

    async def close(self) -> None:
        """Send the spans that wait, unless the collector takes too long."""
        # The SDK waits up to 30 s, in a thread that must not keep the process alive.
        closing = threading.Thread(target=self._provider.shutdown, name="telemetry", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_S)


class TracedOperation:
    """Fits `core.seams.Span`."""

    __slots__ = ("_caller", "_ended", "_span", "_tracer")

    def __init__(self, tracer: OtelTracer, span: OtelSpan, caller: Attributes) -> None:
        self._tracer = tracer
        self._span = span
        self._caller = caller
        self._ended = False

    @property
    def context(self) -> Mapping[str, str]:
        own = self._span.get_span_context()
        passed_on = {"traceparent": f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags & 0xFF:02x}"}
        if own.trace_state:
            passed_on["tracestate"] = own.trace_state.to_header()
        return passed_on

    def call(self, server_id: str, version: str, method: str, params: Json) -> TracedOperation:
        shown, attributes = _described(method, params)
        attributes |= self._caller
        attributes[name.SERVER] = server_id
        if version:
            attributes[name.PROTOCOL_VERSION] = _bounded(version)
        span = self._tracer.start_span(shown, set_span_in_context(self._span), SpanKind.CLIENT, attributes)
        return TracedOperation(self._tracer, span, self._caller)

    def end(self, outcome: Json | BaseException, request: FrontRequest | None = None) -> None:
        if self._ended:
            return
        self._ended = True
        span = self._span
        if span.is_recording():
            if request is not None:
                client = request.client
                span.set_attribute(name.REQUEST, request.id)
                span.set_attribute(name.CLIENT_NAME, _bounded(client.name))
                span.set_attribute(name.PROTOCOL_VERSION, _bounded(client.version))
            _set_outcome(span, outcome)
        span.end()


class _Exporter(OTLPSpanExporter):
    """Logs once when the collector cannot be reached, and once when it can again."""

    def __init__(self, endpoint: str | None, headers: Mapping[str, str] | None) -> None:
        super().__init__(endpoint, headers=headers)
        self.collector = urlsplit(self._endpoint).netloc.rpartition("@")[2]  # without credentials
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._failing:
            logger.warning("could not send spans to the collector %s; they are dropped meanwhile", self.collector)
        elif self._failing and not failed:
            logger.info("spans reach the collector %s again", self.collector)
        self._failing = failed
        return result


def _resource() -> Resource:
    """What the variables say about the service comes first."""
    found = Resource.create()
    own: dict[str, str] = {name.SERVICE_VERSION: __version__}
    if str(found.attributes.get(name.SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        own[name.SERVICE_NAME] = "pointsman"
    return Resource.create(own)


def _described(method: object, params: Json) -> tuple[str, Attributes]:
    """The name of a span, and its attributes for the method and the tool or prompt that it names."""
    shown = method if isinstance(method, str) and method in name.METHODS else name.OTHER
    attributes: Attributes = {name.METHOD: shown}
    given = params.get("name")
    target = _bounded(given) if isinstance(given, str) and given else ""
    if shown == "tools/call":
        attributes[name.OPERATION] = name.EXECUTE_TOOL
        if target:
            attributes[name.TOOL] = target
    elif shown == "prompts/get" and target:
        attributes[name.PROMPT] = target
    else:
        return shown, attributes
    return f"{shown} {target}".rstrip(), attributes


def _caller_attributes(caller: Caller) -> Attributes:
    attributes: Attributes = {name.TOKEN: caller.token_id}
    if caller.project_id is not None:
        attributes[name.PROJECT] = caller.project_id
    return attributes


def _set_outcome(span: OtelSpan, outcome: Json | BaseException) -> None:
    """No text of an error or result is recorded: it may contain what the tool was asked or has answered."""
    if isinstance(outcome, dict):
        if outcome.get("resultType") == "input_required":
            span.set_attribute(name.INPUT_REQUIRED, True)
        if not outcome.get("isError"):
            return
    elif isinstance(outcome, ProtocolError | DownstreamError):
        span.set_attribute(name.STATUS_CODE, str(outcome.code))
    span.set_attribute(name.ERROR_TYPE, _error_type(outcome))
    span.set_status(StatusCode.ERROR)


def _error_type(outcome: Json | BaseException) -> str:
    if isinstance(outcome, dict):
        content = outcome.get("structuredContent")
        return _own_code(content.get("error") if isinstance(content, dict) else None) or name.TOOL_ERROR
    if isinstance(outcome, ProtocolError) and (own := _own_code(outcome.data)):
        return own  # a read has no `isError`, so its error is one of JSON-RPC
    if isinstance(outcome, asyncio.CancelledError):
        return "cancelled"
    if isinstance(outcome, ProtocolError | DownstreamError | GatewayError):
        return str(outcome.code)
    return type(outcome).__qualname__


def _own_code(error: object) -> str | None:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) and code in _own_codes(GatewayError) else None


def _own_codes(kind: type[GatewayError]) -> set[str]:
    """The codes of the gateway's own errors: the text of a server never becomes an attribute."""
    codes = {kind.code} if "code" in vars(kind) else set()
    return codes.union(*(_own_codes(one) for one in kind.__subclasses__()))


def _context_in_meta(meta: object) -> Context | None:
    if not isinstance(meta, dict):
        return None
    given = {key: meta[key] for key in _LIMITS if isinstance(meta.get(key), str)}
    return _remote_context(given) if given else None


def _context_in_headers(head: Mapping[bytes, bytes]) -> Context | None:
    given = {key: head[key.encode()].decode("latin-1") for key in _LIMITS if key.encode() in head}
    return _remote_context(given) if given else None


def _remote_context(given: Mapping[str, str]) -> Context | None:
    """None: it is not valid, and a new trace begins."""
    carrier = {key: value for key, value in given.items() if len(value) <= _LIMITS[key]}
    context = _PROPAGATOR.extract(carrier, Context())
    return context if get_current_span(context).get_span_context().is_valid else None


def _links(in_meta: Context | None, in_headers: Context | None) -> list[Link]:
    if in_meta is None or in_headers is None:
        return []
    parent, other = (get_current_span(one).get_span_context() for one in (in_meta, in_headers))
    return [] if (parent.trace_id, parent.span_id) == (other.trace_id, other.span_id) else [Link(other)]


def _bounded(value: object) -> str:
    return str(value)[:MAX_NAME_CHARS]
