"""Why an exchange over HTTP failed, for people.

No reason names an address: reasons reach clients, and the operator knows the address anyway.
"""

from __future__ import annotations

import socket
import ssl
from http import HTTPStatus


class ExchangeError(Exception):
    """The server broke off an exchange or did not keep to HTTP. `str(error)` is the reason."""


class UnsentError(ExchangeError):
    """Nothing of the request was written: the connection was closed, or the server sent something unasked."""


FAILURES = (ExchangeError, OSError)
"""What an exchange can raise; `failure_reason` explains each."""

TCP_CONNECT_S = 10.0
_CREDENTIAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_NO_TLS_RECORD = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")  # what OpenSSL says of plain HTTP, by its version


def failure_reason(error: Exception) -> str:
    match error:
        case ExchangeError():
            return str(error)
        case ssl.SSLError():
            return tls_reason(error)
        case socket.gaierror():
            return "its host name was not found"
        case ConnectionRefusedError():
            return "it refused the connection"
        case TimeoutError():
            return f"it took no connection within {TCP_CONNECT_S:g} s"
        case ConnectionError():
            return "it reset the connection"
    return "it could not be reached"


def tls_reason(error: BaseException | None) -> str:
    if getattr(error, "reason", None) in _NO_TLS_RECORD:
        return "it does not speak TLS: write http:// instead of https:// in its `url`"
    return "its TLS certificate or handshake was not accepted"


def status_reason(status: int, request: str = "") -> str:
    """The reason for an HTTP status that is no answer; `request` names what it was sent in reply to."""
    if 300 <= status < 400:
        return f"it redirects (HTTP {status}), which is not followed: put the final URL into `url`"
    if status in _CREDENTIAL:
        sign_in = "sign in with `oauth: auto`, or " if status == HTTPStatus.UNAUTHORIZED else ""
        return f"it did not accept our credential (HTTP {status}): {sign_in}check `headers` in its configuration"
    return f"it answered {request} with HTTP {status}" if request else f"it answered with HTTP {status}"
