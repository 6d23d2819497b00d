"""Signs a person, or the gateway itself, in to servers: begins, finishes and ends sign-ins, and hands out tokens."""

from __future__ import annotations

import base64
import hashlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from pointsman.config.sections.server import Server
from pointsman.core.model import WallClock
from pointsman.router.auth.fetch import FetchError, checked_url, is_loopback_host
from pointsman.router.downstream.connection import ConnectionLostError
from pointsman.router.downstream.oauth import tokens
from pointsman.router.downstream.oauth.discovery import Discovered, SignInError, discover
from pointsman.router.downstream.oauth.documents import (
    FAILED,
    OTHER_ISSUER,
    authorization_url,
    select_scope,
    union,
)
from pointsman.router.downstream.oauth.links import SignInLinks
from pointsman.router.downstream.oauth.settings import OAuthSettings
from pointsman.router.downstream.oauth.store import Credential, Pending, SignInStore
from pointsman.router.downstream.oauth.token_source import TokenSource
from pointsman.router.downstream.oauth.tokens import Client
from pointsman.router.state.key_values import StateAwayError

logger = logging.getLogger(__name__)

MAX_SOURCES = 2000  # tokens in memory, of all servers and callers
COMMAND_CALLBACK = "/callback"  # the path to which a browser returns that `server login` waits for
DENIED = "access_denied"  # by the person, or for it
_MAX_CODE = 4096
_NO_PKCE = (
    "Its authorization server does not say that it supports PKCE with S256, so a sign-in there would not be safe. "
    "Ask its operator."
)


class ServerSignIns:
    """All sign-ins to servers. `holder` is whose it is: "" is the gateway's own."""

    def __init__(
        self, store: SignInStore, client_document: Callable[[], str | None] = lambda: None, clock: WallClock = time.time
    ) -> None:
        self.store = self._store = store
        self.links = SignInLinks(store, clock)
        self._client_document = client_document  # the https URL at which our own client metadata is
        self._clock = clock
        self._sources: OrderedDict[tuple[str, str], tuple[OAuthSettings, TokenSource]] = OrderedDict()

    def source(self, server_id: str, server: Server, holder: str = "") -> TokenSource:
        """The tokens for a server; the same object until its entry changes.

        Those of callers who have not called for long are forgotten, and read from the store again when they do.
        """
        settings = OAuthSettings.of(server)
        kept = self._sources.get((server_id, holder))
        if kept is None or kept[0] != settings:
            source = TokenSource(server_id, settings, self._store, holder, clock=self._clock)
            self._sources[server_id, holder] = kept = settings, source
        self._sources.move_to_end((server_id, holder))
        if len(self._sources) > MAX_SOURCES:
            self._sources.popitem(last=False)
        return kept[1]

    async def begin(self, server_id: str, server: Server, redirect_uri: str, holder: str = "") -> tuple[str, str]:
        """Return the URL at which a person signs in, and the state that comes back with its answer.

        Raises:
            SignInError, StateAwayError.
        """
        settings = OAuthSettings.of(server)
        if settings.unattended:
            raise SignInError("It has `grant: client_credentials`: the gateway signs in by itself.")
        source = self.source(server_id, server, holder)
        before = await source.reload()
        found = await discover(settings.url, source.challenge, settings.reach, settings.issuer, settings.headers)
        _require_safe(found)
        scope = select_scope(settings.scope, found.challenge.scope, found.metadata, found.server, refreshes=True)
        if before is not None and before.wanted:
            scope = union(before.scope, scope, before.wanted)
        client = await self._client(settings, found, before, redirect_uri, scope, server_id if holder else None)
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
        pending = Pending(
            server_id,
            holder,
            settings.url,
            found.server.issuer,
            found.server.names_issuer,
            verifier,
            redirect_uri,
            found.resource,
            found.server.token_endpoint,
            client,
            scope or "",
            found.server.revocation_endpoint or "",
        )
        await self._store.put_pending(state, pending)
        return _url(found, pending, state), state

    async def _client(
        self,
        settings: OAuthSettings,
        found: Discovered,
        before: Credential | None,
        redirect_uri: str,
        scope: str | None,
        common: str | None,
    ) -> Client:
        """A client id: as configured, our metadata document, one that was registered before, or a new one.

        `common`: the server whose callers have one registered client together.
        """
        known = before.client if before is not None else None
        configured = settings.client_at(found.server)
        if configured is not None:
            if settings.issuer is None and known is not None and known.issuer != found.server.issuer:
                raise SignInError(
                    "It names another authorization server than the one that `oauth.client_id` was used with. If that "
                    "is right, set `oauth.issuer` to the new one."
                )
            return configured
        document = self._client_document()
        if document is not None and found.server.client_documents:
            return Client(document, found.server.issuer)
        if known is not None and self._is_good(known, found.server.issuer, redirect_uri):
            return known
        if common is None:
            return await tokens.register(found.server, redirect_uri, scope, settings.reach)
        kept = await self._store.client(common, found.server.issuer, redirect_uri)
        if kept is not None and self._is_good(kept, found.server.issuer, redirect_uri):
            return kept
        fresh = await tokens.register(found.server, redirect_uri, scope, settings.reach)
        await self._store.put_client(common, fresh)
        return fresh

    def _is_good(self, client: Client, issuer: str, redirect_uri: str) -> bool:
        """Whether a client that was registered before can be used again."""
        same = (client.issuer, client.redirect_uri) == (issuer, redirect_uri)
        return same and (not client.expires or client.expires > self._clock())

    async def registered_port(self, server_id: str, server: Server, holder: str = "") -> int | None:
        """The loopback port that a client registered for a command returns to; None: there is none. Never raises."""
        try:
            before = await self.source(server_id, server, holder).reload()
            common = await self._store.clients(server_id) if holder else []
        except (ConnectionLostError, StateAwayError):  # the state cannot be read now
            return None
        known = [before.client] if before is not None else []
        ports = (_command_port(client.redirect_uri) for client in [*known, *common])
        return next((port for port in ports if port is not None), None)

    async def finish(self, state: str, answer: Mapping[str, str], server_of: Callable[[str], Server | None]) -> Pending:
        """Take what the authorization server answered through the browser, and store the tokens for its code.

        `answer` are the parameters of the redirect; `server_of` finds an entry as it is now.

        Raises:
            SignInError, StateAwayError.
        """
        pending = await self._store.take_pending(state)
        if pending is None:
            raise SignInError("This sign-in is unknown, has expired or was used already. Begin again.", "unknown_state")
        try:
            await self._redeem(pending, answer, server_of(pending.server))
        except SignInError as error:
            error.server, error.holder = pending.server, pending.holder
            raise
        return pending

    async def _redeem(self, pending: Pending, answer: Mapping[str, str], server: Server | None) -> None:
        """Raises SignInError, StateAwayError."""
        _check_issuer(pending, answer.get("iss"))
        if (error := answer.get("error")) is not None:
            why = f" ({error})" if tokens.is_error_code(error) else ""
            text = f"The authorization server did not let you sign in, or you refused{why}. Begin again."
            raise SignInError(text, DENIED if error == DENIED else FAILED)
        code = answer.get("code")
        if not code or len(code) > _MAX_CODE:
            raise SignInError("The authorization server sent no code. Begin again.")
        if server is None or server.oauth is None or server.url != pending.url:
            raise SignInError("The server's entry has changed since. Begin again.")
        settings = OAuthSettings.of(server)
        got = await tokens.redeem(
            pending.token_endpoint,
            settings.current(pending.client),
            settings.reach,
            code=code,
            verifier=pending.verifier,
            redirect_uri=pending.redirect_uri,
            resource=pending.resource,
        )
        credential = Credential(
            pending.server,
            pending.holder,
            pending.url,
            pending.resource,
            pending.token_endpoint,
            pending.client,
            pending.revocation_endpoint,
            got.access,
            got.refresh,
            got.expires,
            union(pending.scope, got.scope),
            signed_in=self._clock(),
        )
        kept = await self._store.put(credential)
        self.source(pending.server, server, pending.holder).use(kept)

    async def forget(self, server_id: str, server: Server | None, holder: str = "") -> bool:
        """End a sign-in: here, and at its authorization server if that can be. Raises StateAwayError."""
        credential = None
        if server is not None and server.oauth is not None:
            credential = await self.source(server_id, server, holder).reload()
        existed = await self._store.delete(server_id, holder)
        if (known := self._sources.get((server_id, holder))) is not None:
            known[1].drop()  # a connection may still have it
        if credential is not None and server is not None:
            await _revoke(credential, OAuthSettings.of(server))
        return existed

    async def listed(self, server_id: str) -> list[Credential]:
        """The sign-ins of a server, of all holders. Raises StateAwayError."""
        return await self._store.listed(server_id)

    async def all_listed(self) -> list[Credential]:
        """The sign-ins of all servers and holders. Raises StateAwayError."""
        return await self._store.listed()

    async def close(self) -> None:
        for _, source in self._sources.values():
            await source.close()


