"""Checks a caller's token: is the secret a known one, and has it not expired? What it may use, `rights.py` decides."""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping
from hashlib import sha256

from pointsman.config.model import Token
from pointsman.core.errors import UnauthorizedError

LEEWAY_S = 60.0  # tolerated difference between the clocks of two machines
CREATE_TOKEN = "pointsman token create NAME --project P --server S"  # noqa: S105 - a command, no secret


class TokenIndex:
    """The tokens of one configuration by the hash of their secret."""

    def __init__(self, tokens: Mapping[str, Token]) -> None:
        self._tokens = tokens
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
            raise UnauthorizedError(
                "Missing token. Send `Authorization: Bearer <token>`; "
                f"the operator can create one with `{CREATE_TOKEN}`."
            )
        token_id = self.find(secret)
        if token_id is None:
            raise UnauthorizedError(
                "Unknown token: it may be misspelt or revoked. "
                f"The operator can create a new one with `{CREATE_TOKEN}`."
            )
        if now >= self.expiry[token_id]:
            raise UnauthorizedError(f"This token has expired. The operator can create a new one with `{CREATE_TOKEN}`.")
        return token_id

    def find(self, secret: str) -> str | None:
        """The token with this secret, expired or not; None: there is none."""
        # Looked up by a hash that a client cannot steer towards a stored one; compared in constant time anyway.
        digest = sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
        token_id = self._by_digest.get(digest)
        if token_id is None or not hmac.compare_digest(digest, self._tokens[token_id].sha256):
            return None
        return token_id
