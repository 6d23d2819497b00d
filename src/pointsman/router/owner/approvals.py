"""The owner's answers to calls that need a yes: listed, answered once or for always, refused, and withdrawn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

from pointsman.core.model import Json
from pointsman.router.gateway.approvals import Approvals, Pending, Standing
from pointsman.router.gateway.confirmation import secret_of
from pointsman.router.owner.channel import Operation, OwnerError
from pointsman.router.owner.parameters import read_text
from pointsman.router.owner.parts import Parts
from pointsman.router.state.key_values import StateAwayError

Answer = Literal["once", "always", "refuse"]
ANSWERS: Final[tuple[Answer, ...]] = ("once", "always", "refuse")

TAKEN_S: Final = 3.0  # for the gateway in which a call waits to take the answer; it looks every second
_LOOK_S: Final = 0.05
_PAGE: Final = "page"  # the other way is the command line

T = TypeVar("T")
E = TypeVar("E", Pending, Standing)


async def list_approvals(parts: Parts) -> Json:
    """The calls that wait for a yes, the tools that have one for always, and whether any call needs one at all."""
    store = parts.gateway.gate.approvals
    pending, standing = await _stored(store.pending), await _stored(store.standing)
    return {
        "inUse": not parts.catalog.rights.confirm.idle,
        "pending": [_described(one) for one in pending],
        "always": [_described_standing(parts, one) for one in standing],
    }


async def answer_call(parts: Parts, approval_id: str, answer: Answer, asked_by: str) -> Json:
    """Answer a call that waits. `once`: this call, or the next identical one of a client that cannot be asked."""
    store = parts.gateway.gate.approvals
    pending = _find(await _stored(store.pending), approval_id, "call that waits")
    if pending.answer is not None:
        raise OwnerError("answered", f"The call `{pending.id}` has been answered already: {pending.answer}.")
    secret = secret_of(parts.current.config, pending.call.token)
    if not secret:
        raise OwnerError("gone", f"The token `{pending.call.token}` does not exist any more.")
    said: Literal["once", "refuse"] = "refuse" if answer == "refuse" else "once"
    by = _PAGE if asked_by == _PAGE else "cli"
    life_s = parts.current.config.limits.approval_s
    if not await _stored(lambda: store.answer(pending, said, by, life_s)):
        raise _over(pending)
    if answer == "always":
        await _stored(lambda: store.always(pending.call, secret, by))
    _record(parts, answer, pending.call.token, pending.call.tool_key, pending.server_id, asked_by)
    if pending.asked:
        await _until_taken(parts, store, pending)
    return _described(pending) | {"answer": answer}


async def withdraw(parts: Parts, approval_id: str, asked_by: str) -> Json:
    """Take back a yes for always."""
    store = parts.gateway.gate.approvals
    standing = _find(await _stored(store.standing), approval_id, "yes for always")
    await _stored(lambda: store.withdraw(standing))
    _record(parts, "withdraw", standing.token, standing.tool_key, standing.tool_key.partition(":")[0], asked_by)
    return _described_standing(parts, standing)


async def _until_taken(parts: Parts, store: Approvals, pending: Pending) -> None:
    """Wait until the gateway in which the call waits has the answer. Raises OwnerError: it has ended."""
    parts.gateway.gate.look()
    ends = time.monotonic() + TAKEN_S
    while await _stored(lambda: store.is_listed(pending)):
        if time.monotonic() > ends:
            await _stored(lambda: store.remove(pending))
            raise _over(pending)
        await asyncio.sleep(_LOOK_S)


def _record(parts: Parts, what: str, token: str, tool_key: str, server_id: str, asked_by: str) -> None:
    parts.audit.record_change(
        f"approval/{what}", f"tokens.{token}", client=asked_by, server_id=server_id, tool_key=tool_key
    )


def _described(one: Pending) -> Json:
    return {
        "id": one.id,
        "token": one.call.token,
        "project": one.call.project,
        "client": one.client,
        "toolKey": one.call.tool_key,
        "effect": one.effect,
        "arguments": one.arguments,
        "digest": one.call.digest,
        "asked": one.asked,
        "answer": one.answer,
        "answeredBy": one.by or None,
        "ageS": round(max(time.time() - one.at, 0.0)),
        "leftS": round(max(one.until - time.time(), 0.0)),
    }


def _described_standing(parts: Parts, one: Standing) -> Json:
    """`inEffect`: neither the token nor the tool's definition has changed since, as far as the definition is known."""
    server_id, _, name = one.tool_key.partition(":")
    listed = parts.catalog.last_list(server_id)
    tool = listed.items.get(name) if listed is not None else None
    same = tool is None or tool.digest.hex() == one.definition
    return {
        "id": one.id,
        "token": one.token,
        "toolKey": one.tool_key,
        "by": one.by,
        "ageS": round(max(time.time() - one.at, 0.0)),
        "inEffect": same and one.secret == secret_of(parts.current.config, one.token),
    }


def _find(entries: Sequence[E], approval_id: str, what: str) -> E:
    for one in entries:
        if one.id == approval_id:
            return one
    step = "`pointsman approve` lists what there is."
    raise OwnerError("unknown_approval", f"There is no {what} with the id `{approval_id[:64]}`. {step}")


def _over(pending: Pending) -> OwnerError:
    return OwnerError(
        "gone", f"The call `{pending.id}` does not wait any more: it was answered, has ended, or its time is over."
    )


async def _stored(work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except StateAwayError as error:
        raise OwnerError("state", f"Nothing was changed. {error}") from error


def operations_of_approvals(parts: Parts, client: str) -> dict[str, Operation]:
    """The operations by the names that the channel has for them, with their parameters checked."""

    async def answer(given: Json) -> Json:
        return await answer_call(parts, read_text(given, "id"), _answer(given), client)

    return {
        "approvals": lambda given: list_approvals(parts),
        "answer_approval": answer,
        "withdraw_approval": lambda given: withdraw(parts, read_text(given, "id"), client),
    }


def _answer(given: Json) -> Answer:
    for one in ANSWERS:
        if given.get("answer") == one:
            return one
    raise OwnerError("invalid_request", f"`answer` must be one of {', '.join(ANSWERS)}.")
