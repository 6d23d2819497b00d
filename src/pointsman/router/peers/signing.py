"""Signs what one replica sends to another. Only who has the gateway's request keys can, so a client cannot."""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from pointsman.core.model import WallClock

HEADER: Final = b"x-pointsman-peer"
REFUSED: Final = b"refused"  # the value in a response: it is refused for its signature
WINDOW_S: Final = 10.0  # around the receiver's clock
_MOST_SEEN: Final = 100_000  # signatures that are remembered; beyond that, the oldest could be used again
_PURPOSE: Final = b"peer"
_FINGERPRINT: Final = b"fingerprint"
_SENT: Final = frozenset(
    {b"accept", b"authorization", b"content-type", b"last-event-id", b"x-pointsman-project"}
)  # and all that begin with `mcp-`

HeaderLines = Iterable[tuple[bytes, bytes]]


class ForgedError(Exception):
    """Not signed by a replica of this gateway, too old, meant for another replica, or seen before."""


class Signing:
    """Signatures of requests: over time, receiver, method, path, the headers that are sent on, and the body."""

    def __init__(self, keys: Sequence[str], own_id: str, clock: WallClock = time.time) -> None:
        self._keys = [hmac.digest(key.encode(), _PURPOSE, "sha256") for key in keys]
        self._own_id = own_id
        self._clock = clock
        self._seen: dict[bytes, float] = {}  # signature -> when it is too old

    def sign(self, to: str, verb: str, target: str, headers: HeaderLines, body: bytes) -> bytes:
        """Return the value of the header."""
        stated = b"%d.%b" % (self._clock() * 1e6, sha256(body).hexdigest().encode())
        return b"%b.%b" % (stated, _mac(self._keys[0], stated, to, verb, target, headers))

    def verified(self, value: bytes, verb: str, target: str, headers: HeaderLines) -> bytes:
        """Return the digest that the body must have. Raises ForgedError."""
        stated, _, signature = value.rpartition(b".")
        micros, _, digest = stated.partition(b".")
        lines = list(headers)
        macs = (_mac(key, stated, self._own_id, verb, target, lines) for key in self._keys)
        if not any(hmac.compare_digest(mac, signature) for mac in macs):
            raise ForgedError
        now, sent = self._clock(), int(micros) / 1e6
        if abs(now - sent) > WINDOW_S or signature in self._seen:
            raise ForgedError
        self._forget(now)
        self._seen[signature] = now + 2 * WINDOW_S
        return digest

    def _forget(self, now: float) -> None:
        while self._seen:
            oldest = next(iter(self._seen))
            if self._seen[oldest] > now and len(self._seen) < _MOST_SEEN:
                return
            del self._seen[oldest]


def fingerprints(keys: Sequence[str]) -> frozenset[str]:
    """Return what tells keys apart and reveals none of them."""
    return frozenset(hmac.digest(key.encode(), _FINGERPRINT, "sha256")[:8].hex() for key in keys)


def sent_on(headers: HeaderLines) -> list[tuple[bytes, bytes]]:
    """Return the headers that another replica gets. All of them are signed."""
    return [line for line in headers if line[0] in _SENT or line[0].startswith(b"mcp-")]


def target_of(path: str, query: bytes) -> str:
    """Return path and query as they are sent; `path` is decoded and may hold anything."""
    return quote(path, safe="/") + (f"?{query.decode('latin-1')}" if query else "")


def has_digest(body: bytes, digest: bytes) -> bool:
    return hmac.compare_digest(sha256(body).hexdigest().encode(), digest)


def _mac(key: bytes, stated: bytes, to: str, verb: str, target: str, headers: HeaderLines) -> bytes:
    lines = [b"%b: %b" % line for line in sorted(sent_on(headers))]
    signed = b"\n".join((stated, to.encode(), verb.encode(), target.encode("latin-1"), *lines))
    return hmac.digest(key, signed, "sha256").hex().encode()
