"""Fetches JSON objects from URLs that others name, bounded in size and time, and never from inside networks.

The host is resolved once; its addresses are checked, and the connection goes to one of those. Redirects are not
followed, the environment's proxies are not used, and no cookies are kept.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from pointsman.core.model import Json
from pointsman.core.wire import InvalidJsonError, decode

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import ResolveResult

LIMIT_BYTES = 64 * 1024
TIMEOUT_S = 5.0  # for everything: name, connection, TLS and body
_MAX_URL = 2048
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_IPV4_COMPATIBLE = IPv6Network("::/96")
_GLOBAL_UNICAST = IPv6Network("2000::/3")
# What `is_global` of some Python versions lets through: IETF assignments (Oracle's metadata), and Azure's metadata.
_NOT_PUBLIC = (IPv4Network("192.0.0.0/24"), IPv4Network("168.63.129.16/32"))

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host, as text. Raises OSError."""


class FetchError(Exception):
    """No document. `str(error)` says why, for people, and names no address."""


class AddressRefusedError(FetchError):
    """The address may not be fetched: nothing was sent."""


class InsideNetworkError(AddressRefusedError):
    """The host is inside a network, and the configuration does not name it."""


class Answer(Struct, frozen=True):
    """What was answered. `document` is empty where it was not read, or an error status came without a JSON object."""

    status: int
    headers: Mapping[str, str]  # case-insensitive; those of the same name joined by commas
    document: Json

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class Reach(Struct, frozen=True):
    """The hosts that the operator's configuration names, which may therefore be inside networks.

    If one of them is a loopback host, all loopback hosts may be reached, and without TLS.
    """

    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, *urls: str | None) -> Reach:
        """The hosts of URLs from the configuration. A URL that cannot be parsed names none."""
        return cls(frozenset(host for url in urls if url is not None and (host := _host_in(url))))

    @property
    def loopback(self) -> bool:
        return any(is_loopback_host(host) for host in self.hosts)


PUBLIC = Reach()


async def fetch_json(
    url: str,
    reach: Reach = PUBLIC,
    *,
    method: Literal["GET", "POST"] = "GET",
    form: Mapping[str, str] | None = None,
    body: Json | None = None,
    headers: Mapping[str, str] | None = None,
    limit_bytes: int = LIMIT_BYTES,
    timeout_s: float = TIMEOUT_S,
    resolve: Resolve | None = None,
    status_only: bool = False,
) -> Answer:
    """Send one request and return the answer. `form` or `body` (as JSON) is its content.

    `status_only`: the content of a success does not matter, and is not read.

    Raises:
        FetchError: the URL may not be fetched, nothing came in time, or it was too large or no JSON object.
    """
    parsed = checked_url(url, reach)
    request = _Request(parsed, method, form, body, headers or {}, limit_bytes, status_only)
    try:
        async with asyncio.timeout(timeout_s):
            addresses = await _addresses_of(parsed, reach, resolve or _system_resolve)
            return await _exchange(request, addresses)
    except TimeoutError:
        raise FetchError(f"it gave no whole answer within {timeout_s:g} s") from None


def checked_url(url: str, reach: Reach = PUBLIC) -> URL:
    """Parse a URL that others name. Raises AddressRefusedError: it may not be fetched."""
    if len(url) > _MAX_URL:
        raise AddressRefusedError(f"its URL has more than {_MAX_URL} characters")
    if any(ord(char) <= 32 or ord(char) == 127 or char == "\\" for char in url):
        raise AddressRefusedError("its URL holds characters that no URL has")
    try:
        parsed = URL(url)
        host, port = parsed.host, parsed.port
    except ValueError:
        raise AddressRefusedError("its URL is not valid") from None
    if not host or not port or parsed.scheme not in ("http", "https"):
        raise AddressRefusedError("its URL is not an https URL")
    if parsed.user is not None or parsed.password is not None:
        raise AddressRefusedError("its URL holds a user name or password")
    if parsed.scheme == "http" and not (reach.loopback and is_loopback_host(host)):
        raise AddressRefusedError("its URL is not an https URL")
    if _is_odd_number(host):
        raise AddressRefusedError("its host is a number that is not an IP address in the usual form")
    return parsed


