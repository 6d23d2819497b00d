"""The authorization server: issues codes and tokens, revokes grants, and says who an access token stands for."""

from __future__ import annotations

import asyncio
import base64
import logging
import math
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final, ParamSpec, TypeVar

from msgspec import Struct

from pointsman.catalog.identities import Identity, person_of
from pointsman.config.model import CurrentConfig, Token
from pointsman.config.sections.value_types import Scope
from pointsman.core.errors import SignInUnavailableError, UnauthorizedError
from pointsman.core.model import Json, WallClock
from pointsman.router.audit.log import AuditLog
from pointsman.router.auth.metadata import Resources, own_issuer
from pointsman.router.auth.server import redirects
from pointsman.router.auth.server.clients import ClientDocuments, Registrar, is_document
from pointsman.router.auth.server.requests import (
    VERIFIER,
    AuthorizationRequest,
    Client,
    ClientError,
    OwnResources,
    RequestError,
    answer_url,
    scope_text,
    scopes_of,
)
from pointsman.router.auth.server.store import (
    ACCESS,
    CODE,
    IDENTITY,
    MAX_GRANTS,
    REFRESH,
    SECRET_CHARS,
    Code,
    Grant,
    GrantStore,
    Issued,
    Refusal,
)
from pointsman.router.state.key_values import KeyValues, StateAwayError

POLL_S: Final = 1.0  # a replica hears of a revocation at another one within this time
AT_ONCE: Final = 4  # threads that look something up for strangers
STATE_S: Final = 10.0
LOOKS: Final = 12  # after a revocation elsewhere: what was looked up before it may arrive as late as STATE_S
MAX_ENDED: Final = 10_000
AUTHORIZE, TOKEN, REGISTER, REVOKE = "oauth/authorize", "oauth/token", "oauth/register", "oauth/revoke"
SOURCE: Final = "@oauth"  # its rows have a limit of their own: strangers must not take the place of the owner's
_FORM = re.compile(rf"(?:{ACCESS}|{REFRESH}|{CODE})[A-Za-z0-9_-]{{43}}")
_MOVED = "This gateway has another address than the one that was signed in at. Sign in again."
_AWAY = "The state database cannot be used now. Try again later."

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class Choice(Struct, frozen=True):
    """What the owner allows."""

    projects: tuple[str, ...]
    servers: tuple[str, ...]
    scopes: tuple[Scope, ...]
    expires: float  # wall clock; 0: never


