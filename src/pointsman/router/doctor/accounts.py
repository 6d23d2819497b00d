"""The check of accounts of callers at servers: that none are stored which no call uses."""

from __future__ import annotations

import asyncio

from pointsman.core.model import Json
from pointsman.router.doctor.findings import Finding, Inspected
from pointsman.router.owner.client import NoGatewayError, OperationError, ask

_CHECK = "accounts"


async def check_accounts(inspected: Inspected) -> list[Finding]:
    """Report what the running gateway has stored for people and does not use."""
    if inspected.status is None:
        return []
    try:
        unused = (await asyncio.to_thread(ask, inspected.state_dir, "unused_credentials"))["unused"]
    except (NoGatewayError, OperationError):
        return []  # one that was not restarted since an upgrade does not know the question
    return [_finding(one) for one in unused]


def _finding(one: Json) -> Finding:
    if not one["exists"]:
        return Finding(_CHECK, "note", f"Server `{one['server']}` was removed; {one['text']}.")
    if one.get("ended"):
        return Finding(_CHECK, "note", f"Server `{one['server']}`: {one['text']}.")
    missing: list[str] = one.get("missing") or ["credentials: per-caller"]  # one before an upgrade does not name them
    named = " and ".join(f"`{key}`" for key in missing)
    then = "its callers use headers of their own" if missing == ["oauth"] else "all callers use one account there"
    step = "put the key back" if len(missing) == 1 else "put the keys back"
    return Finding(
        _CHECK, "problem", f"Server `{one['server']}` has no {named} any more, so {then}; {one['text']}, or {step}."
    )
