"""Whether requests are traced, by configuration and variables."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from pointsman.config.model import Telemetry
from pointsman.router.observe.telemetry import start_tracing

COLLECTOR = "http://127.0.0.1:9"
OF_FILE = Telemetry.model_construct(endpoint=COLLECTOR, headers={}, sample=None)


@pytest.mark.parametrize(
    ("settings", "environ"),
    [
        (Telemetry(), {}),
        (Telemetry(sample=1), {}),
        (Telemetry(), {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}),
        (Telemetry(), {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR, "OTEL_TRACES_EXPORTER": "none"}),
        (Telemetry(), {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR, "OTEL_SDK_DISABLED": "TRUE"}),
        (OF_FILE, {"OTEL_SDK_DISABLED": "true"}),
    ],
)
def test_nothing_is_traced_unless_it_is_asked_for(settings: Telemetry, environ: Mapping[str, str]) -> None:
    assert start_tracing(settings, environ) is None


@pytest.mark.parametrize(
    ("settings", "environ"),
    [
        (OF_FILE, {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}),
        (Telemetry(), {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR}),
        (Telemetry(), {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": COLLECTOR, "OTEL_TRACES_EXPORTER": "otlp"}),
        (Telemetry(), {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}),
    ],
)
async def test_the_file_or_the_variables_switch_it_on(
    settings: Telemetry, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp", reason="needs OpenTelemetry: pip install 'pointsman[otel]'")
    for name, value in environ.items():  # the SDK reads the rest of them itself
        monkeypatch.setenv(name, value)
    tracing = start_tracing(settings, environ)
    assert tracing is not None
    await tracing.close()


def test_variables_alone_do_not_stop_a_gateway_without_the_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)  # as Python marks what cannot be imported
    assert start_tracing(Telemetry(), {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR}) is None
    assert "pointsman[otel]" in caplog.text


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "speaks http/protobuf only"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "check the OTEL_* variables"),
    ],
)
def test_variables_that_cannot_be_followed_are_named_and_the_gateway_starts(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp", reason="needs OpenTelemetry: pip install 'pointsman[otel]'")
    monkeypatch.setenv(variable, value)
    assert start_tracing(Telemetry(), {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR, variable: value}) is None
    assert said in caplog.text
