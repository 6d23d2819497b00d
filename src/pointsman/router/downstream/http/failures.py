"""Why an exchange over HTTP failed, for people.

No reason names an address: reasons reach clients, and the operator knows the address anyway.
"""

from __future__ import annotations

import errno
from http import HTTPStatus

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

FAILURES = (aiohttp.ClientError, HttpProcessingError, OSError)
"""What an exchange can raise; `failure_reason` explains each."""

TCP_CONNECT_S = 10.0
_CREDENTIAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_NO_TLS_RECORD = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")  # what OpenSSL says of plain HTTP, by its version


def failure_reason(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return _tls_reason(error)
        case aiohttp.ClientConnectorDNSError():
            return "its host name was not found"
        case aiohttp.ClientConnectorError() if error.os_error.errno == errno.ECONNREFUSED:
            return "it refused the connection"
        case aiohttp.ClientConnectorError():
            return "it could not be reached"
        case aiohttp.ServerTimeoutError() | TimeoutError():
            return f"it took no connection within {TCP_CONNECT_S:g} s"
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection before it answered"
        case aiohttp.ClientPayloadError():
            return "its answer was cut off or could not be unpacked"
        case aiohttp.ClientResponseError() | HttpProcessingError():
            return "its answer is not HTTP"
        case aiohttp.InvalidURL():
            return "its URL is not valid"
    return "it reset the connection"


def _tls_reason(error: aiohttp.ClientError) -> str:
    if getattr(getattr(error, "os_error", None), "reason", None) in _NO_TLS_RECORD:
        return "it does not speak TLS: write http:// instead of https:// in its `url`"
    return "its TLS certificate or handshake was not accepted"


def status_reason(status: int, request: str = "") -> str:
    """The reason for an HTTP status that is no answer; `request` names what it was sent in reply to."""
    if 300 <= status < 400:
        return f"it redirects (HTTP {status}), which is not followed: put the final URL into `url`"
    if status in _CREDENTIAL:
        return f"it did not accept our credential (HTTP {status}): check `headers` in its configuration"
    return f"it answered {request} with HTTP {status}" if request else f"it answered with HTTP {status}"
