"""`credentials: per-caller`: the accounts of callers at one server. A connection belongs to one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from msgspec import Struct

from pointsman.catalog.holders import GATEWAY, holder_of
from pointsman.catalog.identities import person_of
from pointsman.config.model import GatewayConfig
from pointsman.config.sections.server import Server
from pointsman.core.errors import ServerUnavailableError
from pointsman.core.model import Caller
from pointsman.router.downstream.bundled import secret_values
from pointsman.router.downstream.connection import (
    CallNotSentError,
    Connect,
    Connection,
    ConnectionLostError,
    CredentialRefusedError,
    OnNotification,
    SignInNeededError,
    StoredTokens,
)

if TYPE_CHECKING:
    from pointsman.router.downstream.oauth.service import ServerSignIns
    from pointsman.router.downstream.oauth.token_source import TokenSource

ConnectWith = Callable[[Mapping[str, str], StoredTokens | None], Connect]
"""From the headers of all requests, and what adds a token to each."""

NO_HEADERS = "it has no headers for this caller"


class CallerAccounts(Struct, frozen=True, eq=False):
    """Which account a caller uses. Nothing of one caller's is ever used for another."""

    server_id: str
    server: Server
    config: Callable[[], GatewayConfig]
    connect_with: ConnectWith
    sign_ins: Callable[[], ServerSignIns] | None  # None: no entry of this server has `oauth`

    def holder_of(self, caller: Caller) -> str:
        return holder_of(self.config(), caller)

    def check_headers(self, caller: Caller) -> None:
        """Raises ServerUnavailableError: the caller would need headers of its own, and the operator has set none."""
        if self.server.oauth is not None or self.holder_of(caller) == GATEWAY or self._own_headers(caller) is not None:
            return
        person = person_of(caller.token_id)
        raise ServerUnavailableError(
            self.server_id,
            f"it has no headers for `{person}`, and there each caller has its own",
            f"The operator adds `{person}` to `servers.{self.server_id}.caller_headers`; until then, use another tool.",
        )

    def connect(self, caller: Caller) -> Connect:
        """How to open a connection with the account that the caller has now."""
        headers = secret_values(self.server.headers)
        own = self._own_headers(caller)
        if own is not None:
            return self.connect_with(_overridden(headers, own), _OwnHeaders(self.server_id, person_of(caller.token_id)))
        source = self._source(caller)
        if source is None:
            return _refuse if self.holder_of(caller) != GATEWAY else self.connect_with(headers, None)
        return self.connect_with(headers, _OneAccount(source))

    async def look_up(self, caller: Caller) -> str:
        """`account_of`, read again if it may have changed. Raises CallNotSentError."""
        await self.signed_in_at(caller)
        return self.account_of(caller)

    def account_of(self, caller: Caller) -> str:
        """What tells an account from every other one, as far as it is known here. For connections."""
        source = self._source(caller)
        credential = source.credential if source is not None else None
        return f"{self.holder_of(caller)} {credential.signed_in if credential is not None else 0}"

    async def signed_in_at(self, caller: Caller, *, look: bool = False) -> float:
        """When the caller's person signed in, on the wall clock; 0: it has to. `look`: at another gateway, too.

        Callers that do not sign in have their account always.

        Raises:
            CallNotSentError: the store is away.
        """
        source = self._source(caller)
        if source is None or self._own_headers(caller) is not None or self.holder_of(caller) == GATEWAY:
            return 1.0
        credential = await (source.reload() if look else source.current())
        return credential.signed_in if credential is not None and credential.access else 0.0

    def _own_headers(self, caller: Caller) -> Mapping[str, str] | None:
        given = self.server.caller_headers.get(person_of(caller.token_id))
        return None if given is None else secret_values(given)

    def _source(self, caller: Caller) -> TokenSource | None:
        if self.server.oauth is None or self.sign_ins is None:
            return None
        return self.sign_ins().source(self.server_id, self.server, self.holder_of(caller))


class _OneAccount:
    """Fits `StoredTokens`: the tokens of one sign-in, so that no session with a server changes its account."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._signed_in: float | None = None  # None: nothing was sent yet

    async def reload(self) -> object:
        return await self._source.reload()

    async def header(self) -> str | None:
        return self._checked(await self._source.header())

    async def after_refusal(self, sent: str | None, status: int, challenge: str | None) -> str | None:
        return self._checked(await self._source.after_refusal(sent, status, challenge))

    def refused_again(self) -> SignInNeededError:
        return self._source.refused_again()

    def _checked(self, header: str | None) -> str | None:
        """Raises CallNotSentError: the header is of a later sign-in."""
        credential = self._source.credential
        signed_in = credential.signed_in if credential is not None else 0.0
        if self._signed_in is None:
            self._signed_in = signed_in
        if signed_in != self._signed_in:
            raise CallNotSentError("the person has signed in anew")
        return header


class _OwnHeaders:
    """Fits `StoredTokens`: adds no token to the caller's own headers, and says where they are if they are refused."""

    def __init__(self, server_id: str, person: str) -> None:
        self._server_id = server_id
        self._person = person

    async def reload(self) -> object:
        return None

    async def header(self) -> str | None:
        return None

    async def after_refusal(self, sent: str | None, status: int, challenge: str | None) -> str | None:
        """Raises CredentialRefusedError, ConnectionLostError."""
        place = f"servers.{self._server_id}.caller_headers.{self._person}"
        reason = f"it did not accept the credential of `{self._person}` (HTTP {status}): check `{place}`"
        if status == HTTPStatus.UNAUTHORIZED:
            raise CredentialRefusedError(reason)
        raise ConnectionLostError(reason)

    def refused_again(self) -> SignInNeededError:
        raise AssertionError("nothing is sent again")


async def _refuse(on_notification: OnNotification) -> Connection:
    raise ConnectionLostError(NO_HEADERS)


def _overridden(headers: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    named = {name.lower() for name in own}
    return {**{name: value for name, value in headers.items() if name.lower() not in named}, **own}
