"""An OTLP collector of a few lines: receives traces over HTTP and keeps their spans."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip(
    "opentelemetry.exporter.otlp", reason="OpenTelemetry is not installed: pip install 'pointsman[otel]'"
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

SERVER, CLIENT, ERROR = Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT, Status.STATUS_CODE_ERROR
WAIT_S = 30.0  # a bound against hanging


class Collector:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.spans: list[Span] = []
        self.resource: dict[str, str] = {}
        self.bodies: list[bytes] = []
        self.headers: dict[str, str] = {}  # of the last export, by name in lower case

    def receive(self, path: str, headers: dict[str, str], body: bytes) -> None:
        assert path == "/v1/traces"
        self.headers = headers
        body = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        self.bodies.append(body)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource = {one.key: one.value.string_value for one in group.resource.attributes}
            self.spans += [span for scope in group.scope_spans for span in scope.spans]

    def of_trace(self, trace_id: str, count: int) -> list[Span]:
        """The spans of a trace, as soon as there are that many, in the order of their begin."""
        ends = time.monotonic() + WAIT_S
        while len(found := [span for span in self.spans if span.trace_id.hex() == trace_id]) < count:
            assert time.monotonic() < ends, f"{len(found)} of {count} spans arrived"
            time.sleep(0.02)
        return sorted(found, key=lambda span: span.start_time_unix_nano)


def attributes(span: Span) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value") for one in span.attributes}


@contextmanager
def otlp_collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.receive(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        collector = Collector(server.server_port)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()