def is_loopback_host(host: str) -> bool:
    """Whether the host is this machine by its name or address, without a look at DNS."""
    name = host.lower().rstrip(".").strip("[]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _parsed_address(name)
    return address is not None and address.is_loopback


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public internet. IPv4 addresses inside IPv6 ones are looked at as such."""
    if isinstance(address, IPv6Address):
        inner = _inner_address(address)
        return is_public(inner) if inner is not None else address.is_global and address in _GLOBAL_UNICAST
    inside = address.is_multicast or address.is_reserved or any(address in network for network in _NOT_PUBLIC)
    return address.is_global and not inside


# ---------------------------------------------------------------------- addresses


def _host_in(url: str) -> str | None:
    try:
        return URL(url).host
    except ValueError:
        return None


def _is_odd_number(host: str) -> bool:
    """Such as `2130706433`, `0x7f.1` or `127.1`, which the system's resolver reads as 127.0.0.1."""
    last = host.rstrip(".").rpartition(".")[2]
    numeric = last.isdigit() or last.lower().startswith("0x")
    return numeric and _parsed_address(host) is None


def _parsed_address(host: str) -> Address | None:
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _inner_address(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if any(address in network for network in _NAT64) or (address in _IPV4_COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


async def _addresses_of(url: URL, reach: Reach, resolve: Resolve) -> list[Address]:
    """The addresses to connect to, all of them checked. Raises FetchError."""
    assert url.host is not None
    assert url.port is not None
    literal = _parsed_address(url.host)
    if literal is not None:
        addresses = [literal]
    else:
        try:
            found = await resolve(url.host, url.port)
        except OSError:
            raise FetchError("its host name was not found") from None
        addresses = [address for text in found if (address := _parsed_address(text)) is not None]
    if not addresses:
        raise FetchError("its host name was not found")
    for address in addresses:
        _check_address(url.host, address, reach)
    return addresses


def _check_address(host: str, address: Address, reach: Reach) -> None:
    if is_loopback_host(host):
        if reach.loopback and address.is_loopback:
            return
    elif host in reach.hosts or is_public(address):
        return
    raise InsideNetworkError(
        "its host has an address inside a network, where only hosts that the configuration names are reached"
    )


async def _system_resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


# ---------------------------------------------------------------------- the exchange


class _Request(Struct, frozen=True):
    url: URL
    method: str
    form: Mapping[str, str] | None
    body: Json | None
    headers: Mapping[str, str]
    limit_bytes: int
    status_only: bool


async def _exchange(request: _Request, addresses: Sequence[Address]) -> Answer:
    import aiohttp  # on demand: most gateways fetch nothing

    try:
        async with (
            _session(addresses) as session,
            session.request(
                request.method,
                request.url,
                data=request.form,
                json=request.body,
                headers={"Accept": "application/json", **request.headers, "Accept-Encoding": "identity"},
                allow_redirects=False,
            ) as response,
        ):
            return await _read(response, request)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if isinstance(error, TimeoutError):
            raise
        raise FetchError(_reason(error)) from None


def _session(addresses: Sequence[Address]) -> aiohttp.ClientSession:
    """A client that connects to these addresses, whatever a second look at DNS would say."""
    import aiohttp
    from aiohttp.abc import AbstractResolver

    class Fixed(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            return [_resolved(host, port, address) for address in addresses]

        async def close(self) -> None:
            """Nothing is open."""

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=Fixed(), use_dns_cache=False, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        trust_env=False,
    )


def _resolved(host: str, port: int, address: Address) -> ResolveResult:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return {"hostname": host, "host": str(address), "port": port, "family": family, "proto": 0, "flags": 0}


async def _read(response: aiohttp.ClientResponse, request: _Request) -> Answer:
    status = response.status
    if 300 <= status < 400:
        raise FetchError(f"it redirects (HTTP {status}), which is not followed")
    failed, headers = status >= HTTPStatus.BAD_REQUEST, _joined(response.headers)
    if request.status_only and not failed:
        return Answer(status, headers, {})
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise FetchError("it compressed its answer, which it was asked not to do")
    data = await _body(response, request.limit_bytes)
    if not _is_json(response.content_type):
        if failed:
            return Answer(status, headers, {})
        raise FetchError("its answer is not JSON")
    try:
        document = decode(data)
    except InvalidJsonError:
        document = None
    if isinstance(document, dict):
        return Answer(status, headers, document)
    if failed:
        return Answer(status, headers, {})
    raise FetchError("its answer is not a JSON object")


def _joined(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    return CIMultiDict((name, ", ".join(headers.getall(name))) for name in dict.fromkeys(map(str.lower, headers)))


async def _body(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    data = bytearray()
    async for part in response.content.iter_any():
        data += part
        if len(data) > limit_bytes:
            raise FetchError(f"its answer has more than {limit_bytes} bytes")
    return bytes(data)


def _is_json(kind: str) -> bool:
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _reason(error: Exception) -> str:
    import aiohttp

    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "its TLS certificate or handshake was not accepted"
        case aiohttp.ClientConnectorError() | OSError():
            return "it could not be reached"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            return "it ended the connection before its answer was whole"
    return "its answer is not HTTP"
