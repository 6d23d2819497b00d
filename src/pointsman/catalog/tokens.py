"""Checks a caller's token: is the secret a known one, and has it not expired? What it may use, `rights.py` decides."""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from pointsman.config.model import Token
from pointsman.core.errors import UnauthorizedError

LEEWAY_S = 60.0  # tolerated difference between the clocks of two machines
CREATE_TOKEN = "pointsman token create NAME --project P --server S"  # noqa: S105 - a command, no secret


class _Texts(NamedTuple):
    """What a caller is told."""

    missing: str
    unknown: str
    expired: str


_TOKENS_ONLY = _Texts(
    f"Missing token. Send `Authorization: Bearer <token>`; the operator can create one with `{CREATE_TOKEN}`.",
    f"Unknown token: it may be misspelt or revoked. The operator can create a new one with `{CREATE_TOKEN}`.",
    f"This token has expired. The operator can create a new one with `{CREATE_TOKEN}`.",
)
_WITH_SIGN_IN = _Texts(
    "Sign in: the header `WWW-Authenticate` names the place, and clients with OAuth open it by themselves. A token in "
    f"`Authorization: Bearer <token>` works, too; the operator can create one with `{CREATE_TOKEN}`.",
    "Unknown token: it may be misspelt, revoked, or a sign-in that has ended. Sign in again. A token works, too; the "
    f"operator can create one with `{CREATE_TOKEN}`.",
    f"This token has expired. Sign in, or ask the operator for a new token (`{CREATE_TOKEN}`).",
)


class TokenIndex:
    """The tokens of one configuration by the hash of their secret."""

    def __init__(self, tokens: Mapping[str, Token], *, signs_in: bool = False) -> None:
        """`signs_in`: callers can sign in, too, so that refusals say so."""
        self._tokens = tokens
        self._texts = _WITH_SIGN_IN if signs_in else _TOKENS_ONLY
        self._by_digest: dict[str, str] = {}
        for token_id, token in tokens.items():
            self._by_digest.setdefault(token.sha256, token_id)
        self.expiry = {  # of each token, in seconds since the epoch, with the leeway
            token_id: token.expires.timestamp() + LEEWAY_S if token.expires is not None else math.inf
            for token_id, token in tokens.items()
        }

    def verify(self, secret: str | None, now: float) -> str:
        """The id of the token with this secret.

        Raises:
            UnauthorizedError: there is no token, or it is unknown or has expired.
        """
        if not secret:
            raise UnauthorizedError(self._texts.missing)
        token_id = self.find(secret)
        if token_id is None:
            raise UnauthorizedError(self._texts.unknown)
        if now >= self.expiry[token_id]:
            raise UnauthorizedError(self._texts.expired)
        return token_id

    def find(self, secret: str) -> str | None:
        """The token with this secret, expired or not; None: there is none."""
        # Looked up by a hash that a client cannot steer towards a stored one; compared in constant time anyway.
        digest = sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
        token_id = self._by_digest.get(digest)
        if token_id is None or not hmac.compare_digest(digest, self._tokens[token_id].sha256):
            return None
        return token_id
