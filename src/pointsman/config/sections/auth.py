"""The section `auth`: whose access tokens are accepted, and which rights their claims give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from pointsman.config.sections.part import Part
from pointsman.config.sections.rates import TokenRates
from pointsman.config.sections.value_types import (
    SCOPES,
    ClientId,
    Confirm,
    HeaderValue,
    Id,
    IssuerAddress,
    Scopes,
    ToolPatternList,
)

ANYBODY: Final = "*"  # as `when`: every account of the issuer
OWN_GRANTS: Final = "grant"  # ids of identities of the gateway's own server begin with it
MAX_CONDITIONS: Final = 32  # of one rule
MAX_ISSUERS: Final = 32

# Signatures by a key of the issuer alone. HS256 and its like have one secret on both sides, and `none` has no key.
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # fmt: skip
ALGORITHMS: tuple[Algorithm, ...] = ("RS256", "PS256", "ES256", "EdDSA")

ClaimValue = str | int | bool
When = Mapping[str, tuple[ClaimValue, ...]]
"""By the path of a claim: the values of which one must be there. All claims must hold."""


def parse_when(given: object) -> When:
    """`"*"`, or a mapping of claims to a value or a list of values."""
    if given == ANYBODY:
        return {}
    if not isinstance(given, Mapping) or not given:
        raise ValueError(
            'must map claims to values, such as `{groups: staff}`; `"*"` means every account of the issuer'
        )
    if len(given) > MAX_CONDITIONS:
        raise ValueError(f"has more than {MAX_CONDITIONS} claims")
    return {_claim(name): _values(value) for name, value in given.items()}


def _claim(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ValueError("the name of a claim must be text")
    return name


def _values(given: object) -> tuple[ClaimValue, ...]:
    values: tuple[Any, ...] = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not values or not all(isinstance(one, str | int | bool) for one in values):
        raise ValueError("the value of a claim must be text, a whole number, true or false, or a list of these")
    return values


def _as_texts(given: object) -> object:
    return [given] if isinstance(given, str) else given


def _not_empty(listed: tuple[Any, ...]) -> tuple[Any, ...]:
    if not listed:
        raise ValueError("is an empty list; leave it out for the default")
    return listed


Conditions = Annotated[When, PlainValidator(parse_when)]
Audiences = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_as_texts), AfterValidator(_not_empty)
]
Algorithms = Annotated[tuple[Algorithm, ...], AfterValidator(_not_empty)]


class ClaimRule(Part):
    """The rights of the accounts for whose claims it holds: those of a token, and no secret."""

    when: Conditions
    """The claims that must hold, such as `{groups: staff, email_verified: true}`: all of them. A claim holds if it is
    the value, or a list with it; with a list of values, if it holds for one of them. A name with dots leads into
    objects (`realm_access.roles`), unless a claim has that whole name. `"*"`: every account of the issuer."""
    projects: tuple[str, ...] = ()
    """As in [tokens](#tokensid)."""
    servers: tuple[str, ...] = ()
    """As in [tokens](#tokensid)."""
    scopes: Scopes = SCOPES
    """As in [tokens](#tokensid). The `scope` of an access token can [only narrow it](../guide/sign-in.md#scopes)."""
    tools: ToolPatternList | None = None
    """As in [tokens](#tokensid)."""
    rates: TokenRates = TokenRates()
    """As in [tokens](#tokensid), for each person."""
    confirm: Confirm = "never"
    """As in [tokens](#tokensid)."""


class Auth(Part):
    issuer: IssuerAddress
    """URL of the authorization server, exactly as in `iss` of its tokens and in its metadata: a slash at the end
    counts."""
    name: Id = "sso"
    """Name of the issuer in the ids of those who sign in, such as `@sso/alice#staff` in the audit. Each issuer needs
    its own."""
    audience: Audiences | None = None
    """What `aud` of a token must contain: one of these texts. By default the addresses of the gateway below
    `listen.public_url`, such as `https://mcp.example.com/mcp`."""
    jwks_uri: IssuerAddress | None = None
    """URL of the issuer's keys. By default what its metadata say (`/.well-known/oauth-authorization-server` or
    `/.well-known/openid-configuration`)."""
    client_id: ClientId | None = None
    """Client of the gateway at this issuer, registered with the redirect URI `<listen.public_url>/oauth/callback`. With
    it a browser shows who uses it, before [an account](../guide/sign-in-to-servers.md#own-accounts) is connected. By
    default the gateway's metadata document or a client that is registered on the way."""
    client_secret: HeaderValue | None = None
    """The secret of `client_id`, if it has one."""
    algorithms: Algorithms = ALGORITHMS
    """Signatures to accept. Also possible: `RS384`, `RS512`, `PS384`, `PS512`, `ES384` and `ES512`."""
    require_scope: bool = True
    """`false`: a token whose `scope` names none of [Pointsman's](../guide/sign-in.md#scopes) has all rights of its
    rule. For servers that cannot issue such scopes."""
    claims: Mapping[Id, ClaimRule] = {}
    """Which accounts get which rights: rules by name, keys below. The first whose `when` holds counts; an account for
    which none holds is refused."""


def as_list(given: Any) -> Any:
    """One issuer may be written without a list."""
    return [given] if isinstance(given, Mapping) else given


def check_issuers(issuers: Sequence[Auth]) -> None:
    """Raises ValueError."""
    if len(issuers) > MAX_ISSUERS:
        raise ValueError(f"`auth` has more than {MAX_ISSUERS} issuers")
    names = [one.name for one in issuers]
    if OWN_GRANTS in names:
        raise ValueError(f"`auth`: the name `{OWN_GRANTS}` is reserved; give the issuer another `name`")
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ValueError(f"`auth`: two issuers are called `{repeated}`; give each a `name` of its own")
    addresses = [one.issuer for one in issuers]
    if len({*addresses}) < len(addresses):
        raise ValueError("`auth`: an issuer is listed twice; put its rules together in `claims` of one entry")
