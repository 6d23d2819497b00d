"""What verifies access tokens of an issuer, for tests: with a clock that they move, and what it says of a token."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest

from pointsman.config.sections.auth import Auth
from pointsman.core.errors import UnauthorizedError
from pointsman.router.auth.issuers import Issuers
from pointsman.router.auth.jwks import KeySet
from pointsman.router.auth.metadata import Resources
from tests.router.auth.issuer import PUBLIC_URL, Issuer, Json

META = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"


class Clock:
    """Of the keys: a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def source_of(issuer: Issuer, clock: Callable[[], float] = time.monotonic, **changed: Any) -> Issuers:
    data = {"issuer": issuer.url, "claims": {"staff": {"when": {"groups": "staff"}, "servers": ["*"]}}, **changed}
    auth = Auth.model_validate(data)
    found = Issuers([auth], Resources(PUBLIC_URL, [issuer.url]))
    found.keys = {(auth.issuer, auth.jwks_uri): KeySet(auth, clock)}
    return found


async def refusal(source: Issuers, token: str) -> str:
    """Why a token is refused: whatever it is, in a sentence that does not repeat it."""
    if not source.may_know(token):
        return "not of its form"
    with pytest.raises(UnauthorizedError) as refused:
        await source.identify(token)
    text = str(refused.value)
    assert token not in text
    assert "Traceback" not in text
    return text


def unsigned(header: Json | bytes, claims: Json | bytes, signature: bytes = b"x") -> str:
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims, signature)]
    return ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
