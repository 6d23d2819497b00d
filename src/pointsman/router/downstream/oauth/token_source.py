"""The token for one server and holder: kept in memory, renewed once for all requests that need it (single-flight)."""

from __future__ import annotations

import asyncio
import logging
import time

from msgspec.structs import replace

from pointsman.core.model import WallClock
from pointsman.router.downstream.connection import (
    CallNotSentError,
    ConnectionLostError,
    ScopeNeededError,
    SignInNeededError,
)
from pointsman.router.downstream.oauth import tokens
from pointsman.router.downstream.oauth.discovery import SignInError, discover
from pointsman.router.downstream.oauth.documents import (
    Challenge,
    lacking,
    read_challenge,
    select_scope,
    shown_scopes,
    union,
)
from pointsman.router.downstream.oauth.settings import OAuthSettings
from pointsman.router.downstream.oauth.store import LEASE_S, Credential, Kept, SignInStore, UnreadableError
from pointsman.router.downstream.oauth.tokens import RefusedError, Tokens
from pointsman.router.state.key_values import StateAwayError

logger = logging.getLogger(__name__)

EARLY_S = 30.0  # before its end a token is renewed, so that none ends on its way
POLL_S = 0.1  # while another gateway renews it
FRESH_S = 5.0  # for which a caller's token is used unseen: then a sign-out at another gateway counts, too
AGAIN_S = 300.0  # a server that refuses a new token does not get the next one before that
_GONE = ("invalid_grant", "invalid_client", "unauthorized_client")  # a repetition would not help
_CHANGED = "its `url` or `oauth` has changed since the sign-in"
_SEALED = "the sign-in was stored with a key that `state.request_keys` no longer has"


