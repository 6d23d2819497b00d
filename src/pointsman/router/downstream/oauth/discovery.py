"""Finds the authorization server of a server: by its challenge, by well-known paths, and by both forms of metadata."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pointsman.router.auth.fetch import FetchError, InsideNetworkError, Reach, fetch_json
from pointsman.router.downstream.oauth.documents import (
    FAILED,
    AuthorizationServer,
    Challenge,
    DocumentError,
    ProtectedResource,
    canonical_resource,
    fetch_code,
    origin_of,
    read_challenge,
    read_resource,
    read_server,
    resource_metadata_urls,
    server_metadata_urls,
    shown,
)

_PROBE = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


class SignInError(Exception):
    """A sign-in cannot go on. `str(error)` says why and what to do, for the person who signs in.

    `audit_code` is why, for the audit; `server` and `holder` say whose sign-in it was, once that is known.
    """

    def __init__(self, message: str, audit_code: str = FAILED, *, where: str | None = None) -> None:
        super().__init__(message)
        self.audit_code = audit_code
        self.where = where  # the address concerned, as a stranger named it
        self.server: str | None = None
        self.holder = ""

    def for_owner(self) -> str:
        """With the address, which may have parts of the server's `url` that its callers do not know."""
        return str(self) if self.where is None else f"{self} The address concerned: {shown(self.where)}."


class Discovered(Struct, frozen=True):
    server: AuthorizationServer
    resource: str  # what tokens are for
    metadata: ProtectedResource | None  # None: a server of the time before RFC 9728
    challenge: Challenge


async def discover(
    url: str, challenge: Challenge, reach: Reach, issuer: str | None = None, headers: Mapping[str, str] | None = None
) -> Discovered:
    """Find out where to sign in. `issuer` is the operator's choice. Raises SignInError."""
    fresh = await probe(url, reach, headers or {})
    challenge = fresh if fresh != Challenge() else challenge
    metadata = await find_resource(url, challenge, reach)
    chosen = issuer or (metadata.authorization_servers[0] if metadata is not None else origin_of(url))
    server = await find_server(chosen, reach)
    return Discovered(server, metadata.resource if metadata else canonical_resource(url), metadata, challenge)


async def probe(url: str, reach: Reach, headers: Mapping[str, str]) -> Challenge:
    """The server's challenge to a request without a token; an empty one if it has none."""
    try:
        answer = await fetch_json(url, reach, method="POST", body=_PROBE, headers=headers)
    except FetchError:
        return Challenge()
    if answer.status not in (401, 403):
        return Challenge()
    return read_challenge(answer.headers.get("WWW-Authenticate"))


async def find_resource(url: str, challenge: Challenge, reach: Reach) -> ProtectedResource | None:
    """The metadata of a server. Raises SignInError. None: none of the places has metadata."""
    for place in resource_metadata_urls(challenge, url):
        named = place == challenge.resource_metadata
        try:
            answer = await fetch_json(place, reach)
        except FetchError as error:
            if named:
                why = f"Its metadata for sign-in cannot be read: {error}. {_next_step(error)}"
                raise SignInError(why, fetch_code(error), where=place) from None
            continue
        if answer.status >= 500 or answer.status == 429:
            why = f"Its metadata for sign-in cannot be read now (HTTP {answer.status}). Try again later."
            raise SignInError(why, where=place)
        if answer.status != 200:
            continue
        try:
            return read_resource(answer.document, url)
        except DocumentError as error:
            raise SignInError(f"It cannot be signed in to: {error}.", error.code) from None
    return None


async def find_server(issuer: str, reach: Reach, step: str | None = None) -> AuthorizationServer:
    """The metadata of an authorization server. `step`: what to do if it has none. Raises SignInError."""
    reason, where = FetchError("it has no metadata"), issuer
    for place in server_metadata_urls(issuer):
        try:
            answer = await fetch_json(place, reach)
        except FetchError as error:
            reason, where = error, place
            continue
        if answer.status != 200:
            continue
        try:
            return read_server(answer.document, issuer, reach)
        except DocumentError as error:
            raise SignInError(f"It cannot be signed in to: {error}.", error.code) from None
    why = f"Its authorization server cannot be used: {reason}. {step or _next_step(reason)}"
    raise SignInError(why, fetch_code(reason), where=where)


def _next_step(error: FetchError) -> str:
    if isinstance(error, InsideNetworkError):
        return "If that host is yours, and is the authorization server, set `oauth.issuer` to it."
    return "If it stays so, ask the server's operator; a token in `headers` may work in place of `oauth`."
