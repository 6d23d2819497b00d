"""What the owner can ask about pins: which definitions wait for approval, what changed in them, and to approve them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from pointsman.catalog.pins import FORMAT, Digests, Gone, Held
from pointsman.catalog.scan.scan import Flag, scan_hidden, scan_tool
from pointsman.core.model import Json
from pointsman.router.owner.channel import Operation, OwnerError
from pointsman.router.owner.operations import described_server
from pointsman.router.owner.parts import Parts
from pointsman.router.state.key_values import StateAwayError

STARTS_S: Final = 10.0  # for servers that have just been started
LISTS_S: Final = 15.0  # for all servers to list what they have
APPROVE_S: Final = 30.0
MAX_DIFFS: Final = 200  # in one answer
MAX_ROWS: Final = 20  # of one approval in the audit, which limits their rate; more are counted in one row
_CLIENT: Final = "pointsman cli"


async def pins(parts: Parts, server_id: str | None = None, *, diffs: int = 0, at_once: bool = False) -> Json:
    """What is pinned and what waits, of all servers or one, with so many diffs. Raises OwnerError.

    `at_once`: by the last lists.
    """
    chosen = _chosen(parts, server_id)
    if not at_once:
        await _listed(parts, chosen)
    if diffs:
        await parts.catalog.watch.refresh()
    servers: list[Json] = []
    for one in chosen:
        held = parts.pins.held(one)
        shown = [await _shown(parts, one, each, with_diff=number < diffs) for number, each in enumerate(held)]
        diffs = max(0, diffs - len(held))
        gone = await _gone(parts, one)
        servers.append(
            {
                "id": one,
                "pin": parts.pins.mode(one),
                "approved": parts.pins.pinned(one),
                "waits": parts.pins.waits(one),
                "listed": bool(parts.pins.listed(one)),
                "held": shown,
                "gone": [{"kind": each.kind, "name": each.name, "digest": each.digest} for each in gone],
                "goneCount": parts.pins.gone_count(one),
            }
        )
    configured = parts.current.config.servers.items() if server_id is None else ()
    off = [one for one, server in configured if server.enabled and server.pin_mode == "off"]
    return {"servers": servers, "off": off, "problem": parts.pins.problem}


async def approve(
    parts: Parts, server_id: str, wanted: Iterable[tuple[str, str, str]], asked_by: str = _CLIENT
) -> Json:
    """Approve definitions by kind, name and digest, as the owner has seen them, and offer them at once.

    One that has changed again since waits on. Raises OwnerError.
    """
    described_server(parts, server_id)  # there is such a server
    asked = set(wanted)
    chosen = [one for one in parts.pins.held(server_id) if (one.kind, one.name, one.digests.whole.hex()) in asked]
    try:
        async with asyncio.timeout(APPROVE_S):
            await parts.pins.approve(server_id, chosen)
    except (StateAwayError, TimeoutError) as error:
        reason = str(error) or "The state database has not answered in time."
        raise OwnerError("state", f"Nothing was approved, or not all. {reason}") from error
    whats = [f"servers.{server_id}.{one.kind}.{one.name}" for one in chosen]
    if not 0 < len(whats) <= MAX_ROWS:
        whats = [f"servers.{server_id} ({_counted(len(chosen))})"]
    for what in whats:
        parts.audit.record_change("pin/approve", what, client=asked_by, server_id=server_id)
    await _listed(parts, [server_id])
    approved = [{"kind": one.kind, "name": one.name, "digest": one.digests.whole.hex()} for one in chosen]
    return {"approved": approved, "waiting": len(parts.pins.held(server_id))}


async def forget(parts: Parts, server_id: str, wanted: Iterable[tuple[str, str]], asked_by: str = _CLIENT) -> Json:
    """Drop the approval of definitions that the server no longer lists, by kind and digest. Raises OwnerError."""
    described_server(parts, server_id)  # there is such a server
    try:
        async with asyncio.timeout(APPROVE_S):
            count = await parts.pins.forget(server_id, set(wanted))
    except (StateAwayError, TimeoutError) as error:
        reason = str(error) or "The state database has not answered in time."
        raise OwnerError("state", f"Nothing was forgotten, or not all. {reason}") from error
    if count:
        what = f"servers.{server_id} ({_counted(count)})"
        parts.audit.record_change("pin/forget", what, client=asked_by, server_id=server_id)
    return {"forgotten": count}


async def definitions(parts: Parts) -> Json:
    """The digests of all definitions that servers with pins list now, and whether each is approved.

    `stored` has those that are approved of servers that have listed nothing since the start, and `unnamed` how many of
    a server cannot be named. Raises OwnerError.
    """
    chosen = _chosen(parts, None)
    await _listed(parts, chosen)
    servers: dict[str, Json] = {}
    stored: dict[str, Json] = {}
    unnamed: dict[str, int] = {}
    for server_id in chosen:
        if not parts.pins.listed(server_id):
            stored[server_id], unnamed[server_id] = await _stored(parts, server_id)
        waiting = {(one.kind, one.name) for one in parts.pins.held(server_id)}
        servers[server_id] = {
            kind: {name: _digests(found, approved=(kind, name) not in waiting) for name, found in listed.items()}
            for kind, listed in parts.pins.listed(server_id).items()
        }
    modes = {server_id: parts.pins.mode(server_id) for server_id in chosen}
    return {"format": FORMAT, "servers": servers, "modes": modes, "stored": stored, "unnamed": unnamed}


def pin_operations(parts: Parts) -> dict[str, Operation]:
    """The operations by the names that the channel has for them, with their parameters checked."""

    async def show(given: Json) -> Json:
        server_id = given.get("server")
        if server_id is not None and not isinstance(server_id, str):
            raise OwnerError("invalid_request", "`server` must be a string.")
        return await pins(parts, server_id, diffs=MAX_DIFFS if given.get("diffs") is True else 0)

    async def accept(given: Json) -> Json:
        server_id, wanted = given.get("server"), given.get("definitions")
        if not isinstance(server_id, str) or not isinstance(wanted, list):
            raise OwnerError("invalid_request", "`server` must be a string, and `definitions` a list.")
        return await approve(parts, server_id, [_wanted(one) for one in wanted])

    async def drop(given: Json) -> Json:
        server_id, wanted = given.get("server"), given.get("definitions")
        if not isinstance(server_id, str) or not isinstance(wanted, list):
            raise OwnerError("invalid_request", "`server` must be a string, and `definitions` a list.")
        return await forget(parts, server_id, [(kind, digest) for kind, _, digest in map(_wanted, wanted)])

    return {
        "pins": show,
        "approve_pins": accept,
        "forget_pins": drop,
        "pin_definitions": lambda given: definitions(parts),
    }


def _chosen(parts: Parts, server_id: str | None) -> list[str]:
    """The servers whose definitions are pinned."""
    if server_id is not None:
        described_server(parts, server_id)  # there is such a server
        return [server_id]
    servers = parts.current.config.servers
    return [one for one, server in servers.items() if server.enabled and server.pin_mode != "off"]


async def _listed(parts: Parts, server_ids: Sequence[str]) -> None:
    """Have the servers list what they have now. One that does not is shown with its last list."""
    with suppress(TimeoutError):
        async with asyncio.timeout(STARTS_S):
            await asyncio.gather(*map(parts.fleet.settled_one, server_ids))
    with suppress(TimeoutError):
        async with asyncio.timeout(LISTS_S):
            each = ((parts.catalog.fetched(one), parts.offers.fetched(one)) for one in server_ids)
            await asyncio.gather(*(fetch for both in each for fetch in both))


async def _stored(parts: Parts, server_id: str) -> tuple[Json, int]:
    try:
        found, unnamed = await parts.pins.stored(server_id)
    except StateAwayError as error:
        raise OwnerError("state", f"The approved definitions cannot be read. {error}") from error
    kinds: Json = {
        kind: {name: _digests(one, approved=True) for name, one in names.items()} for kind, names in found.items()
    }
    return kinds, unnamed


async def _gone(parts: Parts, server_id: str) -> Sequence[Gone]:
    if not parts.pins.gone_count(server_id):
        return ()
    try:
        return await parts.pins.gone(server_id, MAX_DIFFS)
    except StateAwayError as error:
        raise OwnerError("state", f"The approved definitions cannot be read. {error}") from error


async def _shown(parts: Parts, server_id: str, held: Held, *, with_diff: bool) -> Json:
    shown: Json = {"kind": held.kind, "name": held.name, "reason": held.reason, "digest": held.digests.whole.hex()}
    if with_diff:
        try:
            shown["diff"] = await parts.pins.diff(server_id, held)
        except StateAwayError as error:
            raise OwnerError("state", f"The approved definitions cannot be read. {error}") from error
        watched = held.kind != "instructions"
        flags = parts.catalog.watch.flags.get(server_id, ()) if watched else _scanned(held)
        kind = held.kind if watched else "tool"
        shown["flags"] = [flag.text for flag in flags if (flag.kind, flag.tool) == (kind, held.name)]
    return shown


def _counted(number: int) -> str:
    return "1 definition" if number == 1 else f"{number} definitions"


def _scanned(held: Held) -> Sequence[Flag]:
    return scan_hidden(held.name, held.entry) + scan_tool(held.name, held.entry)


def _digests(found: Digests, *, approved: bool) -> Mapping[str, Any]:
    return {"whole": found.whole.hex(), "schema": found.schema.hex(), "approved": approved}


def _wanted(one: object) -> tuple[str, str, str]:
    fields = [one.get(name) for name in ("kind", "name", "digest")] if isinstance(one, dict) else []
    texts = [field for field in fields if isinstance(field, str)]
    if len(texts) != 3:
        raise OwnerError("invalid_request", "Each of `definitions` must have `kind`, `name` and `digest`.")
    return texts[0], texts[1], texts[2]