class TokenSource:
    """Fits `Authorizer`."""

    def __init__(
        self,
        server: str,
        settings: OAuthSettings,
        store: SignInStore,
        holder: str = "",
        *,
        clock: WallClock = time.time,
        lease_s: float = LEASE_S,
    ) -> None:
        self._server = server
        self._settings = settings
        self._store = store
        self._holder = holder
        self._clock = clock
        self._lease_s = lease_s
        self._kept: Kept | None = None
        self._loaded = False
        self._loaded_at = float("-inf")  # on the loop's clock
        self._problem = ""
        self._renewal: asyncio.Task[None] | None = None
        self._stepping_up = asyncio.Lock()
        self._refused_at = float("-inf")  # a new token, on the loop's clock
        self.challenge = Challenge()  # the last one, for the sign-in

    # ------------------------------------------------------------------ for the connection

    async def header(self) -> str | None:
        credential = await self.current()
        if credential is None or not credential.access:
            if self._holder:
                raise self.needed()  # nothing is sent for a caller without the caller's own token
            if not self._settings.unattended:
                return None
            await self._renew(None)
        elif credential.expires is not None and credential.expires - EARLY_S <= self._clock():
            await self._renew_early(credential)
        return self._header()

    async def after_refusal(self, sent: str | None, status: int, challenge: str | None) -> str | None:
        said = read_challenge(challenge)
        if status == 401:
            self.challenge = said
            if sent is None:
                await self._load()
                if self._header() is None:
                    raise self.needed()
            else:
                await self._renew(sent)
            return self._header()
        if said.error != "insufficient_scope" or sent is None:
            return None
        return await self._with_more_scopes(sent, said)

    def refused_again(self) -> SignInNeededError:
        self._refused_at = asyncio.get_running_loop().time()
        return self.needed("it does not accept the new token", refused=True)

    def needed(self, problem: str = "", *, refused: bool = False) -> SignInNeededError:
        why = problem or self._problem
        if self._holder:
            hint = f": {why}" if why else ""
            return SignInNeededError(f"it needs a sign-in with the caller's own account{hint}", refused=refused)
        if self._settings.unattended:
            reason = f"its authorization server gives us no token that it accepts: {why or 'check `oauth`'}"
            return SignInNeededError(reason, person=False)
        hint = f" ({why})" if why else ""
        return SignInNeededError(f"it needs sign-in: run `pointsman server login {self._server}`{hint}")

    async def close(self) -> None:
        """Let a renewal finish: a refresh token that was used must be replaced by the new one."""
        if self._renewal is not None:
            await asyncio.wait([self._renewal], timeout=tokens.TOKEN_S)

    # ------------------------------------------------------------------ for the sign-in

    @property
    def credential(self) -> Credential | None:
        """The one in use; None: there is none, or it is for another URL or client."""
        return self._credential

    async def current(self) -> Credential | None:
        """The one in use, read again if it may have changed. Raises CallNotSentError."""
        if not self._loaded or (self._holder and self._is_stale()):
            await self._load()
        return self._credential

    def _is_stale(self) -> bool:
        """That there is none is never believed: the person may just have signed in at another gateway."""
        if self._header() is None:
            return True
        return asyncio.get_running_loop().time() - self._loaded_at >= FRESH_S

    async def reload(self) -> Credential | None:
        await self._load()
        return self._credential

    def use(self, kept: Kept) -> None:
        """A person has signed in."""
        self._kept, self._loaded, self._problem = kept, True, ""
        self._loaded_at = asyncio.get_running_loop().time()
        self._refused_at = float("-inf")

    def drop(self) -> None:
        """It was signed out."""
        self._kept, self._loaded, self._problem = None, True, ""
        self._loaded_at = asyncio.get_running_loop().time()

    # ------------------------------------------------------------------ what is stored

    @property
    def _credential(self) -> Credential | None:
        return self._kept.credential if self._kept is not None else None

    def _header(self) -> str | None:
        credential = self._credential
        return f"Bearer {credential.access}" if credential is not None and credential.access else None

    async def _load(self) -> None:
        """Raises CallNotSentError: the store is away."""
        try:
            kept = await self._store.get(self._server, self._holder)
        except UnreadableError:
            self._kept, self._problem = None, _SEALED
        except StateAwayError:
            if self._loaded:
                self._loaded_at = asyncio.get_running_loop().time()
                return  # what is in memory may still be good
            raise CallNotSentError("its sign-in cannot be read: the gateway's state cannot be used now") from None
        else:
            fits = kept is not None and self._settings.fits(kept.credential)
            self._problem = "" if kept is None else kept.credential.problem if fits else _CHANGED
            self._kept = kept if fits else None
        self._loaded, self._loaded_at = True, asyncio.get_running_loop().time()

    # ------------------------------------------------------------------ renewal

    async def _renew_early(self, credential: Credential) -> None:
        """A token that is still good outlasts a failure of its authorization server."""
        try:
            await self._renew(f"Bearer {credential.access}")
        except SignInNeededError:
            raise
        except ConnectionLostError:
            if credential.expires is not None and credential.expires <= self._clock():
                raise

    async def _renew(self, used: str | None) -> None:
        """Have another token than `used`. All requests wait for the same renewal, which none of them can cancel."""
        if self._header() not in (None, used):
            return
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().create_task(self._renew_once(used))
            self._renewal.add_done_callback(self._renewed)
        await asyncio.shield(self._renewal)

    def _renewed(self, done: asyncio.Task[None]) -> None:
        self._renewal = None
        if not done.cancelled():
            done.exception()  # the requests that waited have it

    async def _renew_once(self, used: str | None) -> None:
        """One gateway renews; the others wait for what it stores."""
        try:
            async with asyncio.timeout(2 * self._lease_s + tokens.TOKEN_S):
                while True:
                    await self._load()
                    if self._header() not in (None, used):
                        return
                    self._check_renewable()
                    lease = await self._store.take_lease(self._server, self._holder, self._lease_s)
                    if lease is not None:
                        break
                    await asyncio.sleep(POLL_S)
                try:
                    await self._load()
                    if self._header() in (None, used):
                        await self._exchange()
                finally:
                    await self._store.end_lease(self._server, self._holder, lease)
        except TimeoutError:
            raise CallNotSentError("its sign-in was not renewed in time") from None
        except StateAwayError:
            raise CallNotSentError("its sign-in cannot be renewed: the gateway's state cannot be used now") from None

    def _check_renewable(self) -> None:
        """Raises SignInNeededError."""
        if asyncio.get_running_loop().time() - self._refused_at < AGAIN_S:
            raise self.needed("it does not accept our tokens", refused=True)
        if self._settings.unattended:
            return
        if self._credential is None or not self._credential.refresh:
            raise self.needed(self._problem or ("the last one has ended" if self._credential is not None else ""))

    async def _exchange(self, scope: str | None = None) -> None:
        """Raises SignInNeededError, CallNotSentError."""
        credential, known = self._credential, self._kept
        try:
            if self._settings.unattended:
                await self._store_tokens(known, *await self._of_client(credential, scope))
            else:
                assert credential is not None
                got = await tokens.refresh(
                    credential.token_endpoint,
                    self._settings.current(credential.client),
                    self._settings.reach,
                    token=credential.refresh,
                    resource=credential.resource,
                )
                await self._store_tokens(known, credential, got)
        except RefusedError as error:
            if error.code in _GONE:
                await self._forget_tokens(
                    "its authorization server has ended it", client=error.code == "invalid_client"
                )
                raise self.needed() from None
            raise CallNotSentError(_clause(error)) from None
        except SignInError as error:
            raise CallNotSentError(_clause(error)) from None

    async def _of_client(self, credential: Credential | None, scope: str | None) -> tuple[Credential, Tokens]:
        """A token for the client itself (client credentials)."""
        settings = self._settings
        if credential is None or scope is None:
            found = await discover(settings.url, self.challenge, settings.reach, settings.issuer, settings.headers)
            wanted = select_scope(settings.scope, found.challenge.scope, found.metadata, found.server, refreshes=False)
            client = settings.client_at(found.server)
            assert client is not None  # the configuration has a client id
            asked = union(wanted, credential.scope if credential is not None else scope)
            credential = Credential(
                self._server,
                self._holder,
                settings.url,
                found.resource,
                found.server.token_endpoint,
                client,
                scope=asked,
            )
        else:
            credential = replace(credential, scope=scope)
        got = await tokens.of_client(
            credential.token_endpoint,
            settings.current(credential.client),
            settings.reach,
            scope=credential.scope or None,
            resource=credential.resource,
        )
        return credential, got

    async def _store_tokens(self, known: Kept | None, credential: Credential, got: Tokens) -> None:
        """Store them in the place of `known`, unless somebody has signed in or out meanwhile."""
        fresh = replace(
            credential,
            access=got.access,
            refresh=got.refresh or credential.refresh,
            expires=got.expires,
            scope=union(credential.scope, got.scope),
            signed_in=credential.signed_in or self._clock(),
            problem="",
        )
        try:
            kept = await (self._store.put(fresh) if known is None else self._store.replace(fresh, known.version))
            if kept is None:  # it was ended, or somebody has signed in anew
                await self._load()
                return
            self._kept = kept
        except StateAwayError:
            self._kept = Kept(fresh, 0)
            logger.error("server %s: the renewed sign-in could not be stored; it ends with this process", self._server)  # noqa: TRY400
        self._problem = ""

    async def _forget_tokens(self, problem: str, *, client: bool) -> None:
        """`client`: the client that was registered is not known any more, either."""
        self._problem = problem
        if self._kept is None:
            return
        ended = replace(self._kept.credential, access="", refresh="", expires=None, problem=problem)
        if client:
            ended = replace(ended, client=replace(ended.client, redirect_uri=""))
        kept = await self._store.replace(ended, self._kept.version)
        self._kept = kept or Kept(ended, 0)

    # ------------------------------------------------------------------ scopes

    async def _with_more_scopes(self, sent: str, said: Challenge) -> str | None:
        """A client gets a token with more scopes by itself; a person has to sign in again."""
        credential = self._credential
        asked = said.scope or ""
        if credential is None:
            return None
        if self._header() != sent:
            return self._header()  # it was renewed meanwhile
        missing = lacking(asked, credential.scope)
        if not missing:
            raise ScopeNeededError("it refuses this request, although the sign-in has the scopes that it asks for")
        if self._settings.unattended:
            async with self._stepping_up:
                if self._header() == sent:
                    await self._exchange(union(credential.scope, asked))
            return self._header()
        if missing not in credential.wanted:
            await self._want(credential, union(credential.wanted, asked))
        if self._holder:
            lacks = shown_scopes(missing)
            raise SignInNeededError(f"the caller's own account lacks scopes that it needs ({lacks})", lacks=lacks)
        raise ScopeNeededError(
            f"this request needs a sign-in with more scopes ({shown_scopes(missing)}): "
            f"run `pointsman server login {self._server}`"
        )

    async def _want(self, credential: Credential, wanted: str) -> None:
        """Remember it for the next sign-in."""
        assert self._kept is not None
        try:
            kept = await self._store.replace(replace(credential, wanted=wanted), self._kept.version)
        except StateAwayError:
            kept = None
        self._kept = kept or Kept(replace(credential, wanted=wanted), self._kept.version)


def _clause(error: SignInError) -> str:
    """Its text, as a reason within a sentence."""
    text = str(error).rstrip(".")
    return text[:1].lower() + text[1:]
