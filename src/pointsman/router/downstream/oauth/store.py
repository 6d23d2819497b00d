"""Sign-ins at rest: sealed with the gateway's keys, in the key-value store that all gateways on one state share.

A sign-in belongs to a server and a holder; the holder "" is the gateway itself. Whoever has the file without the keys
can read none of it. A lease, which ends by itself, lets one gateway at a time renew a sign-in.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from pointsman.core.sealing import SealError, Sealing
from pointsman.router.downstream.oauth.tokens import Client
from pointsman.router.state.key_values import ABSENT, KeyValues

PENDING_S = 600.0  # for a person to sign in
LEASE_S = 15.0  # longer than a token endpoint may take
CLIENT_S = 30 * 86_400.0  # then a client is registered anew
_CREDENTIAL, _PENDING, _LEASE, _CLIENT = "oauth/credential/", "oauth/pending/", "oauth/lease/", "oauth/client/"
_Value = TypeVar("_Value")


class UnreadableError(Exception):
    """It was sealed with a key that we do not have, or was modified."""


class Credential(Struct, frozen=True, omit_defaults=True):
    """One sign-in: who we are at the authorization server, and the tokens that it gave us."""

    server: str
    holder: str
    url: str  # the tokens are sent nowhere else
    resource: str
    token_endpoint: str
    client: Client
    revocation_endpoint: str = ""
    access: str = ""
    refresh: str = ""
    expires: float | None = None  # of the access token, on the wall clock
    scope: str = ""  # as granted, or as asked for
    wanted: str = ""  # further scopes that the server has asked for since
    signed_in: float = 0.0  # wall clock
    problem: str = ""  # why there are no tokens any more


class Pending(Struct, frozen=True, omit_defaults=True):
    """A sign-in that a person has begun: what must come back, and what the code is then exchanged with."""

    server: str
    holder: str
    url: str
    issuer: str
    names_issuer: bool
    verifier: str
    redirect_uri: str
    resource: str
    token_endpoint: str
    client: Client
    scope: str
    revocation_endpoint: str = ""


class Kept(Struct, frozen=True):
    credential: Credential
    version: int


class SignInStore:
    """Every method raises StateAwayError."""

    def __init__(self, values: KeyValues, keys: Sequence[str]) -> None:
        self._values = values
        self._sealing = Sealing(keys)

    async def get(self, server: str, holder: str) -> Kept | None:
        """Raises UnreadableError."""
        key = _key(_CREDENTIAL, server, holder)
        entry = await asyncio.to_thread(self._values.get, key)
        if entry is None:
            return None
        credential = self._unsealed(key, entry.value, Credential)
        if (credential.server, credential.holder) != (server, holder):
            raise UnreadableError
        return Kept(credential, entry.version)

    async def put(self, credential: Credential) -> Kept:
        """Store it, whatever was there before."""
        key = _key(_CREDENTIAL, credential.server, credential.holder)
        version = await asyncio.to_thread(self._values.put, key, self._sealed(key, credential))
        assert version is not None
        return Kept(credential, version)

    async def replace(self, credential: Credential, version: int) -> Kept | None:
        """Store it if the one in the store has this version. None: it has changed since."""
        key = _key(_CREDENTIAL, credential.server, credential.holder)
        stored = await asyncio.to_thread(self._values.put, key, self._sealed(key, credential), version=version)
        return None if stored is None else Kept(credential, stored)

    async def delete(self, server: str, holder: str) -> bool:
        return await asyncio.to_thread(self._values.delete, _key(_CREDENTIAL, server, holder))

    async def listed(self, server: str | None = None) -> list[Credential]:
        """All sign-ins that can be read: of a server, or of all servers."""
        below = _CREDENTIAL if server is None else f"{_CREDENTIAL}{server}/"
        entries = await asyncio.to_thread(self._values.list, below)
        found = []
        for key, entry in entries.items():
            try:
                found.append(self._unsealed(key, entry.value, Credential))
            except UnreadableError:
                continue
        return found

    # ------------------------------------------------------------------ sign-ins under way

    async def put_pending(self, state: str, pending: Pending) -> None:
        await self.put_value(_PENDING + digest(state), pending, PENDING_S)

    async def take_pending(self, state: str) -> Pending | None:
        """Return it to one caller, once. None: it is unknown, was used, or has expired."""
        return await self.take_value(_PENDING + digest(state), Pending)

    async def put_client(self, server: str, client: Client) -> None:
        """Keep a client that was registered for all callers of a server."""
        await self.put_value(_client_key(server, client.issuer, client.redirect_uri), client, CLIENT_S)

    async def client(self, server: str, issuer: str, redirect_uri: str) -> Client | None:
        return await self.value(_client_key(server, issuer, redirect_uri), Client)

    async def clients(self, server: str) -> list[Client]:
        """Those that were registered for all callers of a server."""
        return await self.values_below(f"{_CLIENT}{server}/", Client)

    # ------------------------------------------------------------------ values that end by themselves

    async def put_value(self, key: str, value: Struct, life_s: float) -> None:
        await asyncio.to_thread(self._values.put, key, self._sealed(key, value), life_s=life_s)

    async def value(self, key: str, kind: type[_Value]) -> _Value | None:
        """None: it does not exist, or cannot be read."""
        entry = await asyncio.to_thread(self._values.get, key)
        return None if entry is None else self._readable(key, entry.value, kind)

    async def take_value(self, key: str, kind: type[_Value]) -> _Value | None:
        """Return it to one caller, once. None: it does not exist, was taken, or cannot be read."""
        entry = await asyncio.to_thread(self._values.get, key)
        if entry is None or not await asyncio.to_thread(self._values.delete, key, version=entry.version):
            return None
        return self._readable(key, entry.value, kind)

    async def values_below(self, prefix: str, kind: type[_Value]) -> list[_Value]:
        entries = await asyncio.to_thread(self._values.list, prefix)
        found = (self._readable(key, entry.value, kind) for key, entry in entries.items())
        return [one for one in found if one is not None]

    async def count_below(self, prefix: str) -> int:
        return len(await asyncio.to_thread(self._values.list, prefix))

    def _readable(self, key: str, sealed: bytes, kind: type[_Value]) -> _Value | None:
        try:
            return self._unsealed(key, sealed, kind)
        except UnreadableError:
            return None

    # ------------------------------------------------------------------ leases

    async def take_lease(self, server: str, holder: str, life_s: float = LEASE_S) -> int | None:
        """Return the lease, or None while another has it."""
        key = _key(_LEASE, server, holder)
        return await asyncio.to_thread(self._values.put, key, secrets.token_bytes(8), version=ABSENT, life_s=life_s)

    async def end_lease(self, server: str, holder: str, lease: int) -> None:
        await asyncio.to_thread(self._values.delete, _key(_LEASE, server, holder), version=lease)

    # ------------------------------------------------------------------ sealing

    def _sealed(self, key: str, value: Struct) -> bytes:
        """The key is sealed with the value: a value that was moved to another key cannot be read."""
        return self._sealing.seal(msgspec.json.encode([key, value])).encode()

    def _unsealed(self, key: str, sealed: bytes, kind: type[_Value]) -> _Value:
        """Raises UnreadableError."""
        try:
            bound, value = msgspec.json.decode(self._sealing.unseal(sealed.decode()), type=tuple[str, msgspec.Raw])
            read = msgspec.json.decode(value, type=kind)
        except (SealError, UnicodeDecodeError, msgspec.DecodeError):
            raise UnreadableError from None
        if bound != key:
            raise UnreadableError
        return read


def _key(kind: str, server: str, holder: str) -> str:
    return f"{kind}{server}/{digest(holder) if holder else ''}"


def _client_key(server: str, issuer: str, redirect_uri: str) -> str:
    return f"{_CLIENT}{server}/{digest(f'{issuer} {redirect_uri}')}"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
