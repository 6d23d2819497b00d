"""Why an exchange over HTTP failed, for people. Names no address: the operator knows it, and others need not."""

from __future__ import annotations

import errno

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

TCP_CONNECT_S = 10.0


def in_words(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "its TLS certificate or handshake was not accepted"
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
