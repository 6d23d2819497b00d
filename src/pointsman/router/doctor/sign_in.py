"""Checks of `auth`: that the keys of each issuer can be fetched, and that its rules give tools."""

from __future__ import annotations

import asyncio
from itertools import islice

from pointsman.config.model import GatewayConfig
from pointsman.config.sections.auth import Auth
from pointsman.router.auth.claims import rights_of
from pointsman.router.auth.fetch import FetchError
from pointsman.router.doctor.findings import Finding, Inspected, unread_text
from pointsman.router.owner.description import unseen_by, unseen_servers

FETCH_S = 10.0  # for the metadata and the keys of all issuers together, which are asked at the same time
SHOWN_RULES = 5
_CHECK = "sign-in"
_ANYBODY = "rule"  # in the place of a subject and of a token, to look a rule's rights up


async def check_sign_in(inspected: Inspected) -> list[Finding]:
    config = inspected.config
    if config is None or not config.auth:
        return []
    unread = config.unread_secrets("auth")
    if unread:
        return [Finding(_CHECK, "note", unread_text(unread, "the issuers were not asked"))]
    findings = await asyncio.gather(*(_check_keys(one) for one in config.auth))
    return [*findings, *islice(_unseen(config), SHOWN_RULES)]


async def _check_keys(issuer: Auth) -> Finding:
    from pointsman.router.auth.jwks import KeySet  # on demand: most gateways have no issuer

    try:
        async with asyncio.timeout(FETCH_S):
            keys = await KeySet(issuer).listed_keys()
    except TimeoutError:
        return _no_keys(issuer, f"it gave no whole answer within {FETCH_S:g} s")
    except FetchError as error:
        return _no_keys(issuer, str(error))
    if not keys:
        return _no_keys(issuer, "its set of keys is empty")
    return Finding(_CHECK, "ok", f"The keys of issuer `{issuer.name}` can be fetched.")


def _no_keys(issuer: Auth, reason: str) -> Finding:
    where = "`jwks_uri`" if issuer.jwks_uri is not None else "`issuer`"
    return Finding(
        _CHECK,
        "problem",
        f"The keys of issuer `{issuer.name}` ({issuer.issuer}) cannot be fetched, so nobody can sign in there: "
        f"{reason}. Compare {where} in `auth` with what the authorization server says of itself, and check that this "
        "machine reaches it.",
    )


def _unseen(config: GatewayConfig) -> list[Finding]:
    """Rules that give no tools of a server, because its annotations are not trusted."""
    found = []
    for issuer in config.auth:
        for name in issuer.claims:
            rights = rights_of(config.auth, f"@{issuer.name}/{_ANYBODY}#{name}")
            as_token = config.model_copy(update={"tokens": {_ANYBODY: rights}}) if rights is not None else config
            servers = unseen_servers(as_token, _ANYBODY)
            if rights is not None and servers:
                found.append(Finding(_CHECK, "note", unseen_by(f"Who signs in by the rule `{name}` sees", servers)))
    return found
