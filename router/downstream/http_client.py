"""HTTP to one server: a pool of kept connections, failures put into words, and the proof that a server is gone."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from pointsman.router.downstream.connection import ConnectionLost
from pointsman.router.downstream.standing import Background

# Below the 5 s after which uvicorn and Node drop an idle connection, so that a call is not sent into one that closes.
KEEP_ALIVE_S = 4.0
TCP_CONNECT_S = 10.0
DOUBTS_S = (0.25, 0.5)  # after a failure: when to look whether the server is there, before it counts as gone
HANDSHAKE_NUMBER = 1  # the id of the first request; not 0, which some servers take for none
_JSON = "application/json"

Headers = CIMultiDict[str]


class HttpClient:
    """One server's client. Takes no proxies from the environment, keeps no cookies, follows no redirects.

    It sets no time limits on answers: the total deadline is the caller's.
    """

    def __init__(self, url: str, headers: Mapping[str, str], doubts_s: tuple[float, ...] = DOUBTS_S) -> None:
        self._url = URL(url)
        self._own: Headers = CIMultiDict(headers)
        self._doubts_s = doubts_s
        self._doubting: asyncio.Task[None] | None = None
        self._background = Background()
        self._gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=TCP_CONNECT_S),
            skip_auto_headers=("User-Agent",),
        )

    def headers(self, **protocol: str) -> Headers:
        """What every POST carries, the operator's headers first; the protocol's own cannot be overridden."""
        found = self._own.copy()
        found["Accept"] = f"{_JSON}, text/event-stream"
        found["Accept-Encoding"] = "gzip, deflate"
        found["Content-Type"] = _JSON
        for name, value in protocol.items():
            found[name.replace("_", "-")] = value
        return found

    async def post(self, headers: Headers, body: bytes) -> aiohttp.ClientResponse:
        return await self._send("POST", headers, body)

    async def get(self, headers: Headers) -> aiohttp.ClientResponse:
        wanted = headers.copy()
        del wanted["Content-Type"]
        wanted["Accept"] = "text/event-stream"
        return await self._send("GET", wanted, None)

    async def delete(self, headers: Headers) -> None:
        (await self._send("DELETE", headers, None)).release()

    async def _send(self, method: str, headers: Headers, body: bytes | None) -> aiohttp.ClientResponse:
        if self._session.closed:
            raise ConnectionLost("its connection was closed")
        try:
            return await self._session.request(method, self._url, data=body, headers=headers, allow_redirects=False)
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(in_words(error)) from None

    # ------------------------------------------------------------------ is it still there?

    async def gone(self) -> str:
        """Wait until the server takes no more connections; returns the reason. One failure alone proves nothing."""
        return await asyncio.shield(self._gone)

    def give_up(self, reason: str) -> None:
        if not self._gone.done():
            self._gone.set_result(reason)

    def doubt(self) -> None:
        """An exchange failed: look whether the server still takes connections."""
        if self._doubting is None and not self._gone.done() and not self._session.closed:
            self._doubting = self._background.start(self._look_again())

    async def _look_again(self) -> None:
        reason: str | None = None
        for pause_s in self._doubts_s:
            await asyncio.sleep(pause_s)
            reason = await self._why_unreachable()
            if reason is None:
                self._doubting = None
                return
        self.give_up(reason or "it could not be reached")

    async def _why_unreachable(self) -> str | None:
        try:
            async with asyncio.timeout(TCP_CONNECT_S):
                _, writer = await asyncio.open_connection(self._url.host, self._url.port)
        except ConnectionRefusedError:
            return "it refused the connection"
        except OSError:  # TimeoutError is one
            return "it could not be reached"
        writer.close()
        return None

    async def close(self) -> None:
        await self._background.close()
        await self._session.close()
        self.give_up("its connection was closed")


def in_words(error: Exception) -> str:
    """Why an exchange failed, for people. Names no address: the operator knows it, and others need not."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "its TLS certificate or handshake was not accepted"
        case aiohttp.ClientConnectorDNSError():
            return "its host name was not found"
        case aiohttp.ClientConnectorError() if error.os_error.errno == errno.ECONNREFUSED:
            return "it refused the connection"
        case aiohttp.ClientConnectorError():
            return "it could not be reached"
        case aiohttp.ConnectionTimeoutError():
            return f"it took no connection within {TCP_CONNECT_S:g} s"
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection before it answered"
        case aiohttp.ClientPayloadError():
            return "its answer was cut off or could not be unpacked"
        case aiohttp.ClientResponseError():
            return "its answer is not HTTP"
        case aiohttp.InvalidURL():
            return "its URL is not valid"
    return "it reset the connection"
