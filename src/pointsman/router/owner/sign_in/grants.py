"""What the owner can ask about grants: which clients have signed in, to revoke one, and a link to answer requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pointsman.config.errors import closest
from pointsman.core.model import Json
from pointsman.router.audit.kept import READ_ERRORS
from pointsman.router.audit.query import LastUse, last_uses
from pointsman.router.auth.server.store import IDENTITY, Grant
from pointsman.router.owner.channel import Operation, OwnerError
from pointsman.router.owner.parameters import read_text
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.sign_in.page_sign_ins import CODE_S
from pointsman.router.state.key_values import StateAwayError

if TYPE_CHECKING:  # imported only where clients can sign in
    from pointsman.router.auth.server.server import AuthorizationServer

_CLIENT = "pointsman cli"


async def grants(parts: Parts) -> Json:
    """All grants, the newest first, and why none is accepted now, if so. Raises OwnerError."""
    server = _server_of(parts)
    found = await _grants(server)
    try:
        names = [name for grant in found for name in grant.identities()]
        uses = await asyncio.to_thread(last_uses, parts.audit_rows, names)
    except READ_ERRORS:
        uses = {}
    return {"grants": [_described(grant, uses, server.is_accepted(grant)) for grant in found], "off": server.off}


async def revoke_grant(parts: Parts, grant_id: str, asked_by: str = _CLIENT) -> Json:
    """End a grant: its client is refused from now on. Raises OwnerError."""
    server = _server_of(parts)
    known = {grant.id: grant for grant in await _grants(server)}
    grant = known.get(grant_id.removeprefix(IDENTITY))
    if grant is None:
        near = closest(grant_id[:64], list(known))
        hint = f" Did you mean `{near}`?" if near else ""
        raise OwnerError("unknown_grant", f"No grant `{grant_id[:64]}`. List them with `pointsman grant list`.{hint}")
    try:
        await server.revoke(grant, client=asked_by)
    except StateAwayError as error:
        raise OwnerError("state", f"Grant `{grant.id}` STILL WORKS. {error}") from error
    return {"id": grant.id, "client": grant.client}


async def grant_link(parts: Parts) -> Json:
    """A link that lets a browser answer requests for access at the public address. Works once, within 10 minutes.

    Raises OwnerError.
    """
    server = _server_of(parts)
    if server.off:
        raise OwnerError("no_sign_in", f"Clients cannot sign in at this gateway: {server.off}")
    return {"url": f"{server.issuer}/oauth/sign-in?code={parts.sign_ins.new_code()}", "expiresS": CODE_S}


def grant_operations(parts: Parts) -> dict[str, Operation]:
    """The operations by the names that the channel has for them, with their parameters checked."""
    return {
        "grants": lambda given: grants(parts),
        "revoke_grant": lambda given: revoke_grant(parts, read_text(given, "grant")),
        "grant_link": lambda given: grant_link(parts),
    }


def _server_of(parts: Parts) -> AuthorizationServer:
    if parts.authorization is None:
        raise OwnerError(
            "no_sign_in",
            "Clients cannot sign in at this gateway: `listen.public_url` was not set when it started. "
            "Set it, and restart the gateway.",
        )
    return parts.authorization


async def _grants(server: AuthorizationServer) -> list[Grant]:
    try:
        return await server.grants()
    except StateAwayError as error:
        raise OwnerError("state", str(error)) from error


def _described(grant: Grant, uses: Mapping[str, LastUse], accepted: bool) -> Json:
    use = max((uses[name] for name in grant.identities() if name in uses), default=None)
    return {
        "id": grant.id,
        "client": grant.client,
        "clientId": grant.client_id,
        "answeredAt": grant.target,
        "resource": grant.resource,
        "projects": list(grant.projects),
        "servers": list(grant.servers),
        "scopes": list(grant.scopes),
        "created": _iso(grant.created),
        "refreshed": _iso(grant.refreshed),
        "expires": _iso(grant.expires) if grant.expires else None,
        "accepted": accepted,
        "lastUsed": _iso(use.time_ms / 1000) if use is not None else None,
    }


def _iso(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}"
