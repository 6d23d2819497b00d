"""Codes, grants and tokens in the key-value store, by their hashes. All functions block; call them from a thread.

`oauth/code/HASH` is a code that waits for its client, and for a while one that was used. `oauth/grant/ID` is a grant
with the hash of the one refresh token that works now; `oauth/refresh/HASH` and `oauth/access/HASH` lead to it. Each
step changes its keys in one transaction, so that of two gateways that get the same code or refresh token, one issues
tokens and the other finds it used. `oauth/epoch` gets a new version right before each revocation.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256
from itertools import combinations
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

from pointsman.catalog.identities import VARIANT, rights_token
from pointsman.config.model import Token
from pointsman.config.secrets import PREFIX
from pointsman.config.sections.value_types import SCOPES, Scope
from pointsman.router.state.key_values import KeyValues, StateAwayError

CODE_S: Final = 60.0
USED_CODE_S: Final = 3600.0  # a code that comes again within this time takes back what it gave
ACCESS_S: Final = 3600.0
REFRESH_S: Final = 30 * 86_400.0  # a grant ends when nobody has used its refresh token for so long
SPENT_S: Final = 7 * 86_400.0  # a refresh token that comes again within this time ends its grant
MAX_GRANTS: Final = 1000
MAX_REFRESHES: Final = 60  # of a grant in an hour
CLIENT_S: Final = 400 * 86_400.0  # a client that registered itself is known so long after the last consent
ACCESS: Final = f"{PREFIX}at_"
REFRESH: Final = f"{PREFIX}rt_"
CODE: Final = f"{PREFIX}ac_"
SECRET_CHARS: Final = len(ACCESS) + 43
IDENTITY: Final = "@grant/"
_GRANTS: Final = "oauth/grant/"
_EPOCH: Final = "oauth/epoch"

Kind = TypeVar("Kind", bound=msgspec.Struct)


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the owner has allowed a client."""

    id: str
    client_id: str
    client: str  # its name
    target: str  # where its answer went: a host, or the scheme of a program
    resource: str
    projects: tuple[str, ...]
    servers: tuple[str, ...]
    scopes: tuple[Scope, ...]
    created: float
    expires: float = 0.0  # 0: never, as long as it is used
    refresh: str = ""  # the hash of the refresh token that works now
    refreshed: float = 0.0
    hour: float = 0.0  # when the present hour of refreshes began
    refreshes: int = 0  # in this hour
    asked: tuple[Scope, ...] = ()  # that the client asked for; none: it is not known

    @property
    def identity(self) -> str:
        return f"{IDENTITY}{self.id}"

    def narrowed(self, scopes: tuple[Scope, ...]) -> str:
        """The identity of an access token with these scopes only; none stands for all of the grant."""
        return self.identity if scopes in ((), self.scopes) else f"{self.identity}{VARIANT}{'+'.join(scopes)}"

    @property
    def possible(self) -> tuple[Scope, ...]:
        """The scopes that the client could get by asking: its own, and those that the owner has not refused yet."""
        refused = set(self.asked or SCOPES).difference(self.scopes)
        return tuple(scope for scope in SCOPES if scope not in refused)

    def identities(self) -> list[str]:
        """Its own identity, and all narrowed ones that its access tokens can have."""
        sizes = range(1, len(self.scopes) + 1)
        return [self.narrowed(some) for size in sizes for some in combinations(self.scopes, size)]

    def rights(self, scopes: tuple[Scope, ...] = ()) -> Token:
        sha256 = rights_token(self.narrowed(scopes))
        return Token(sha256=sha256, projects=self.projects, servers=self.servers, scopes=scopes or self.scopes)

    def has_ended(self, now: float) -> bool:
        return bool(self.expires) and now >= self.expires


class Code(msgspec.Struct, frozen=True):
    grant: Grant  # to be
    redirect_uri: str
    challenge: str
    used: bool = False


