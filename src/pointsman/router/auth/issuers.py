"""Verifies access tokens of the issuers in `auth`: JWTs, signed by a key of their issuer for this gateway."""

from __future__ import annotations

import binascii
import logging
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Final

from pointsman.catalog.identities import Identity
from pointsman.catalog.tokens import LEEWAY_S
from pointsman.config.model import Token
from pointsman.config.sections.auth import Auth
from pointsman.core.errors import (
    TOKEN_AUDIENCE,
    TOKEN_EXPIRED,
    TOKEN_ISSUER,
    TOKEN_SIGNATURE,
    ForbiddenError,
    RefusedError,
    UnauthorizedError,
)
from pointsman.core.model import Json, WallClock
from pointsman.core.wire import InvalidJsonError, decode
from pointsman.router.auth.claims import identity_of, person_named, rights_of, unnarrowed
from pointsman.router.auth.jwks import KeySet
from pointsman.router.auth.metadata import Resources

logger = logging.getLogger(__name__)

LAST_S: Final = 253_402_300_800  # the end of the year 9999, before which `exp` must be
TRUST_S: Final = 3_600.0  # until a token is verified again: its key may have been withdrawn
MAX_KEY_ID_CHARS: Final = 256
MAX_AUDIENCES: Final = 32  # that one token may name
MAX_STRANGERS: Final = 1_000  # accounts without a rule that are logged until the next reload
MAX_RIGHTS: Final = 4_096  # ids whose rights are kept
_JWT: Final = re.compile(
    r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
)  # the last part is empty without a signature
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})  # `typ`, in lower case
_SIGN_IN: Final = "Sign in again at your authorization server."
_BOUND: Final = (
    "This access token is bound to a key of its client (`cnf`, as with DPoP or mutual TLS), and the gateway accepts "
    "bearer tokens only. Let the authorization server give this client tokens that are not bound."
)
_NO_TIME: Final = "`{}` of this access token is not a time. Its authorization server has to write seconds there."
_MISSING: Final = {"exp": TOKEN_EXPIRED, "aud": TOKEN_AUDIENCE, "iss": TOKEN_ISSUER}


class Issuers:
    """The issuers of one configuration. Fits `catalog.identities.IdentitySource`."""

    def __init__(
        self,
        issuers: Sequence[Auth],
        resources: Resources,
        before: Issuers | None = None,
        *,
        clock: WallClock = time.time,
    ) -> None:
        """`before`: the issuers of the configuration until now, whose keys need not be fetched again."""
        self._issuers = tuple(issuers)
        self._by_address = {one.issuer: one for one in issuers}
        self._resources = resources
        self._rights: dict[str, Token | None] = {}
        self._strangers: set[tuple[str, str]] = set()  # that were logged
        self._clock = clock
        known: Mapping[tuple[str, str | None], KeySet] = before.keys if before is not None else {}
        places = {(one.issuer, one.jwks_uri): one for one in issuers}
        self.keys: dict[tuple[str, str | None], KeySet] = {
            place: known.get(place) or KeySet(one) for place, one in places.items()
        }

    def may_know(self, secret: str) -> bool:
        return _JWT.fullmatch(secret) is not None

    async def identify(self, secret: str) -> Identity:
        """Raises UnauthorizedError, ForbiddenError, SignInUnavailableError."""
        header, unverified = _unverified(secret)
        issuer = self._by_address.get(_text(unverified.get("iss")))
        if issuer is None:
            text = f"This access token is from an issuer that the gateway does not know. {_SIGN_IN}"
            raise UnauthorizedError(text, TOKEN_ISSUER)
        algorithm = _algorithm(header, issuer)
        key_id = header.get("kid")
        if key_id is not None and (not isinstance(key_id, str) or len(key_id) > MAX_KEY_ID_CHARS):
            raise UnauthorizedError("The header of this access token has an invalid `kid`.")
        key = await self.keys[issuer.issuer, issuer.jwks_uri].find(key_id, algorithm)
        if key is None:
            text = f"This access token is signed with a key that its issuer does not list. {_SIGN_IN}"
            raise UnauthorizedError(text, TOKEN_SIGNATURE)
        claims = _verified(secret, key, algorithm, issuer, unverified)
        if "cnf" in claims:
            raise _invalid(_BOUND, TOKEN_SIGNATURE, person_named(issuer, claims))
        try:
            identity_id = identity_of(issuer, claims, self._audience(claims, issuer))
        except RefusedError as error:
            error.person = person_named(issuer, claims)
            if isinstance(error, ForbiddenError):
                self._log_stranger(issuer, claims["sub"])
            raise
        rights = self.rights_of(identity_id)
        if rights is None:
            raise UnauthorizedError(f"This access token is no longer valid here. {_SIGN_IN}")
        return Identity(identity_id, rights, min(float(claims["exp"]) + LEEWAY_S, self._clock() + TRUST_S))

    async def close(self) -> None:
        for keys in self.keys.values():
            await keys.close()

    def rights_of(self, identity_id: str) -> Token | None:
        if identity_id not in self._rights:
            if len(self._rights) >= MAX_RIGHTS:
                self._rights.clear()
            self._rights[identity_id] = rights_of(self._issuers, identity_id)
        return self._rights[identity_id]

    def widest(self, identity_id: str) -> str:
        return unnarrowed(identity_id) if self.rights_of(identity_id) is not None else identity_id

    def _log_stranger(self, issuer: Auth, subject: str) -> None:
        """Tell the operator once who was refused: the client's own log does not reach him."""
        stranger = (issuer.name, subject)
        if stranger not in self._strangers and len(self._strangers) < MAX_STRANGERS:
            self._strangers.add(stranger)
            logger.info("no rule of `auth` holds for the account %r of issuer %s", subject, issuer.name)

    def _audience(self, claims: Json, issuer: Auth) -> tuple[str, ...] | None:
        """The projects that a token was issued for; None: for the whole gateway. Raises UnauthorizedError."""
        named = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        audiences = [one for one in named[:MAX_AUDIENCES] if isinstance(one, str)]
        if issuer.audience is not None:
            if not any(one in issuer.audience for one in audiences):
                raise _other_audience()
            return None
        meant = [found for one in audiences if (found := self._resources.named_by(one)) is not None]
        if not meant:
            raise _other_audience()
        projects = tuple(dict.fromkeys(one.project_id for one in meant if one.project_id is not None))
        return projects if len(projects) == len({one.project_id for one in meant}) else None


