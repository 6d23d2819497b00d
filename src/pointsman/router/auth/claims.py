"""Which rights the claims of an access token give: rules of the configuration, the first that holds. Pure.

The id of an identity says all that its rights depend on, so that they can be looked up again after a reload:

    @sso/alice#staff                   the rule `staff`, all of its scopes and projects
    @sso/alice#staff:read,write@demo   a token whose scope leaves `read` and `write`, issued for `/projects/demo/mcp`
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from pointsman.catalog.identities import MARK, MCP_SCOPE, OAUTH_SCOPES, VARIANT, rights_token
from pointsman.config.model import ANY, Token
from pointsman.config.sections.auth import Auth, ClaimRule, ClaimValue
from pointsman.config.sections.value_types import SCOPES, Scope
from pointsman.core.errors import ForbiddenError, ScopeError, UnauthorizedError
from pointsman.core.model import Json

MAX_SUBJECT_CHARS: Final = 255
MAX_LISTED: Final = 1_000  # values of a claim that are compared
_PLAIN: Final = "@.:|+~!$*=,;()'"  # of a subject, beside letters, digits, `_` and `-`
_ID: Final = re.compile(r"@([A-Za-z0-9_-]+)/([^#]+)#([A-Za-z0-9_-]+)(?::([a-z,]+))?(?:@([A-Za-z0-9_,-]+))?")


class Variant(Struct, frozen=True):
    """What is left of a rule's rights."""

    rule: str
    scopes: tuple[Scope, ...] = SCOPES
    projects: tuple[str, ...] | None = None  # None: all of the rule

    def __str__(self) -> str:
        scopes = "" if self.scopes == SCOPES else f":{','.join(self.scopes)}"
        return f"{self.rule}{scopes}" + ("" if self.projects is None else f"@{','.join(self.projects)}")


def identity_of(issuer: Auth, claims: Json, projects: tuple[str, ...] | None) -> str:
    """The id that the claims of a verified token stand for. `projects`: those that the token was issued for.

    Raises:
        UnauthorizedError: the subject cannot be used.
        ForbiddenError: no rule holds.
        ScopeError: the token's scope leaves nothing of the rule.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_CHARS:
        raise UnauthorizedError(f"This access token has no subject (`sub`) of at most {MAX_SUBJECT_CHARS} characters.")
    rule = next((name for name, one in issuer.claims.items() if holds(one, claims)), None)
    if rule is None:
        raise ForbiddenError(
            "This account may sign in, and nobody has given it rights: no rule of `auth` holds for its claims. "
            "Ask the operator to add one."
        )
    variant = Variant(rule, _scopes_left(issuer, issuer.claims[rule], claims), projects)
    return f"{MARK}{issuer.name}/{quote(subject, safe=_PLAIN)}{VARIANT}{variant}"


def person_named(issuer: Auth, claims: Json) -> str | None:
    """The person that the claims name, without a rule: `@sso/alice`; None: the subject cannot be used."""
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_CHARS:
        return None
    return f"{MARK}{issuer.name}/{quote(subject, safe=_PLAIN, errors='replace')}"


def rights_of(issuers: Iterable[Auth], identity_id: str) -> Token | None:
    """The rights of an id by the present rules; None: it has none, or it is of another source."""
    found = _ID.fullmatch(identity_id)
    if found is None:
        return None
    name, _, rule_name, scopes, projects = found.groups()
    issuer = next((one for one in issuers if one.name == name), None)
    rule = issuer.claims.get(rule_name) if issuer is not None else None
    if rule is None:
        return None
    dropped = frozenset(SCOPES).difference(SCOPES if scopes is None else scopes.split(","))
    left: tuple[Scope, ...] = tuple(scope for scope in rule.scopes if scope not in dropped)
    if not left:
        return None
    return Token(
        sha256=rights_token(identity_id),
        projects=rule.projects if projects is None else _only(rule.projects, projects.split(",")),
        servers=rule.servers,
        scopes=left,
        tools=rule.tools,
        rates=rule.rates,
        confirm=rule.confirm,
    )


def rule_of(identity_id: str) -> str | None:
    """The name of the rule behind an id."""
    found = _ID.fullmatch(identity_id)
    return found[3] if found is not None else None


def unnarrowed(identity_id: str) -> str:
    """The id of the same person with all scopes of the rule."""
    found = _ID.fullmatch(identity_id)
    if found is None or found[4] is None:
        return identity_id
    return identity_id[: found.start(4) - 1] + identity_id[found.end(4) :]


def holds(rule: ClaimRule, claims: Mapping[str, object]) -> bool:
    """Whether all conditions of a rule hold for the claims."""
    return all(_one_holds(_at(claims, path), values) for path, values in rule.when.items())


def oauth_scopes(scopes: Iterable[Scope]) -> tuple[str, ...]:
    """The OAuth scopes that give these scopes, one for each."""
    return tuple(f"{MCP_SCOPE}:{scope}" for scope in scopes)


def _at(claims: Mapping[str, object], path: str) -> object:
    """The claim with that name, or else what the dots of the path lead to; None: there is none."""
    if path in claims:
        return claims[path]
    found: object = claims
    for step in path.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _one_holds(claim: object, values: tuple[ClaimValue, ...]) -> bool:
    given = claim[:MAX_LISTED] if isinstance(claim, list) else [claim]
    return any(type(one) is type(value) and one == value for one in given for value in values)  # True is not 1


def _scopes_left(issuer: Auth, rule: ClaimRule, claims: Json) -> tuple[Scope, ...]:
    """What the token's `scope` leaves, all scopes if that narrows nothing. Raises ScopeError."""
    named = [one for one in _scopes_named(claims) if one in OAUTH_SCOPES]
    if not named and not issuer.require_scope:
        return SCOPES
    given = {scope for one in named for scope in OAUTH_SCOPES[one]}
    if not given:
        raise ScopeError(
            f"This access token has no scope of this gateway. Sign in again and ask for `{MCP_SCOPE}`.", (MCP_SCOPE,)
        )
    if given.isdisjoint(rule.scopes):
        wanted = oauth_scopes(rule.scopes)
        raise ScopeError(
            f"The scope of this access token leaves nothing of what this account may do, which is {', '.join(wanted)}.",
            wanted,
        )
    return SCOPES if given.issuperset(rule.scopes) else tuple(scope for scope in SCOPES if scope in given)


def _scopes_named(claims: Json) -> list[str]:
    """`scope` is a text of words (RFC 9068); some servers write `scp`, a text or a list."""
    given = claims.get("scope", claims.get("scp", ""))
    listed = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
    return [one for one in listed[:MAX_LISTED] if isinstance(one, str)]


def _only(projects: tuple[str, ...], wanted: Iterable[str]) -> tuple[str, ...]:
    return tuple(one for one in wanted if ANY in projects or one in projects)