class AuthorizationServer:
    """One for the life of a gateway. Fits `IdentitySource`. Used from the event loop."""

    def __init__(
        self,
        values: KeyValues,
        current: CurrentConfig,
        audit: AuditLog,
        keys: Sequence[str],
        *,
        shared: bool,
        clock: WallClock = time.time,
    ) -> None:
        """`shared`: other gateways use the same store."""
        self.store = GrantStore(values)
        self.registrar = Registrar(keys, clock)
        self.revoked: Callable[[str], None] = lambda identity_id: None  # called with an identity that has ended
        self.ended: Callable[[str], object] = lambda person: None  # called once for a grant that was revoked here
        self._documents = ClientDocuments(lambda: self.issuer, clock)
        self._current = current
        self._audit = audit
        self._shared = shared
        self._clock = clock
        self._known: dict[str, tuple[Token, float]] = {}  # by identity: the rights of grants, and their ends
        self._widest: dict[str, str] = {}  # by identity: the one with all scopes that it could get, if it lacks some
        self._possible: dict[str, tuple[Token, float]] = {}  # the rights of those; no access token has them
        self._ended: OrderedDict[str, None] = OrderedDict()  # identities that were revoked, the oldest first
        self._epoch = 0
        self._slots = asyncio.Semaphore(AT_ONCE)

    @property
    def issuer(self) -> str:
        """The exact string that the configuration has; empty: a reload has switched the server off."""
        return own_issuer(self._current.config) or ""

    @property
    def resources(self) -> OwnResources:
        return OwnResources(self.issuer, self._current.config.projects)

    # ------------------------------------------------------------------ authorization

    async def client(self, client_id: str) -> Client:
        """Who asks. May fetch a document, so it is for the owner's requests only. Raises RequestError."""
        if is_document(client_id):
            return await self._documents.client(client_id)
        registration = self.registrar.registration(client_id)
        if registration is None or not self.registrar.is_fresh(registration):
            try:
                registration = await self._in_thread(self.store.client, client_id)
            except StateAwayError:
                raise RequestError(_AWAY) from None
        if registration is None:
            raise RequestError("The client is unknown here, or its registration has expired. Let it connect again.")
        return Client(client_id, registration.name, registration.redirect_uris)

    async def allow(self, request: AuthorizationRequest, choice: Choice) -> str:
        """Record the owner's yes; return where the browser takes the code. Raises RequestError."""
        client = request.client
        grant = Grant(
            secrets.token_hex(8),
            client.id,
            client.name,
            redirects.target_of(request.redirect_uri),
            request.resource,
            choice.projects,
            choice.servers,
            choice.scopes,
            self._clock(),
            choice.expires,
            asked=request.scopes,
        )
        try:
            if len(await self.grants()) >= MAX_GRANTS:
                raise RequestError(f"There are {MAX_GRANTS:,} grants. Revoke one that is not needed.")
            if registration := self.registrar.registration(client.id):
                await self._in_thread(self.store.keep_client, client.id, registration)
            code = await self._in_thread(self.store.add_code, Code(grant, request.redirect_uri, request.challenge))
        except StateAwayError:
            raise RequestError(_AWAY) from None
        self._record(AUTHORIZE, grant)
        return self._answer(request, {"code": code})

    def deny(self, request: AuthorizationRequest) -> str:
        """Record the owner's no; return where the browser takes it."""
        self.refuse(AUTHORIZE, "access_denied", client=request.client.name)
        return self._answer(request, {"error": "access_denied", "error_description": "The owner has refused."})

    def refuse(self, method: str, code: str, *, client: str = "", token_id: str | None = None) -> None:
        """Write the row of a request that was refused."""
        self._audit.record_refusal(code, kind="change", method=method, token_id=token_id, client=client)

    def registered(self, name: str) -> None:
        """Write the row of a client that has registered itself."""
        self._audit.record_change(REGISTER, "registered", client=name, source=SOURCE)

    def _answer(self, request: AuthorizationRequest, answer: dict[str, str]) -> str:
        return answer_url(request.redirect_uri, request.state, self.issuer, answer)

    # ------------------------------------------------------------------ tokens

    async def exchange(self, fields: dict[str, str]) -> Json:
        """Return tokens for a code. Raises ClientError, StateAwayError."""
        verifier, secret = fields.get("code_verifier", ""), fields.get("code", "")
        if not VERIFIER.fullmatch(verifier):
            raise self._refusal("invalid_request", "`code_verifier` is missing or malformed: PKCE is required.")
        if not _is_secret(secret, CODE):
            raise self._refusal("invalid_grant", "The code is not one of this server.")
        verified = base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=")
        outcome = await self._in_thread(
            self.store.exchange,
            secret,
            fields.get("client_id", ""),
            fields.get("redirect_uri"),
            verified,
            fields.get("resource"),
        )
        if isinstance(outcome, Issued):
            return self._issued(outcome, TOKEN)
        raise await self._refused(outcome, "code", fields.get("resource"))

    async def refresh(self, fields: dict[str, str]) -> Json:
        """Return new tokens for a refresh token, which ends with this. Raises ClientError, StateAwayError."""
        secret = fields.get("refresh_token", "")
        if not _is_secret(secret, REFRESH):
            raise self._refusal("invalid_grant", "The refresh token is not one of this server.")
        known = await self._in_thread(self.store.grant_of_refresh, secret)
        if known is not None and not self.is_accepted(known):
            raise self._refusal("invalid_grant", _MOVED, token_id=known.identity)
        scopes = self._narrowed(known, fields.get("scope")) if known is not None else ()
        outcome = await self._in_thread(
            self.store.refresh, secret, fields.get("client_id", ""), fields.get("resource"), scopes
        )
        if isinstance(outcome, Issued):
            return self._issued(outcome, "oauth/refresh")
        raise await self._refused(outcome, "refresh token", fields.get("resource"))

    def _narrowed(self, grant: Grant, asked: str | None) -> tuple[Scope, ...]:
        """The scopes of the next access token; none: all of the grant. Raises ClientError."""
        if asked is None:
            return ()
        try:
            named = scopes_of(asked)
        except ClientError as error:
            raise self._refusal(error.code, str(error), token_id=grant.identity) from None
        left: tuple[Scope, ...] = tuple(scope for scope in grant.scopes if scope in named)
        if not left:
            text = f"This grant has only: {scope_text(grant.scopes)}."
            raise self._refusal("invalid_scope", text, token_id=grant.identity)
        return () if left == grant.scopes else left

    async def revoke_secret(self, secret: str, client_id: str | None) -> None:
        """End the grant of an access or refresh token, if there is one (RFC 7009). Raises ClientError, StateAwayError.

        `client_id`: who asks, by its own word; None: it does not say, and having the token is enough.
        """
        grant: Grant | None = None
        if _is_secret(secret, REFRESH):
            grant = await self._in_thread(self.store.grant_of_refresh, secret)
        elif _is_secret(secret, ACCESS):
            found = await self._in_thread(self.store.grant_of_access, secret)
            grant = found[0] if found is not None else None
        if grant is None:
            return
        if client_id not in (None, grant.client_id):
            self.refuse(REVOKE, "invalid_grant", client=grant.client, token_id=grant.identity)
            text = "The token is not this client's, so it was not revoked. Send the `client_id` that it was issued to."
            raise ClientError("invalid_grant", text)
        await self.revoke(grant, client=grant.client)

    def _issued(self, issued: Issued, method: str) -> Json:
        self._keep(issued.grant, issued.scopes)
        self._record(method, issued.grant)
        return {
            "access_token": issued.access,
            "token_type": "Bearer",
            "expires_in": int(issued.expires_s),
            "refresh_token": issued.refresh,
            "scope": scope_text(issued.scopes),
        }

    async def _refused(self, refusal: Refusal, what: str, resource: str | None) -> ClientError:
        grant = refusal.grant
        token_id = grant.identity if grant is not None else None
        if grant is None or refusal.why == "unknown":
            return self._refusal("invalid_grant", f"The {what} is unknown, has expired, or was revoked.")
        if refusal.why == "reused":
            self.refuse(TOKEN, f"{what.replace(' ', '_')}_reused", client=grant.client, token_id=token_id)
            await self.revoke(grant, client="reuse")
            return ClientError(
                "invalid_grant", f"The {what} was used before. All that it gave is revoked: sign in again."
            )
        if refusal.why == "slow_down":
            wait_s = max(1, math.ceil(grant.hour + 3600 - self._clock()))
            self.refuse(TOKEN, "slow_down", token_id=token_id)
            text = f"This grant was refreshed {grant.refreshes} times within an hour. Try again in {wait_s} s."
            return ClientError("slow_down", text, 429, retry_s=wait_s)
        if resource not in (None, grant.resource):
            return self._refusal("invalid_target", f"The {what} is for another resource.", token_id=token_id)
        return self._refusal(
            "invalid_grant", f"The {what} is not this client's, or verifier or redirect URI differ.", token_id=token_id
        )

    def _refusal(self, code: str, text: str, status: int = 400, token_id: str | None = None) -> ClientError:
        self.refuse(TOKEN, code, token_id=token_id)
        return ClientError(code, text, status)

    # ------------------------------------------------------------------ grants

    @property
    def off(self) -> str:
        """Why clients cannot sign in now, and grants are not accepted; empty: they can."""
        if self._current.config.auth:
            return "`auth` is set, so people sign in at the issuers that it names."
        return "" if self.issuer else "`listen.public_url` is no longer set."

    def is_accepted(self, grant: Grant) -> bool:
        """Whether the gateway still has the address that the grant is for; a project of it may be gone."""
        return bool(self.issuer) and Resources(self.issuer, ()).named_by(grant.resource) is not None

    async def grants(self) -> list[Grant]:
        """Those that have not ended, the newest first. Raises StateAwayError."""
        now = self._clock()
        found = await self._in_thread(self.store.grants)
        return sorted((one for one in found if not one.has_ended(now)), key=lambda one: -one.created)

    async def revoke(self, grant: Grant, *, client: str) -> bool:
        """End a grant, here at once and at other gateways within a second. Raises StateAwayError."""
        revoked = await self._in_thread(self.store.revoke, grant.id)
        self._end(grant.identity)
        if revoked:
            self._audit.record_change(
                REVOKE, f"grants.{grant.id}", client=client, token_id=grant.identity, source=SOURCE
            )
            self.ended(grant.identity)
        return revoked

    async def run(self) -> None:
        """Hear of revocations at other gateways, until it is cancelled."""
        looks = 0
        while self._shared:
            await asyncio.sleep(POLL_S)
            try:
                epoch = await asyncio.to_thread(self.store.epoch)
                if epoch != self._epoch:
                    self._epoch, looks = epoch, LOOKS
                if looks:
                    await self._look()
                    looks -= 1
            except StateAwayError:
                logger.debug("revocations of other gateways cannot be read now")

    async def _look(self) -> None:
        """End the grants that the store no longer has. Raises StateAwayError."""
        known = [*self._known]
        alive = {grant.identity for grant in await asyncio.to_thread(self.store.grants)}
        for identity_id in known:
            if person_of(identity_id) not in alive:
                self._end(person_of(identity_id))

    # ------------------------------------------------------------------ identities

    def may_know(self, secret: str) -> bool:
        return len(secret) == SECRET_CHARS and secret.startswith(ACCESS)

    async def identify(self, secret: str) -> Identity:
        """Raises UnauthorizedError, SignInUnavailableError."""
        try:
            found = await self._in_thread(self.store.grant_of_access, secret) if _is_secret(secret, ACCESS) else None
        except StateAwayError:
            raise SignInUnavailableError(_AWAY) from None
        if found is None or found[0].has_ended(self._clock()) or found[0].identity in self._ended:
            raise UnauthorizedError("The access token has expired, or its grant was revoked. Sign in again.")
        grant, access = found
        if not self.is_accepted(grant):
            raise UnauthorizedError(_MOVED)
        return Identity(grant.narrowed(access.scopes), self._keep(grant, access.scopes), access.expires)

    def rights_of(self, identity_id: str) -> Token | None:
        known = self._known.get(identity_id) or self._possible.get(identity_id)
        if known is None or (known[1] and self._clock() >= known[1]):
            return None
        return known[0]

    def widest(self, identity_id: str) -> str:
        return self._widest.get(identity_id, identity_id)

    def _keep(self, grant: Grant, scopes: tuple[Scope, ...] = ()) -> Token:
        identity_id = grant.narrowed(scopes)
        known = self._known.get(identity_id)
        if known is None:
            known = grant.rights(scopes), grant.expires
            if grant.identity not in self._ended:  # revoked while it was looked up
                self._known[identity_id] = known
                self._keep_widest(grant, identity_id)
        return known[0]

    def _keep_widest(self, grant: Grant, identity_id: str) -> None:
        """Keep the rights that an identity could have by asking, so that it is told what to ask for."""
        widest = grant.narrowed(grant.possible)
        if widest != identity_id:
            self._widest[identity_id] = widest
            self._possible[widest] = grant.rights(grant.possible), grant.expires

    def _end(self, identity_id: str) -> None:
        """End a grant's identity, and those of its access tokens with fewer scopes."""
        narrowed = [one for one in self._known if person_of(one) == identity_id and one != identity_id]
        self._ended[identity_id] = None
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)
        for one in (identity_id, *narrowed):
            self._known.pop(one, None)
            self._possible.pop(self._widest.pop(one, ""), None)
            self.revoked(one)

    def _record(self, method: str, grant: Grant) -> None:
        what = f"grants.{grant.id}"
        self._audit.record_change(method, what, client=grant.client, token_id=grant.identity, source=SOURCE)

    async def _in_thread(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Raises StateAwayError, also if the store gives no answer in time."""
        async with self._slots:
            try:
                async with asyncio.timeout(STATE_S):
                    return await asyncio.to_thread(function, *args, **kwargs)
            except TimeoutError:
                raise StateAwayError("The state database has not answered in time.") from None


def is_grant(identity_id: str) -> bool:
    return identity_id.startswith(IDENTITY)


def _is_secret(text: str, prefix: str) -> bool:
    return text.startswith(prefix) and _FORM.fullmatch(text) is not None
