"""Signed cursors of our lists: each names the last entry shown, and is valid only for the caller that received it."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Sequence
from hashlib import sha256

from pointsman.catalog.offers import Offer
from pointsman.core import wire
from pointsman.core.model import Caller
from pointsman.core.seams import INTERNAL_ERROR, INVALID_PARAMS, ProtocolError

PAGE = 500  # entries
LIFETIME_S = 3600.0
_MAC_BYTES = 16
_MAX_CHARS = 1_024
_MAX_SERVER_CURSOR = 4_096
_MAX_SEALED_CHARS = 65_536  # room for one in JSON and base64


class Cursors:
    """`keys`: the first one signs, all of them verify."""

    def __init__(self, keys: Sequence[str], clock: Callable[[], float]) -> None:
        # Derived for this purpose, so that a cursor is never valid as another signed or sealed value.
        self._keys = [hmac.digest(key.encode(), b"pointsman list cursor", sha256) for key in keys]
        self._clock = clock

    def page(
        self, offers: list[Offer], servers: Sequence[str], method: str, caller: Caller, cursor: str | None
    ) -> tuple[list[Offer], str | None]:
        """Return the page of a cursor, and the cursor of the next page. `servers` is the order of the lists.

        Raises:
            ProtocolError: the cursor is not ours, belongs to another caller or list, or its entry is gone.
        """
        start = 0 if cursor is None else self._start(offers, servers, self._read(cursor, method, caller))
        shown = offers[start : start + PAGE]
        more = start + PAGE < len(offers)
        return shown, self._sign(shown[-1], method, caller) if more else None

    def _start(self, offers: list[Offer], servers: Sequence[str], position: tuple[str, str]) -> int:
        """Find the position by the last entry shown, because entries before it may have been added or removed."""
        server_id, digest = position
        if server_id not in servers:
            raise _expired()
        later = frozenset(servers[servers.index(server_id) + 1 :])
        seen_server = False
        for index, offer in enumerate(offers):
            if offer.server_id == server_id:
                seen_server = True
                if _digest(offer.key) == digest:
                    return index + 1
            elif offer.server_id in later and not seen_server:
                return index  # the server is unavailable now, and its part is skipped
        if seen_server:
            raise _expired()
        return len(offers)

    def seal(self, server_id: str, cursor: str, method: str, caller: Caller) -> str:
        """Return a server's own cursor as one of ours. Raises ProtocolError if it is too long."""
        if len(cursor) > _MAX_SERVER_CURSOR:
            raise ProtocolError(
                INTERNAL_ERROR,
                f"The list ends here: the next cursor of server `{server_id}` is too long. Use what is listed so far.",
            )
        return self._signed(server_id, cursor, method, caller)

    def unseal(self, cursor: str, method: str, caller: Caller) -> tuple[str, str]:
        """Return the server and its own cursor. Raises ProtocolError."""
        return self._read(cursor, method, caller, _MAX_SEALED_CHARS)

    def _sign(self, last: Offer, method: str, caller: Caller) -> str:
        return self._signed(last.server_id, _digest(last.key), method, caller)

    def _signed(self, server_id: str, position: str, method: str, caller: Caller) -> str:
        until = int(self._clock() + LIFETIME_S)
        body = wire.encode([server_id, position, until])
        return _text(body + self._mac(self._keys[0], body, method, caller))

    def _read(self, cursor: str, method: str, caller: Caller, max_chars: int = _MAX_CHARS) -> tuple[str, str]:
        try:
            data = _bytes(cursor) if len(cursor) <= max_chars else b""
        except ValueError:
            raise _foreign() from None
        if _text(data) != cursor:  # only the canonical encoding
            raise _foreign()
        body, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        if not any(hmac.compare_digest(mac, self._mac(key, body, method, caller)) for key in self._keys):
            raise _foreign()
        server_id, digest, until = wire.decode(body)
        if self._clock() > until:
            raise _expired()
        return server_id, digest

    def _mac(self, key: bytes, body: bytes, method: str, caller: Caller) -> bytes:
        bound = wire.encode([method, caller.token_id, caller.project_id])
        return hmac.digest(key, len(bound).to_bytes(4, "big") + bound + body, sha256)[:_MAC_BYTES]


def _digest(key: str) -> str:
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)


def refuse_any(cursor: object) -> None:
    """Reject a cursor of a list that has one page only. Raises ProtocolError."""
    if cursor is not None:
        raise _foreign()


def _foreign() -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, "This `cursor` is not from this list. Begin again without one.")


def _expired() -> ProtocolError:
    return ProtocolError(
        INVALID_PARAMS, "This `cursor` has expired, because the list has changed. Begin again without one."
    )
