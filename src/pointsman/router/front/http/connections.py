"""Limits client connections, in total and by address, and evicts idle ones to make room for new ones."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Literal, Protocol

PRESSURE_KEEP_ALIVE_S = 5  # for an idle connection once half of the connections are in use
_IPV6_SITE_BITS = 64  # one customer usually has a whole /64

Exempt = Callable[[str], bool]
"""Whether an address may exceed its share."""

Verdict = Literal["admitted", "full", "share", "flood"]


def address_key(host: str) -> str:
    """Return what counts as one address: an IPv4 address, also an IPv6-mapped one, or the /64 of an IPv6 address."""
    return _address(host)[0]


def is_exempt(host: str, trusted_proxies: Iterable[str]) -> bool:
    """Return whether `host` may serve many clients: loopback, where local proxies run, and trusted proxies."""
    loopback = _address(host)[1]
    return loopback or any(_contains(network, host) for network in trusted_proxies)


@lru_cache(maxsize=4096)
def _address(host: str) -> tuple[str, bool]:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host, False
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            return str(ip_network((address, _IPV6_SITE_BITS), strict=False)), address.is_loopback
        address = address.ipv4_mapped
    return str(address), address.is_loopback


@lru_cache(maxsize=4096)
def _contains(network: str, host: str) -> bool:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address in ip_network(network)


class Evictable(Protocol):
    """A connection in the table."""

    address: str  # its `address_key`; empty for a Unix socket

    @property
    def unread(self) -> int:
        """Bytes of responses that the client has not read."""
        ...

    def evict(self) -> None:
        """Close the connection, which has no request under way."""
        ...


class ConnectionTable:
    """All connections of one server. A connection is idle before its first request and between requests."""

    def __init__(self) -> None:
        self._admitted: Counter[str] = Counter()  # by address
        self.total = 0
        self._refused = 0
        self.idle: OrderedDict[Evictable, None] = OrderedDict()  # longest idle first

    def admit(self, connection: Evictable, most: int, *, exempt: bool) -> Verdict:
        """Count a new connection; if the table is full, evict the longest idle one.

        `forget` it when it closes, unless the verdict is `flood`.
        """
        verdict: Verdict = "admitted"
        if not exempt and self._admitted[connection.address] >= max(1, most // 2):
            verdict = "admitted" if self._evict(connection.address) else "share"
        if verdict == "admitted" and self.total >= most and not self._evict(None):
            verdict = "full"
        if verdict == "admitted":
            self._admitted[connection.address] += 1
            self.total += 1
            self.idle[connection] = None
            return verdict
        if self._refused >= most:
            return "flood"
        self._refused += 1
        return verdict

    def forget(self, connection: Evictable, verdict: Verdict) -> None:
        if verdict in ("full", "share"):
            self._refused -= 1
        elif verdict == "admitted":
            self.idle.pop(connection, None)
            self.total -= 1
            self._admitted[connection.address] -= 1
            if not self._admitted[connection.address]:
                del self._admitted[connection.address]

    def _evict(self, address: str | None) -> bool:
        """Close the longest idle connection, of `address` if given."""
        for connection in self.idle:
            if (address is None or connection.address == address) and not connection.unread:
                connection.evict()  # calls `forget`
                return True
        return False
