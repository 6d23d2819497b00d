"""Shows who uses a browser: a sign-in at the issuer in `auth`, as any client of the gateway makes it.

The token is one for this gateway. It is verified like that of every caller, compared, and thrown away.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from typing import Final

from pointsman.catalog.identities import MCP_SCOPE
from pointsman.config.sections.auth import Auth
from pointsman.router.auth.fetch import Reach
from pointsman.router.downstream.oauth import tokens
from pointsman.router.downstream.oauth.discovery import SignInError, find_server
from pointsman.router.downstream.oauth.documents import OTHER_ISSUER, AuthorizationServer, authorization_url, shown
from pointsman.router.downstream.oauth.links import Proof
from pointsman.router.downstream.oauth.store import SignInStore
from pointsman.router.downstream.oauth.tokens import Client, configured_auth

_CLIENTS: Final = "@issuer"  # stands for a server's id where clients are kept; no server can have it
_MAX_CODE: Final = 4096
_NOT_SAFE: Final = (
    "You would sign in at {issuer} first, to show who you are, and it does not say that people can sign in there with "
    "PKCE (S256), without which that is not safe. Tell the operator of this gateway: the metadata of the issuer "
    "`{name}` in `auth` must have `authorization_endpoint`, and `code_challenge_methods_supported` with `S256`."
)


async def begin_proof(
    issuer: Auth, resource: str, redirect_uri: str, store: SignInStore, client_document: str | None
) -> tuple[str, str, Proof]:
    """Return the URL at which the person signs in, the state of its answer, and what the answer is compared with.

    Raises:
        SignInError, StateAwayError.
    """
    reach = Reach.of(issuer.issuer)
    server = await find_server(issuer.issuer, reach, "Tell the operator of this gateway.")
    if server.authorization_endpoint is None or "S256" not in server.pkce:
        raise SignInError(_NOT_SAFE.format(issuer=shown(issuer.issuer), name=issuer.name))
    wanted = MCP_SCOPE if issuer.require_scope or MCP_SCOPE in (server.scopes or ()) else None
    client = await _client(issuer, server, redirect_uri, wanted, store, client_document)
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    parameters = [
        ("response_type", "code"),
        ("client_id", client.id),
        ("redirect_uri", redirect_uri),
        ("state", state),
        ("code_challenge", challenge),
        ("code_challenge_method", "S256"),
        ("resource", resource),
        *([("scope", wanted)] if wanted else []),
    ]
    url = authorization_url(server.authorization_endpoint, parameters)
    proof = Proof(server.issuer, server.names_issuer, verifier, redirect_uri, resource, server.token_endpoint, client)
    return url, state, proof


async def finish_proof(proof: Proof, answer: Mapping[str, str]) -> str:
    """Return an access token of the person for this gateway, not verified yet. Raises SignInError."""
    named = answer.get("iss")
    if named != proof.issuer and (named is not None or proof.names_issuer):
        raise SignInError(
            "The answer does not come from the authorization server that was asked. Begin again.", OTHER_ISSUER
        )
    code = answer.get("code")
    if answer.get("error") is not None or not code or len(code) > _MAX_CODE:
        raise SignInError("You were not signed in there, or you refused. Begin again.")
    got = await tokens.redeem(
        proof.token_endpoint,
        proof.client,
        Reach.of(proof.issuer),
        code=code,
        verifier=proof.verifier,
        redirect_uri=proof.redirect_uri,
        resource=proof.resource,
    )
    return got.access


async def _client(
    issuer: Auth,
    server: AuthorizationServer,
    redirect_uri: str,
    scope: str | None,
    store: SignInStore,
    client_document: str | None,
) -> Client:
    if issuer.client_id is not None:
        secret = issuer.client_secret.get_secret_value() if issuer.client_secret is not None else ""
        return Client(issuer.client_id, server.issuer, secret, configured_auth(server, secret, None))
    if client_document is not None and server.client_documents:
        return Client(client_document, server.issuer)
    known = await store.client(_CLIENTS, server.issuer, redirect_uri)
    if known is not None:
        return known
    if server.registration_endpoint is None:
        raise SignInError(
            "The authorization server of this gateway's callers registers no clients by itself: the operator registers "
            "one there, and sets `auth.client_id`."
        )
    fresh = await tokens.register(server, redirect_uri, scope, Reach.of(issuer.issuer), "auth.client_id")
    await store.put_client(_CLIENTS, fresh)
    return fresh
