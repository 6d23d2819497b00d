"""Seals the `requestState` of the modern era, which a client stores for us between two rounds of one call.

The format of the token is the SDK's (`core/sealing.py`). A state opens only for the same caller, method, target and
arguments, before it expires.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

from pointsman.core.model import Json
from pointsman.core.sdk import NAME_BEARING_METHODS
from pointsman.core.sealing import SealError, Sealing
from pointsman.core.seams import INVALID_PARAMS, FrontRequest, ProtocolError
from pointsman.core.wire import InvalidJsonError, decode, encode
from pointsman.router.front.state import WallClock

_VERSION: Final = 1
_SKEW_S: Final = 60.0  # between the clocks of two replicas
_sorted = msgspec.json.Encoder(order="sorted")


class Seal:
    """Stateless: any replica with the same keys opens what another one sealed."""

    def __init__(self, keys: Sequence[str], audience: str, clock: WallClock = time.time) -> None:
        self._codec = Sealing(keys)
        self._audience = audience
        self._clock = clock

    def close(self, request: FrontRequest, content: Json, life_s: float) -> str:
        """Seal `content` for the client to return with the same request."""
        now = self._clock()
        claims = {**self._binding(request), "iat": now, "exp": now + life_s, "s": content}
        return self._codec.seal(encode(claims))

    def open(self, request: FrontRequest, state: object) -> Json:
        """Return the sealed content. Raises ProtocolError, which gives a reason only to those for whom it was sealed:
        others might be forgers."""
        if type(state) is not str:
            raise invalid_state()
        try:
            claims = decode(self._codec.unseal(state))
        except (SealError, InvalidJsonError):
            raise invalid_state() from None
        now = self._clock()
        if any(claims.get(name) != value for name, value in self._binding(request).items()):
            raise invalid_state()
        if claims["iat"] > now + _SKEW_S:
            raise invalid_state()
        if now >= claims["exp"]:
            raise _expired_state(claims["exp"] - claims["iat"])
        content: Json = claims["s"]
        return content

    def _binding(self, request: FrontRequest) -> Json:
        params = request.params
        return {
            "v": _VERSION,
            "aud": self._audience,
            "p": [request.caller.token_id, request.caller.project_id],
            "m": request.method,
            "t": params.get(NAME_BEARING_METHODS.get(request.method, "name")),
            "a": sha256(_sorted.encode(params.get("arguments") or {})).hexdigest(),
        }


def _expired_state(life_s: float) -> ProtocolError:
    return ProtocolError(
        INVALID_PARAMS,
        f"Nobody answered within {life_s:.4g} s, so this requestState has expired. Make the call again without it.",
        {"reason": "invalid_request_state"},
    )


def invalid_state() -> ProtocolError:
    return ProtocolError(
        INVALID_PARAMS,
        "Invalid or expired requestState. Make the call again without it.",
        {"reason": "invalid_request_state"},
    )