def _unverified(secret: str) -> tuple[Json, Json]:
    """Header and claims before the signature is checked: to choose issuer and key by. Raises UnauthorizedError."""
    head, body, _ = secret.split(".")
    return _decoded(head), _decoded(body)


def _decoded(part: str) -> Json:
    try:
        found = decode(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, InvalidJsonError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise UnauthorizedError("This access token is not a JWT. Check how the client got it.")
    return found


def _algorithm(header: Json, issuer: Auth) -> str:
    """The algorithm that the header names, if it is allowed. `jku`, `x5u`, `jwk` and `x5c` are never looked at.

    Raises UnauthorizedError.
    """
    kind = header.get("typ", "JWT")
    if _text(kind).lower() not in _TYPES or "crit" in header:
        raise UnauthorizedError(
            "This token is not an access token that the gateway takes: its header has another `typ` than `at+jwt` or "
            "`JWT`, or a `crit`. Send the access token of the sign-in, not an ID token or another one; if it is the "
            "access token, the operator changes its form at the authorization server."
        )
    algorithm = _text(header.get("alg"))
    allowed: tuple[str, ...] = issuer.algorithms
    if algorithm not in allowed:
        unsigned = algorithm.lower() == "none"
        how = "not signed (`alg` is `none`), which" if unsigned else "signed in a way that"
        raise UnauthorizedError(
            f"This access token is {how} the gateway does not accept. It accepts {', '.join(allowed)}; "
            "the operator sets `auth.algorithms`.",
            TOKEN_SIGNATURE,
        )
    return algorithm


def _verified(secret: str, key: object, algorithm: str, issuer: Auth, unverified: Json) -> Json:
    """The claims, with signature, issuer and times checked. Raises UnauthorizedError.

    The signature is checked first, so a refusal for a claim names the person.
    """
    import jwt  # on demand: without `auth` nobody needs it

    person = person_named(issuer, unverified)
    try:
        claims: Json = jwt.decode(
            secret,
            key,  # type: ignore[arg-type]
            algorithms=[algorithm],
            issuer=issuer.issuer,
            leeway=LEEWAY_S,
            options={"require": ["exp", "iss", "aud", "sub"], "verify_aud": False, "verify_iat": False},
        )
    except jwt.ExpiredSignatureError:
        raise _invalid(f"This access token has expired. {_SIGN_IN}", TOKEN_EXPIRED, person) from None
    except jwt.ImmatureSignatureError:
        text = "This access token is not valid yet. Compare the clocks of the two machines."
        raise _invalid(text, TOKEN_EXPIRED, person) from None
    except jwt.MissingRequiredClaimError as error:
        text = f"This access token has no `{error.claim}`. {_SIGN_IN}"
        raise _invalid(text, _MISSING.get(error.claim), person) from None
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
        wrong = None if isinstance(error, jwt.InvalidSignatureError) else _wrong_time(unverified)
        if wrong is not None:  # whether the signature was checked before that is not known, so nobody is named
            raise _invalid(wrong, TOKEN_EXPIRED) from None
        text = f"This access token is not valid: its signature is wrong. {_SIGN_IN}"
        raise _invalid(text, TOKEN_SIGNATURE) from None
    if not _is_time(claims["exp"]):
        raise _invalid(_NO_TIME.format("exp"), TOKEN_EXPIRED, person)
    return claims


def _wrong_time(claims: Json) -> str | None:
    """What is wrong with the times of a token, if they are not times."""
    wrong = [name for name in ("exp", "nbf") if name in claims and not _is_time(claims[name])]
    return _NO_TIME.format(wrong[0]) if wrong else None


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value < LAST_S


def _invalid(text: str, audit_code: str | None, person: str | None = None) -> UnauthorizedError:
    error = UnauthorizedError(text, audit_code)
    error.person = person
    return error


def _other_audience() -> UnauthorizedError:
    return UnauthorizedError(
        "This access token was issued for another service. Sign in for this gateway: the client asks for a token with "
        "`resource`, the address that the gateway's metadata name.",
        TOKEN_AUDIENCE,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
