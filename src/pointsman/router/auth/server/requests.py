"""What a client asks for at the authorization endpoint, checked. Pure.

Until client and redirect URI are verified, a mistake is told to the person (`RequestError`); afterwards, to the client
(`ClientError`), by a redirect. Nothing else is ever redirected to.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode

from msgspec import Struct

from pointsman.catalog.identities import OAUTH_SCOPES
from pointsman.config.sections.value_types import SCOPES, Scope
from pointsman.router.auth import metadata
from pointsman.router.auth.server import redirects

MAX_QUERY_CHARS: Final = 8192
MAX_FIELDS: Final = 64
# Of OpenID Connect. They ask for nothing that this server has, and clients send them by habit.
HARMLESS_SCOPES: Final = frozenset({"openid", "profile", "email", "offline_access"})
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")


class RequestError(Exception):
    """The request cannot be answered to a client. `str(error)` is for the person."""


class ClientError(Exception):
    """The client learns of it: an error code of OAuth, and a sentence."""

    def __init__(self, code: str, description: str, status: int = 400, *, retry_s: int | None = None) -> None:
        super().__init__(description)
        self.code = code
        self.status = status
        self.retry_s = retry_s  # when to try again, if that helps


class Client(Struct, frozen=True):
    """Who asks. `name` is the client's own claim; `host` is who answers for it, if anybody does."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    host: str = ""  # of its metadata document; empty: it has registered itself


class AuthorizationRequest(Struct, frozen=True):
    client: Client
    redirect_uri: str
    state: str | None
    challenge: str
    resource: str
    project: str | None  # that the resource is of; None: the owner chooses
    scopes: tuple[Scope, ...]  # at most these


class OwnResources(Struct, frozen=True):
    """The resources of this gateway: its MCP endpoints, by the URL that clients use."""

    public_url: str
    projects: Collection[str] = ()

    @property
    def default(self) -> str:
        return f"{self.public_url}/mcp"

    def project_of(self, resource: str) -> str | None:
        """The project of a resource; None: it is for all of them. Raises ClientError: it is not ours."""
        named = metadata.Resources(self.public_url, ()).named_by(resource)
        if named is None or named.project_id not in (None, *self.projects):
            raise ClientError("invalid_target", f"This gateway has no such resource. Its own is {self.default}.")
        return named.project_id


def read_query(query: str) -> dict[str, str]:
    """The parameters of a request, each once; those without a value count as absent. Raises RequestError."""
    if len(query) > MAX_QUERY_CHARS:
        raise RequestError(f"The request has more than {MAX_QUERY_CHARS:,} characters.")
    try:
        given = parse_qsl(query, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise RequestError("The request is not urlencoded UTF-8 text, or has too many parameters.") from None
    fields = dict(given)
    if len(fields) < len(given):
        raise RequestError("A parameter of the request appears more than once.")
    return fields


def verified_redirect(fields: Mapping[str, str], client: Client) -> str:
    """The redirect URI of a request, if it is one of the client's. Raises RequestError."""
    given = fields.get("redirect_uri", "")
    if not any(redirects.matches(one, given) for one in client.redirect_uris):
        raise RequestError(
            "The client asks for the answer at an address that is not one of its own, so nothing was sent there."
        )
    return given


def checked_request(
    fields: Mapping[str, str], client: Client, redirect_uri: str, resources: OwnResources
) -> AuthorizationRequest:
    """Raises ClientError."""
    if fields.keys() & {"request", "request_uri"}:
        raise ClientError("request_not_supported", "Send the parameters themselves, not a request object.")
    if fields.get("response_type") != "code":
        raise ClientError("unsupported_response_type", "`response_type` must be `code`.")
    if fields.get("response_mode", "query") != "query":
        raise ClientError("invalid_request", "`response_mode` must be `query`.")
    challenge = fields.get("code_challenge", "")
    if fields.get("code_challenge_method") != "S256" or not CHALLENGE.fullmatch(challenge):
        raise ClientError("invalid_request", "PKCE is required: a `code_challenge` with the method `S256`.")
    resource = fields.get("resource", resources.default)
    return AuthorizationRequest(
        client,
        redirect_uri,
        fields.get("state"),
        challenge,
        resource,
        resources.project_of(resource),
        scopes_of(fields.get("scope", "")),
    )


def scopes_of(text: str) -> tuple[Scope, ...]:
    """What tools may do by the scopes that are asked for. Without any, or with harmless ones only, everything.

    Unknown ones beside a known one are dropped. Raises ClientError: there are only unknown ones.
    """
    words = set(text.split())
    named = {scope for word in words for scope in OAUTH_SCOPES.get(word, ())}
    if not named and words - HARMLESS_SCOPES:
        raise ClientError("invalid_scope", f"The scopes of this gateway are: {', '.join(OAUTH_SCOPES)}.")
    return tuple(scope for scope in SCOPES if scope in named) or SCOPES


def scope_text(scopes: Collection[Scope]) -> str:
    """The scopes of a token as OAuth names them, in as few words as possible."""
    for word, named in OAUTH_SCOPES.items():
        if set(named) == set(scopes):
            return word
    return " ".join(word for word, named in OAUTH_SCOPES.items() if set(named) <= set(scopes))


def answer_url(redirect_uri: str, state: str | None, issuer: str, answer: Mapping[str, str]) -> str:
    """Where the browser goes with the answer: `iss` says who gives it (RFC 9207), `state` whom it is for."""
    fields = {**answer, **({"state": state} if state is not None else {}), "iss": issuer}
    return f"{redirect_uri}{'&' if '?' in redirect_uri else '?'}{urlencode(fields)}"