class Access(msgspec.Struct, frozen=True, omit_defaults=True):
    grant: str
    expires: float
    scopes: tuple[Scope, ...] = ()  # none: all of the grant


class Registration(msgspec.Struct, frozen=True, rename={"name": "n", "redirect_uris": "r", "since": "t"}):
    """A client that has registered itself. Short names, because its id holds this."""

    name: str
    redirect_uris: tuple[str, ...]
    since: float


class Issued(NamedTuple):
    access: str
    refresh: str
    expires_s: float
    grant: Grant
    scopes: tuple[Scope, ...]


class Refusal(NamedTuple):
    """Why nothing was issued. `reused`: a secret that was used before, and whose grant has to end."""

    why: Literal["unknown", "mismatch", "reused", "slow_down"]
    grant: Grant | None = None


class GrantStore:
    """Every method raises StateAwayError."""

    def __init__(self, values: KeyValues) -> None:
        self._values = values

    def add_code(self, code: Code) -> str:
        secret = new_secret(CODE)
        self._values.put(_key("code", secret), msgspec.json.encode(code), life_s=CODE_S)
        return secret

    def exchange(
        self, secret: str, client_id: str, redirect_uri: str | None, verified: bytes, resource: str | None
    ) -> Issued | Refusal:
        """Use a code up. `verified` is the hash of the client's verifier, as text. A code that does not fit ends."""
        keys = _key("code", secret), new_secret(ACCESS), new_secret(REFRESH)
        code_key, access, refresh = keys
        found: list[Issued | Refusal] = [Refusal("unknown")]

        def change(now: float, kept: Mapping[str, bytes]) -> dict[str, tuple[bytes, float]]:
            if code_key not in kept:
                return {}
            code = _decoded(kept[code_key], Code)
            if code.used:
                found[0] = Refusal("reused", code.grant)
                return {}
            used = code_key, (msgspec.json.encode(msgspec.structs.replace(code, used=True)), USED_CODE_S)
            if not _fits(code, client_id, redirect_uri, verified, resource):
                found[0] = Refusal("mismatch", code.grant)
                return dict([used])
            issued, writes = _issue(code.grant, access, refresh, now)
            found[0] = issued
            return {**writes, used[0]: used[1]}

        entry = self._values.get(code_key)
        if entry is None:
            return found[0]
        grant = _decoded(entry.value, Code).grant
        self._values.change([code_key, _grant_key(grant.id), _key("access", access), _key("refresh", refresh)], change)
        return found[0]

    def refresh(
        self, secret: str, client_id: str, resource: str | None, scopes: tuple[Scope, ...] = ()
    ) -> Issued | Refusal:
        """Replace a refresh token by another one. One that was replaced before is refused as `reused`.

        `scopes` are those of the access token, some of the grant's; the next refresh can ask for all again.
        """
        spent_key = _key("refresh", secret)
        entry = self._values.get(spent_key)
        if entry is None:
            return Refusal("unknown")
        grant_id = entry.value
        grant_key = _grant_key(grant_id.decode())
        access, fresh = new_secret(ACCESS), new_secret(REFRESH)
        found: list[Issued | Refusal] = [Refusal("unknown")]

        def change(now: float, kept: Mapping[str, bytes]) -> dict[str, tuple[bytes, float]]:
            if grant_key not in kept:
                return {}
            grant = _decoded(kept[grant_key], Grant)
            refusal = _why_not(grant, secret, client_id, resource, now)
            if refusal is not None:
                found[0] = Refusal(refusal, grant)
                return {}
            issued, writes = _issue(_counted(grant, now), access, fresh, now, scopes)
            found[0] = issued
            return {**writes, spent_key: (grant_id, SPENT_S)}

        self._values.change([grant_key, spent_key, _key("access", access), _key("refresh", fresh)], change)
        return found[0]

    def grant_of_access(self, secret: str) -> tuple[Grant, Access] | None:
        """The grant that an access token belongs to, and what the token itself says."""
        entry = self._values.get(_key("access", secret))
        if entry is None:
            return None
        access = _decoded(entry.value, Access)
        grant = self.grant(access.grant)
        return (grant, access) if grant is not None else None

    def grant_of_refresh(self, secret: str) -> Grant | None:
        entry = self._values.get(_key("refresh", secret))
        return self.grant(entry.value.decode()) if entry is not None else None

    def grant(self, grant_id: str) -> Grant | None:
        entry = self._values.get(_grant_key(grant_id))
        return _decoded(entry.value, Grant) if entry is not None else None

    def grants(self) -> list[Grant]:
        return [_decoded(entry.value, Grant) for entry in self._values.list(_GRANTS).values()]

    def revoke(self, grant_id: str) -> bool:
        """End a grant and all its tokens; return whether there was one."""
        self._values.put(_EPOCH, b"")  # first: a gateway that ends in between has revoked nothing, and hidden nothing
        return self._values.delete(_grant_key(grant_id))

    def epoch(self) -> int:
        found = self._values.get(_EPOCH)
        return found.version if found is not None else 0

    def keep_client(self, client_id: str, registration: Registration) -> None:
        self._values.put(_key("client", client_id), msgspec.json.encode(registration), life_s=CLIENT_S)

    def client(self, client_id: str) -> Registration | None:
        entry = self._values.get(_key("client", client_id))
        return _decoded(entry.value, Registration) if entry is not None else None


