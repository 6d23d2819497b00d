"""Decides whether requests are traced: by `telemetry` in the file, or by the variables that OpenTelemetry defines."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pointsman.config.model import Telemetry
from pointsman.core.extras import install_command, otel_is_installed

if TYPE_CHECKING:
    from pointsman.router.observe.tracing import Tracing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"

logger = logging.getLogger(__name__)


def start_tracing(settings: Telemetry, environ: Mapping[str, str]) -> Tracing | None:
    """Start to send spans, if that is wanted and possible. None: nothing of OpenTelemetry is imported."""
    if not _wanted(settings, environ):
        return None
    if not otel_is_installed():  # `telemetry.endpoint` in the file would have been refused
        logger.warning(
            "OTEL_* variables ask for traces, but OpenTelemetry is not installed, so none are sent; install it with %s",
            install_command("otel"),
        )
        return None
    asked = _first(environ, _PROTOCOLS) or _PROTOCOL
    if settings.endpoint is None and asked != _PROTOCOL:
        logger.warning(
            "traces are not sent: the variables ask for `%.32s`, and this gateway speaks %s only. Set %s to that, and "
            "the endpoint to the collector's port for HTTP, usually 4318",
            asked,
            _PROTOCOL,
            _PROTOCOLS[0],
        )
        return None
    from pointsman.router.observe.tracing import Tracing

    try:
        tracing = Tracing(settings)
    except Exception:  # a variable that the SDK cannot read
        logger.exception("traces are not sent: OpenTelemetry could not be started; check the OTEL_* variables")
        return None
    logger.info("traces are sent to the collector %s", tracing.collector)
    return tracing


def _wanted(settings: Telemetry, environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if settings.endpoint is not None:
        return True
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return exporter == "otlp" or (not exporter and _first(environ, _ENDPOINTS) is not None)


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := environ.get(name, "").strip())), None)