def _command_port(redirect_uri: str) -> int | None:
    parts = urlsplit(redirect_uri)
    return parts.port if is_loopback_host(parts.hostname or "") and parts.path == COMMAND_CALLBACK else None


def _require_safe(found: Discovered) -> None:
    if found.server.authorization_endpoint is None:
        raise SignInError(
            "Its authorization server has no page to sign in: its metadata has no authorization endpoint."
        )
    if "S256" not in found.server.pkce:
        raise SignInError(_NO_PKCE, "no_pkce")


def _url(found: Discovered, pending: Pending, state: str) -> str:
    challenge = base64.urlsafe_b64encode(hashlib.sha256(pending.verifier.encode()).digest()).decode().rstrip("=")
    parameters = [
        ("response_type", "code"),
        ("client_id", pending.client.id),
        ("redirect_uri", pending.redirect_uri),
        ("state", state),
        ("code_challenge", challenge),
        ("code_challenge_method", "S256"),
        ("resource", pending.resource),
    ]
    if pending.scope:
        parameters.append(("scope", pending.scope))
        if "offline_access" in pending.scope.split():
            parameters.append(("prompt", "consent"))
    assert found.server.authorization_endpoint is not None
    return authorization_url(found.server.authorization_endpoint, parameters)


def _check_issuer(pending: Pending, named: str | None) -> None:
    """RFC 9207: by exact comparison, and before anything else of the answer is looked at."""
    if named is None and not pending.names_issuer:
        return
    if named != pending.issuer:
        raise SignInError(
            "The answer does not come from the authorization server that was asked, so it was not used. Begin again; "
            "if that does not help, the server cannot be signed in to safely.",
            OTHER_ISSUER,
        )


async def _revoke(credential: Credential, settings: OAuthSettings) -> None:
    token = credential.refresh or credential.access
    if not credential.revocation_endpoint or not token:
        return
    try:
        checked_url(credential.revocation_endpoint, settings.reach)
        await tokens.revoke(credential.revocation_endpoint, settings.current(credential.client), settings.reach, token)
    except (SignInError, FetchError) as error:
        logger.warning("server %s: its authorization server was not told of the logout: %s", credential.server, error)