def new_secret(prefix: str) -> str:
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


# ---------------------------------------------------------------------- helpers


def _fits(code: Code, client_id: str, redirect_uri: str | None, verified: bytes, resource: str | None) -> bool:
    return (
        hmac.compare_digest(code.challenge.encode(), verified)
        and code.grant.client_id == client_id
        and redirect_uri in (None, code.redirect_uri)
        and resource in (None, code.grant.resource)
    )


def _why_not(
    grant: Grant, secret: str, client_id: str, resource: str | None, now: float
) -> Literal["unknown", "mismatch", "reused", "slow_down"] | None:
    if grant.has_ended(now):
        return "unknown"
    if not hmac.compare_digest(grant.refresh, digest(secret)):
        return "reused"
    if grant.client_id != client_id or resource not in (None, grant.resource):
        return "mismatch"
    return "slow_down" if now < grant.hour + 3600 and grant.refreshes >= MAX_REFRESHES else None


def _counted(grant: Grant, now: float) -> Grant:
    if now < grant.hour + 3600:
        return msgspec.structs.replace(grant, refreshes=grant.refreshes + 1)
    return msgspec.structs.replace(grant, hour=now, refreshes=1)


def _issue(
    grant: Grant, access: str, refresh: str, now: float, scopes: tuple[Scope, ...] = ()
) -> tuple[Issued, dict[str, tuple[bytes, float]]]:
    left_s = max(grant.expires - now, 0.0) if grant.expires else REFRESH_S
    access_s, refresh_s = min(ACCESS_S, left_s), min(REFRESH_S, left_s)
    grant = msgspec.structs.replace(grant, refresh=digest(refresh), refreshed=now)
    return Issued(access, refresh, access_s, grant, scopes or grant.scopes), {
        _grant_key(grant.id): (msgspec.json.encode(grant), refresh_s),
        _key("access", access): (msgspec.json.encode(Access(grant.id, now + access_s, scopes)), access_s),
        _key("refresh", refresh): (grant.id.encode(), refresh_s),
    }


def _key(kind: str, secret: str) -> str:
    return f"oauth/{kind}/{digest(secret)}"


def _grant_key(grant_id: str) -> str:
    return f"{_GRANTS}{grant_id}"


def _decoded(value: bytes, kind: type[Kind]) -> Kind:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        raise StateAwayError("The grants were written by a newer Pointsman, or are damaged.") from error
