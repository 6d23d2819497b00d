"""Callers that have signed in: who a verified access token stands for, and what it may use.

An identity stands where a token of the YAML does: its id is a `Caller.token_id`, and its rights are a `Token`. Ids
begin with `@`, which no id of the YAML can, so `@corp/alice#staff` and a token never meet.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from itertools import islice
from typing import Final, Protocol

from msgspec import Struct

from pointsman.config.model import Token
from pointsman.config.sections.value_types import Scope
from pointsman.core.errors import UnauthorizedError
from pointsman.core.model import WallClock

MARK: Final = "@"  # the first character of the id of an identity, and of the owner's
VARIANT: Final = "#"  # separates who an identity is from which of its rights it has: `person_of`
MAX_SECRETS: Final = 10_000  # verified access tokens that are remembered; beyond, one is verified again
MAX_IDENTITIES: Final = 10_000  # that are known to be valid; beyond, the longest unused has to be verified again
MAX_SHOWN: Final = 100
MAX_SECRET_CHARS: Final = 16_384  # of an access token

MCP_SCOPE: Final = "mcp"  # all that the identity's rights allow; what a client asks for that asks for nothing special
OAUTH_SCOPES: Final[dict[str, tuple[Scope, ...]]] = {
    MCP_SCOPE: ("read", "write", "destructive"),
    "mcp:read": ("read",),
    "mcp:write": ("write",),
    "mcp:destructive": ("destructive",),
}
"""The OAuth scopes of the gateway, and the `scopes` of a token that each leaves. They narrow rights, and add none."""


class Identity(Struct, frozen=True):
    """Who an access token stands for. The rights of an id are always the same until the configuration changes."""

    id: str  # `@<issuer name>/<subject>#<variant>` for a foreign issuer, `@grant/<id>` for the gateway's own server
    rights: Token  # made with `rights_token`
    expires: float  # wall clock


class IdentitySource(Protocol):
    """Verifies access tokens: those of configured issuers, or those that the gateway has issued itself."""

    def may_know(self, secret: str) -> bool:
        """Whether this looks like one of its tokens. By its form only; called for every unknown secret."""
        ...

    async def identify(self, secret: str) -> Identity:
        """Verify a token that `may_know` has accepted.

        Raises:
            UnauthorizedError: it is not valid here (401).
            ForbiddenError: it is valid, and gives no rights (403).
            ScopeError: it is valid, and its scope gives none (403 `insufficient_scope`).
        """
        ...

    def rights_of(self, identity_id: str) -> Token | None:
        """The rights that an id has now, after a reload or a revocation; None: none, or it is not from this source.

        Called several times for each call of a signed-in caller, so it must not wait for anything.
        """
        ...

    def widest(self, identity_id: str) -> str:
        """The id of the same person with all scopes that another sign-in could give; it has rights, and no secret.

        The id itself, if none could give more, or if it is not from this source.
        """
        ...


class Identities:
    """The identities that are signed in. One for the life of the gateway, so that a reload signs nobody out.

    What a source has verified is kept by the hash of the secret, with a bound; when it was evicted, the next request
    verifies it again.
    """

    def __init__(self, sources: Sequence[IdentitySource] = (), *, clock: WallClock = time.time) -> None:
        self.sources: list[IdentitySource] = list(sources)
        self._clock = clock
        self._secrets: OrderedDict[bytes, Identity] = OrderedDict()  # the longest unused first
        self._expiry: OrderedDict[str, float] = OrderedDict()  # by id: of its token that is valid longest
        self._verifying: dict[bytes, asyncio.Future[Identity]] = {}

    async def sign_in(self, secret: str | None) -> None:
        """Verify a secret that is new, so that `find` knows it. A secret that no source may know is left alone.

        Raises what `IdentitySource.identify` raises.
        """
        if not secret:
            return
        if len(secret) > MAX_SECRET_CHARS:
            self._refuse_long(secret)
            return
        digest = _digest(secret)
        known = self._secrets.get(digest)
        if known is not None and self._clock() < known.expires:
            return
        source = next((one for one in self.sources if one.may_know(secret)), None)
        if source is not None:
            self._remember(digest, await self._verified(digest, source, secret))

    def _refuse_long(self, secret: str) -> None:
        if any(one.may_know(secret) for one in self.sources):
            raise UnauthorizedError(
                f"This access token has more than {MAX_SECRET_CHARS} characters, so it was not checked. "
                "Let the authorization server put fewer claims into it."
            )

    def find(self, secret: str) -> str | None:
        """The id of the identity with this secret; None: it has not signed in, or is no longer valid."""
        digest = _digest(secret)
        identity = self._secrets.get(digest)
        if identity is None:
            return None
        if self._clock() >= identity.expires or self.rights_of(identity.id) is None:
            del self._secrets[digest]
            return None
        self._remember(digest, identity)
        return identity.id

    def is_valid(self, identity_id: str, now: float) -> bool:
        """Whether an identity that has signed in would be accepted now."""
        expires = self._expiry.get(identity_id)
        return expires is not None and now < expires and self.rights_of(identity_id) is not None

    def signed_in(self) -> list[str]:
        """The identities that have sent a request lately, the latest first; at most `MAX_SHOWN`."""
        now = self._clock()
        return [one for one in islice(reversed(self._expiry), MAX_SHOWN) if self.is_valid(one, now)]

    def rights_of(self, identity_id: str) -> Token | None:
        """The rights of an identity as they are now; None: it has none."""
        for source in self.sources:
            rights = source.rights_of(identity_id)
            if rights is not None:
                return rights
        return None

    def widest(self, identity_id: str) -> str:
        """The id of the same person with all scopes that another sign-in could give."""
        found = (source.widest(identity_id) for source in self.sources)
        return next((one for one in found if one != identity_id), identity_id)

    def forget(self, identity_id: str) -> None:
        """Sign an identity out, after a revocation: its streams end, and its secrets have to be verified again."""
        self._expiry.pop(identity_id, None)
        for digest in [one for one, identity in self._secrets.items() if identity.id == identity_id]:
            del self._secrets[digest]

    def forget_all(self) -> None:
        """Have every secret verified again, after a change of the rules that identities come from."""
        self._secrets.clear()
        self._expiry.clear()

    async def _verified(self, digest: bytes, source: IdentitySource, secret: str) -> Identity:
        """Single-flight: requests that bring the same new secret together have it verified once."""
        under_way = self._verifying.get(digest)
        if under_way is None:
            under_way = self._verifying[digest] = asyncio.ensure_future(source.identify(secret))
            under_way.add_done_callback(lambda done: self._ended(digest, done))
        return await asyncio.shield(under_way)

    def _ended(self, digest: bytes, done: asyncio.Future[Identity]) -> None:
        self._verifying.pop(digest, None)
        if not done.cancelled():
            done.exception()  # looked at, also if all requests that waited for it have left

    def _remember(self, digest: bytes, identity: Identity) -> None:
        self._secrets[digest] = identity
        self._secrets.move_to_end(digest)
        if len(self._secrets) > MAX_SECRETS:
            self._secrets.popitem(last=False)
        self._expiry[identity.id] = max(identity.expires, self._expiry.get(identity.id, 0.0))
        self._expiry.move_to_end(identity.id)
        if len(self._expiry) > MAX_IDENTITIES:
            self._expiry.popitem(last=False)


def is_identity(token_id: str) -> bool:
    """Whether an id is that of an identity; the owner's is not."""
    return token_id.startswith(MARK) and "/" in token_id


def person_of(token_id: str) -> str:
    """Who is behind an id, whichever of its rights it uses: rates count by it, and credentials belong to it."""
    return token_id.partition(VARIANT)[0]


def rights_token(identity_id: str) -> str:
    """The `sha256` of the `Token` that holds an identity's rights. No secret has it: it is the hash of the id."""
    return sha256(identity_id.encode()).hexdigest()


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
