"""Asks the person behind a call to sign in to a server with an account of their own, and waits until that is done.

The client is asked by URL elicitation, with a link of ours. A client that cannot be asked gets the link in an error.
Whatever goes wrong, nothing is sent.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pointsman.config.model import CurrentConfig
from pointsman.core.errors import ServerUnavailableError, SignInRequiredError
from pointsman.core.model import Json
from pointsman.core.seams import BackChannel, CannotAskError, ClientGoneError, FrontRequest, ProtocolError
from pointsman.router.audit.log import Record
from pointsman.router.downstream.connection import ConnectionLostError
from pointsman.router.downstream.server.caller_accounts import CallerAccounts
from pointsman.router.gateway.rounds import RecordedRounds
from pointsman.router.state.key_values import StateAwayError

if TYPE_CHECKING:
    from pointsman.router.downstream.oauth.links import Link, SignInLinks

ASK: Final = "elicitation/create"
COMPLETE: Final = "notifications/elicitation/complete"
LOOK_EVERY_S: Final = 1.0  # for a sign-in that was finished at another gateway
WAIT_S: Final = 300.0  # for the person
_REASON: Final = "it needs a sign-in with the caller's own account"
_AGAIN: Final = "Make the same call again if it is still wanted."


class CallerSignIns:
    """`links` is called for the first caller that has to sign in."""

    def __init__(self, links: Callable[[], SignInLinks], address: Callable[[], str], current: CurrentConfig) -> None:
        self._links = links
        self._address = address  # where browsers find the gateway
        self._current = current

    async def require(
        self,
        request: FrontRequest,
        back: BackChannel,
        record: Record,
        accounts: CallerAccounts,
        refusal: SignInRequiredError | None = None,
    ) -> bool:
        """Return once the caller has an account; whether that took a person, so that the world may have changed.

        `refusal`: the server has refused the account that the caller had.

        Raises:
            SignInRequiredError, ServerUnavailableError: do not make the call.
            ProtocolError: its next row cannot be written.
        """
        accounts.check_headers(request.caller)
        try:
            since = await accounts.signed_in_at(request.caller)
            if refusal is None and since:
                return False
            if refusal is not None and refusal.refused:
                raise SignInRequiredError(
                    accounts.server_id,
                    refusal.reason,
                    "Another sign-in would not help. The operator finds more with "
                    f"`pointsman server credentials {accounts.server_id}`.",
                )
            await self._ask_person(request, back, record, accounts, since, refusal.lacks if refusal is not None else "")
        except StateAwayError:
            raise ServerUnavailableError(
                accounts.server_id, "sign-ins cannot be kept now, because the gateway's state cannot be used"
            ) from None
        except ConnectionLostError as error:
            raise ServerUnavailableError(accounts.server_id, str(error)) from None
        return True

    async def _ask_person(
        self,
        request: FrontRequest,
        back: BackChannel,
        record: Record,
        accounts: CallerAccounts,
        since: float,
        lacks: str,
    ) -> None:
        """`lacks`: scopes that the caller's account does not have."""
        from pointsman.router.downstream.oauth.links import CONNECT, TooManyLinksError

        server_id, caller, links, why = accounts.server_id, request.caller, self._links(), _reason(lacks)
        try:
            link = await links.open(server_id, caller, accounts.holder_of(caller), request.client.name)
        except TooManyLinksError:
            raise SignInRequiredError(
                server_id, f"{why}, and too many sign-ins wait for a person already", "Try again in five minutes."
            ) from None
        url, left = f"{self._address()}{CONNECT}/{link.text}", links.time_left(link)
        if not _takes_urls(request.client.capabilities):
            raise _with_link(server_id, why, url, left)
        rounds = RecordedRounds(back, request, record) if request.client.era == "modern" else None
        question = _question(self._name(server_id), url, left, lacks)
        try:
            done = await self._signed_in(rounds or back, question, accounts, request, link, since)
        except (CannotAskError, ProtocolError):
            raise _with_link(server_id, why, url, left) from None
        except ClientGoneError:
            raise SignInRequiredError(server_id, f"{why}, and the client left before that was done") from None
        if rounds is not None:
            rounds.next_round()  # unless the client's answer has begun it
        if not done:
            raise SignInRequiredError(server_id, f"{why}, and nobody signed in within five minutes", _AGAIN)
        if request.client.era == "legacy":
            back.notify(COMPLETE, {"elicitationId": question["elicitationId"]})

    async def _signed_in(
        self,
        back: BackChannel,
        question: Json,
        accounts: CallerAccounts,
        request: FrontRequest,
        link: Link,
        since: float,
    ) -> bool:
        """Whether the person signed in in time. Raises SignInRequiredError if it did not agree, and as `ask`."""
        done = asyncio.ensure_future(self._until_signed_in(accounts, request, link, since))
        asked = asyncio.ensure_future(back.ask(ASK, question))
        try:
            async with asyncio.timeout(WAIT_S):
                await asyncio.wait((asked, done), return_when=asyncio.FIRST_COMPLETED)
                if not done.done():
                    await self._check_answer(asked.result().get("action"), link)
                await done
        except TimeoutError:
            return False
        finally:
            asked.cancel()
            done.cancel()
            await asyncio.gather(asked, done, return_exceptions=True)
        return True

    async def _check_answer(self, action: object, link: Link) -> None:
        """Raises SignInRequiredError. Who closes the question has not said no: other calls may wait with the link."""
        if action == "accept":
            return
        if action == "cancel":
            raise SignInRequiredError(link.server, f"{_REASON}, and the question was closed without an answer", _AGAIN)
        await self._links().decline(link)
        raise _declined(link.server)

    async def _until_signed_in(self, accounts: CallerAccounts, request: FrontRequest, link: Link, since: float) -> None:
        """Raises SignInRequiredError if the person declined, and ConnectionLostError if the store is away."""
        while await accounts.signed_in_at(request.caller, look=True) <= since:
            if await self._links().is_declined(link):
                raise _declined(accounts.server_id)
            await self._links().wait(link.server, link.holder, LOOK_EVERY_S)

    def _name(self, server_id: str) -> str:
        server = self._current.config.servers.get(server_id)
        return server.name if server is not None and server.name else server_id


def _reason(lacks: str) -> str:
    if not lacks:
        return _REASON
    return f"the caller's own account lacks scopes that this call needs ({lacks}), so it needs a new sign-in"


def _question(name: str, url: str, left: str, lacks: str) -> Json:
    again = f" The account that is connected lacks scopes ({lacks})." if lacks else ""
    return {
        "mode": "url",
        "message": f"Sign in to {name} with your own account.{again} The link works once, within {left}.",
        "url": url,
        "elicitationId": secrets.token_urlsafe(18),
    }


def _takes_urls(capabilities: Json) -> bool:
    elicitation = capabilities.get("elicitation")
    return isinstance(elicitation, dict) and isinstance(elicitation.get("url"), dict)


def _declined(server_id: str) -> SignInRequiredError:
    return SignInRequiredError(server_id, f"{_REASON}, and the person refused", "Do not repeat it unless asked to.")


def _with_link(server_id: str, why: str, url: str, left: str) -> SignInRequiredError:
    return SignInRequiredError(
        server_id,
        why,
        f"The person opens {url} in a browser within {left} and signs in; then make the same call again.",
    )
