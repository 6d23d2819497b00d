"""Links at which a caller's person signs in to a server: for one use and five minutes, sealed in the key-value store.

A link leads to a page of ours that says who asks for what. Used there, it becomes a visit: what comes back from an
authorization server is then for the same browser only. The store is shared, so any replica can take either.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from msgspec import Struct

from pointsman.core.model import Caller, WallClock
from pointsman.router.downstream.oauth.store import SignInStore, digest
from pointsman.router.downstream.oauth.tokens import Client

CONNECT: Final = "/oauth/connect"  # the path of a link's page
LINK_S: Final = 300.0
VISIT_S: Final = 600.0  # for a person at authorization servers
REUSE_S: Final = 150.0  # a link that is good for this long is given out again, instead of a new one
MAX_LINKS: Final = 1000  # that nobody has used yet
_OPENING: Final = "@link"  # stands for a server's id where leases are kept; no server can have it
_OPENING_S: Final = 5.0  # of a lease: after that, the replica that had it is taken to be gone
_LOOK_AGAIN_S: Final = 0.02  # while another replica opens the same link
_ON_ITS_WAY_S: Final = 10.0  # until the person reads how long a link is good
_MINUTES: Final = ("a minute", "a minute", "two minutes", "three minutes", "four minutes", "five minutes")
_LINK, _VISIT, _DECLINED = "oauth/link/", "oauth/visit/", "oauth/declined/"
_FORM = re.compile(r"([0-9a-f]{32})\.([A-Za-z0-9_-]{43})")


class TooManyLinksError(Exception):
    """Too many sign-ins wait for a person already."""


class Link(Struct, frozen=True, omit_defaults=True):
    """What a link is for."""

    server: str
    token: str  # of the caller
    project: str | None
    holder: str
    client: str  # by its own word
    until: float  # wall clock
    place: str
    secret: str

    @property
    def text(self) -> str:
        return f"{self.place}.{self.secret}"

    @property
    def caller(self) -> Caller:
        return Caller(self.token, self.project)


class Proof(Struct, frozen=True):
    """A sign-in of the person at the issuer, which shows who uses the browser."""

    issuer: str
    names_issuer: bool
    verifier: str
    redirect_uri: str
    resource: str
    token_endpoint: str
    client: Client


class Visit(Struct, frozen=True, omit_defaults=True):
    """A link that was used in one browser."""

    link: Link
    browser: str  # the digest of its cookie
    until: float  # wall clock
    proof: Proof | None = None  # None: it is on its way to the server's authorization server


_Found = TypeVar("_Found", Link, Visit)


class SignInLinks:
    """Methods that await raise StateAwayError."""

    def __init__(self, store: SignInStore, clock: WallClock = time.time) -> None:
        self._store = store
        self._clock = clock
        self._signed_in: dict[tuple[str, str], asyncio.Event] = {}  # calls of this gateway that wait
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by place, while calls use them

    async def open(self, server: str, caller: Caller, holder: str, client: str) -> Link:
        """A link for this caller; the one that it has already, if that is good for some time. Raises TooManyLinksError.

        One caller has at most two links for a server.
        """
        place = digest(f"{server} {holder}")[:32]
        async with self._opening.setdefault(place, asyncio.Lock()):  # single-flight: calls at once get the same link
            found = await self._reusable(place, caller, client)
            return found or await self._open(place, server, caller, holder, client)

    async def _open(self, place: str, server: str, caller: Caller, holder: str, client: str) -> Link:
        """Under a lease, so that another replica does not open one for the same caller now."""
        lease = await self._lease(place)
        try:
            found = await self._reusable(place, caller, client)
            return found or await self._new(place, server, caller, holder, client)
        finally:
            if lease is not None:
                await self._store.end_lease(_OPENING, place, lease)

    async def _lease(self, place: str) -> int | None:
        """None: another replica has it for too long. Two links do less harm than none."""
        for _ in range(round(_OPENING_S / _LOOK_AGAIN_S)):
            lease = await self._store.take_lease(_OPENING, place, _OPENING_S)
            if lease is not None:
                return lease
            await asyncio.sleep(_LOOK_AGAIN_S)
        return None

    async def _reusable(self, place: str, caller: Caller, client: str) -> Link | None:
        now = self._clock()
        known = await self._store.values_below(f"{_LINK}{place}/", Link)
        fitting = (one for one in known if (one.token, one.client) == (caller.token_id, client))
        return next((one for one in fitting if one.until - now >= REUSE_S), None)

    async def _new(self, place: str, server: str, caller: Caller, holder: str, client: str) -> Link:
        """Raises TooManyLinksError."""
        if await self._store.count_below(_LINK) >= MAX_LINKS:
            raise TooManyLinksError
        known = await self._store.values_below(f"{_LINK}{place}/", Link)
        for link in sorted(known, key=lambda one: one.until)[:-1]:
            await self._store.take_value(_link_key(link.place, link.secret), Link)
        secret, until = secrets.token_urlsafe(32), self._clock() + LINK_S
        link = Link(server, caller.token_id, caller.project_id, holder, client, until, place, secret)
        await self._store.put_value(_link_key(place, secret), link, LINK_S)
        return link

    async def find(self, text: str) -> Link | None:
        """None: it is unknown, was used, or has expired."""
        key = _key_in(text)
        return None if key is None else self._valid(await self._store.value(key, Link))

    async def take(self, text: str) -> Link | None:
        """`find`, to one caller and once."""
        key = _key_in(text)
        return None if key is None else self._valid(await self._store.take_value(key, Link))

    def time_left(self, link: Link) -> str:
        """How long it is good, in words for people."""
        minutes = int((link.until - self._clock() + _ON_ITS_WAY_S) // 60)
        return _MINUTES[min(max(minutes, 0), len(_MINUTES) - 1)]

    async def decline(self, link: Link) -> None:
        """The person does not want it: use it up, and end the calls that wait for it. Nothing if it is in use."""
        if await self.take(link.text) is not None:
            await self.give_up(link)

    async def give_up(self, link: Link) -> None:
        """`decline` one that was used up."""
        await self._store.put_value(_declined_key(link), link, LINK_S + VISIT_S)
        self._wake(link.server, link.holder)

    async def is_declined(self, link: Link) -> bool:
        return await self._store.value(_declined_key(link), Link) is not None

    async def begin_visit(self, state: str, link: Link, browser: str, proof: Proof | None = None) -> None:
        visit = Visit(link, browser, self._clock() + VISIT_S, proof)
        await self._store.put_value(_VISIT + digest(state), visit, VISIT_S)

    async def find_visit(self, state: str) -> Visit | None:
        """None: it is unknown, was used, or has expired."""
        return self._valid(await self._store.value(_VISIT + digest(state), Visit))

    async def end_visit(self, state: str) -> Visit | None:
        """`find_visit`, to one caller and once."""
        return self._valid(await self._store.take_value(_VISIT + digest(state), Visit))

    def signed_in(self, server: str, holder: str) -> None:
        """Wake the calls that wait for it."""
        self._wake(server, holder)

    def _wake(self, server: str, holder: str) -> None:
        event = self._signed_in.pop((server, holder), None)
        if event is not None:
            event.set()

    async def wait(self, server: str, holder: str, limit_s: float) -> None:
        """Return when a person has signed in or declined at this gateway, or after `limit_s`."""
        event = self._signed_in.setdefault((server, holder), asyncio.Event())
        try:
            async with asyncio.timeout(limit_s):
                await event.wait()
        except TimeoutError:
            pass  # others may wait for the same one; they look for themselves, too
        finally:
            if self._signed_in.get((server, holder)) is event:
                del self._signed_in[server, holder]

    def _valid(self, found: _Found | None) -> _Found | None:
        return found if found is not None and found.until > self._clock() else None


def _link_key(place: str, secret: str) -> str:
    return f"{_LINK}{place}/{digest(secret)}"


def _declined_key(link: Link) -> str:
    return f"{_DECLINED}{link.place}/{digest(link.secret)}"


def _key_in(text: str) -> str | None:
    found = _FORM.fullmatch(text)
    return _link_key(found[1], found[2]) if found is not None else None
