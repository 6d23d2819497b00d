"""One live connection to a server, whatever its transport: the seam between transports and supervision."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from pointsman.core.model import Json
from pointsman.core.seams import BackChannel, Era, FrontRequest


class ConnectionLostError(Exception):
    """The connection is over, or this one exchange failed below JSON-RPC. `str(error)` is the reason, for people."""


class CallNotSentError(ConnectionLostError):
    """The connection was over before the call was sent, so it did not run, and may be sent again.

    Over HTTP a kept connection that turns out closed is replaced without this error (`HttpClient._send`). Where `over`,
    the server is disconnected and connected anew; in each case the executor sends the call once the server is back.
    """

    over = True


class NewConnectionClosedError(CallNotSentError):
    """The server closed a new connection before the call was written: it may have too many. It is not given up."""

    over = False


class SessionRenewedError(CallNotSentError):
    """The server had lost the session, so it did not process the call, and the connection has a new session by now.

    The server was probably restarted: its tools may have changed.
    """

    over = False


class SignInNeededError(CallNotSentError):
    """The server refused the request without looking at it: a person has to sign in first.

    `person` is false where the gateway signs in by itself, and was refused. `refused`: it refuses a token that is new,
    so that another sign-in would not help. `lacks`: scopes that the account does not have.
    """

    def __init__(self, reason: str, *, person: bool = True, refused: bool = False, lacks: str = "") -> None:
        super().__init__(reason)
        self.person = person
        self.refused = refused
        self.lacks = lacks


class ScopeNeededError(ConnectionLostError):
    """The server refused the request before it ran: the sign-in does not give the rights that it needs."""


class CredentialRefusedError(ConnectionLostError):
    """The server refused the request before it ran: it does not accept the headers that the operator has set."""


class Authorizer(Protocol):
    """Adds the gateway's or a caller's token to the requests to one server."""

    async def header(self) -> str | None:
        """The value of `Authorization` for the next request; None: it goes without.

        Raises:
            SignInNeededError, ConnectionLostError.
        """
        ...

    async def after_refusal(self, sent: str | None, status: int, challenge: str | None) -> str | None:
        """What to send once more, after a 401 or 403 with this `WWW-Authenticate`; None: this is no matter of tokens.

        Raises:
            SignInNeededError, ConnectionLostError.
        """
        ...

    def refused_again(self) -> SignInNeededError:
        """The error for a request that was refused with the new token, too."""
        ...


class StoredTokens(Authorizer, Protocol):
    """Tokens that others may change in the store: a person signs in or out, maybe at another gateway."""

    async def reload(self) -> object:
        """Read them again."""
        ...


class BudgetExceededError(Exception):
    """The server sent more bytes or messages than one call may bring. `str(error)` names the limit."""

    def __init__(self, reason: str, call: Call | None = None) -> None:
        super().__init__(reason)
        self.call = call  # whose budget it was, where several calls share the stream


class Clock(Protocol):
    """The time limit of a call, which is paused while the call waits for anything but the server."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Call(Struct, eq=False):  # a struct, because each call makes one
    """One request under way to a server. `request` and `back` are None for our own (handshake, lists)."""

    method: str
    params: Json
    request: FrontRequest | None = None
    back: BackChannel | None = None
    clock: Clock | None = None
    number: int = 0  # its id on the wire, once it is sent
    answer: asyncio.Future[Json] | None = None  # where all calls share one stream
    answered: bool = False  # by the server, with a result or an error
    elicitations: set[str] | None = None  # ids of what was asked out of band (URL mode)
    messages: int = 0  # notifications and questions so far, counted by the connection
    message_bytes: int = 0  # and their size


class Introduction(Struct, frozen=True):
    """What the handshake yielded: the negotiated version, and what the server declared."""

    era: Era
    version: str
    capabilities: Json
    server_info: Json
    instructions: str = ""  # compared with the pinned ones; no client gets them


class Connection(Protocol):
    """Connected, handshake done. Safe to use from many tasks at once; a failure stays with its request."""

    @property
    def introduction(self) -> Introduction: ...

    async def request(self, call: Call) -> Json:
        """Send `call` and return the result. Cancelling the caller cancels the request at the server.

        Raises:
            ConnectionLostError, BudgetExceededError, DownstreamError. CallNotSentError where nothing was sent.
        """
        ...

    async def ended(self) -> str:
        """Wait until the connection ends by itself and return the reason. Over HTTP that may be never.

        Raises:
            SignInNeededError: it has ended because of that.
        """
        ...

    async def close(self) -> None:
        """End it with all that belongs to it (child, streams). Idempotent."""
        ...


OnNotification = Callable[[str, Json], None]
"""Called with method and params of each notification that belongs to no call (list_changed, resources/updated)."""

Connect = Callable[[OnNotification], Awaitable[Connection]]
"""Opens a connection and negotiates the version. Raises ConnectionLostError with the reason. Safe to cancel."""
