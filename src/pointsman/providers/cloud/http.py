"""POSTs requests to a search service: pooled connections, and answers bounded while they are read."""

from __future__ import annotations

import errno
import ssl
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from pointsman import __version__
from pointsman.config.model import CloudSearch
from pointsman.providers.cloud.errors import disconnected, malformed, oversized, status, unreachable
from pointsman.providers.cloud.wire import Packed
from pointsman.providers.single_flight import SingleFlight

if TYPE_CHECKING:  # loaded when the first request is made: most gateways never make one
    import httpx2

MAX_ANSWER_BYTES = 1_048_576  # decompressed
MAX_CONNECTIONS = 64
# Below the 5 s after which uvicorn and Node close an idle connection, so that no request hits one that is closing.
KEEP_ALIVE_S = 4.0
_GZIP = 31  # zlib's number for it


class CloudHttp:
    """Uses the bare transport: no redirects, no cookies, no proxy from the environment.

    It sets no timeouts: the caller has one deadline for the whole request.
    """

    def __init__(self, settings: CloudSearch) -> None:
        self._url = settings.url.rstrip("/") + "/catalog/search"
        self._headers = {
            "Authorization": f"Bearer {settings.token.get_secret_value()}",
            "User-Agent": f"pointsman/{__version__}",
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
        }
        self._transport: httpx2.AsyncHTTPTransport | None = None
        self._opening: SingleFlight[None, httpx2.AsyncHTTPTransport] = SingleFlight()

    async def open(self) -> None:
        """Load the HTTP client. Not part of a request's deadline."""
        if self._transport is None:
            self._transport = await self._opening.run(None, _transport)

    async def post(self, packed: Packed) -> bytes:
        """The body of the answer. Call `open` first. Raises CloudError."""
        import httpx2

        assert self._transport is not None
        headers = {**self._headers, **packed.headers}
        with _as_cloud_errors():
            request = httpx2.Request("POST", self._url, headers=headers, content=packed.body)
            response = await self._transport.handle_async_request(request)
            try:
                if response.status_code != 200:
                    raise status(response.status_code)
                return await _read(response.headers.get("Content-Encoding", "identity"), response.aiter_raw())
            finally:
                await response.aclose()

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()


def _transport() -> httpx2.AsyncHTTPTransport:
    import httpx2

    limits = httpx2.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEP_ALIVE_S)
    return httpx2.AsyncHTTPTransport(verify=ssl.create_default_context(), trust_env=False, limits=limits)


class _Unpacker(Protocol):
    def unpack(self, data: bytes, room: int) -> bytes: ...
    def finish(self) -> None: ...


class _Plain:
    def unpack(self, data: bytes, room: int) -> bytes:
        return data

    def finish(self) -> None:
        pass


class _Gunzip:
    """Never returns more than there is room for, so that a decompression bomb is harmless."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(_GZIP)

    def unpack(self, data: bytes, room: int) -> bytes:
        return self._inner.decompress(data, room + 1)

    def finish(self) -> None:
        if not self._inner.eof:
            raise malformed("the compressed answer is truncated")


async def _read(encoding: str, chunks: AsyncIterator[bytes]) -> bytes:
    unpacker = _unpacker(encoding)
    body = bytearray()
    received = 0
    async for chunk in chunks:
        received += len(chunk)
        body += unpacker.unpack(chunk, MAX_ANSWER_BYTES - len(body))
        if max(received, len(body)) > MAX_ANSWER_BYTES:
            raise oversized(MAX_ANSWER_BYTES)
    unpacker.finish()
    return bytes(body)


def _unpacker(encoding: str) -> _Unpacker:
    match encoding.strip().lower():
        case "identity" | "":
            return _Plain()
        case "gzip" | "x-gzip":
            return _Gunzip()
    raise malformed("the answer has a Content-Encoding that was not requested")


@contextmanager
def _as_cloud_errors() -> Iterator[None]:
    import httpx2

    try:
        yield
    except httpx2.ConnectError as error:
        raise unreachable(_why_unreachable(error), str(error)) from None
    except (httpx2.TransportError, OSError) as error:
        raise disconnected(repr(error)) from None
    except zlib.error as error:
        raise malformed(str(error)) from None


def _why_unreachable(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return "failed the TLS handshake or has an invalid certificate"
        if isinstance(cause, OSError) and cause.errno == errno.ECONNREFUSED:
            return "refused the connection"
        cause = cause.__cause__ or cause.__context__
    return "could not be reached"
