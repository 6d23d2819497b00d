"""The keys of an issuer: found by its metadata, cached, and fetched again when one is missing, within bounds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pointsman.config.sections.auth import Auth
from pointsman.core.errors import SignInUnavailableError
from pointsman.core.model import Json
from pointsman.router.auth.fetch import FetchError, Reach, fetch_json

if TYPE_CHECKING:
    from jwt import PyJWK

logger = logging.getLogger(__name__)

FRESH_S: Final = 600.0  # after which keys are fetched again in the background, to learn of removed ones
USABLE_S: Final = 86_400.0  # how long keys count while the issuer does not answer
RETRY_S: Final = 30.0  # between two fetches, whoever asks for keys that are not there
FIRST_RETRY_S: Final = 2.0  # while none have ever been fetched
MAX_KEYS: Final = 100
RSA_BITS: Final = range(2048, 8193)  # smaller ones can be broken, larger ones cost too much to check
_FAMILIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {  # the type of a key, and its curves
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", ())),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
}

Clock = Callable[[], float]


class KeySet:
    """The keys of one issuer. A fetch is single-flight, and there is one in `RETRY_S` at most."""

    def __init__(self, issuer: Auth, clock: Clock = time.monotonic) -> None:
        self._issuer = issuer
        self._clock = clock
        self._reach = Reach.of(issuer.issuer, issuer.jwks_uri)
        self._keys: list[Json] | None = None  # as the issuer lists them; None: not fetched yet
        self._parsed: dict[tuple[str | None, str], PyJWK | None] = {}
        self._fetched = float("-inf")
        self._tried = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self._failing = False

    async def find(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        """The key for a signature; None: the issuer has none. A key that is missing may be new, so it is looked for.

        Raises SignInUnavailableError: the issuer does not answer, and what was fetched before is too old.
        """
        age = self._clock() - self._fetched
        if self._keys is None or age > USABLE_S:
            await self._fetch_if_due()
        elif age > FRESH_S:
            self._start_if_due()
        if self._keys is None or self._clock() - self._fetched > USABLE_S:
            raise SignInUnavailableError(
                f"The gateway could not fetch the keys of {self._issuer.issuer}, so it cannot check access tokens. "
                "Try again in a moment; the operator finds the reason in the gateway's log."
            )
        found = self._select(key_id, algorithm)
        if found is None and await self._fetch_if_due():
            found = self._select(key_id, algorithm)
        return found

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    def _select(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        """By its id; without one, the only key that fits."""
        fits = [one for one in self._keys or () if is_usable(one, algorithm)]
        if key_id is not None:
            fits = [one for one in fits if one.get("kid") == key_id]
        if len(fits) != 1:
            return None
        cached = (key_id, algorithm)
        if cached not in self._parsed:
            self._parsed[cached] = _parsed(fits[0], algorithm)
        return self._parsed[cached]

    async def _fetch_if_due(self) -> bool:
        """Whether keys have been fetched now."""
        if not self._start_if_due():
            return False
        assert self._fetching is not None
        before = self._fetched
        await asyncio.shield(self._fetching)
        return self._fetched != before

    def _start_if_due(self) -> bool:
        """Whether a fetch is under way."""
        if self._fetching is not None and not self._fetching.done():
            return True
        pause = RETRY_S if self._keys is not None else FIRST_RETRY_S
        if self._clock() - self._tried < pause:
            return False
        self._tried = self._clock()
        self._fetching = asyncio.ensure_future(self._fetch())
        return True

    async def _fetch(self) -> None:
        try:
            listed = await self.listed_keys()
        except FetchError as error:
            if not self._failing:
                logger.warning("could not fetch the keys of the issuer %s: %s", self._issuer.issuer, error)
            self._failing = True
            return
        self._failing = False
        self._keys, self._parsed = listed, {}
        self._fetched = self._clock()

    async def listed_keys(self) -> list[Json]:
        """The keys as the issuer lists them now; nothing is kept. Raises FetchError."""
        answer = await fetch_json(self._issuer.jwks_uri or await self._discover(), self._reach)
        if not answer.ok:
            raise FetchError(f"it answered with HTTP {answer.status}")
        listed = answer.document.get("keys")
        if not isinstance(listed, list):
            raise FetchError("its answer is not a set of keys")
        return [one for one in listed[:MAX_KEYS] if isinstance(one, dict)]

    async def _discover(self) -> str:
        """The address of the keys, by the issuer's metadata. Raises FetchError."""
        reason = "it has no metadata"
        for url in metadata_urls(self._issuer.issuer):
            try:
                answer = await fetch_json(url, self._reach)
            except FetchError as error:
                reason = str(error)
                continue
            if not answer.ok:
                continue
            if answer.document.get("issuer") != self._issuer.issuer:
                reason = "its metadata name another issuer; compare `auth.issuer` with it, also the slash at the end"
                continue
            found = answer.document.get("jwks_uri")
            if isinstance(found, str):
                return found
            reason = "its metadata name no `jwks_uri`"
        raise FetchError(reason)


def metadata_urls(issuer: str) -> list[str]:
    """Where an issuer's metadata may be: RFC 8414 and OpenID Connect, each in the form with a path, if it has one."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    names = [f"{origin}/.well-known/oauth-authorization-server{path}", f"{origin}/.well-known/openid-configuration"]
    if not path:
        return names
    return [names[0], f"{names[1]}{path}", f"{origin}{path}/.well-known/openid-configuration"]


def is_usable(key: Mapping[str, Any], algorithm: str) -> bool:
    """Whether a key may check signatures of this algorithm: by its type and curve, and what it says of itself."""
    kind, curves = _FAMILIES[algorithm]
    if key.get("kty") != kind or (curves and key.get("crv") not in curves):
        return False
    if key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm:
        return False
    operations = key.get("key_ops")
    return operations is None or (isinstance(operations, list) and "verify" in operations)


def _parsed(key: Json, algorithm: str) -> PyJWK | None:
    """None: it is not a key, or one of a size that is not used."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from jwt import PyJWK, PyJWTError

    public = {name: value for name, value in key.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
    modulus = public.get("n")
    if isinstance(modulus, str) and len(modulus) > 2 * RSA_BITS.stop // 8:
        return None  # before numbers of that size are made
    try:
        parsed = PyJWK(public, algorithm)
    except (PyJWTError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if isinstance(parsed.key, RSAPublicKey) and parsed.key.key_size not in RSA_BITS:
        return None
    return parsed
