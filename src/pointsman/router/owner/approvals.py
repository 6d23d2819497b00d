"""The owner's answers to calls that need a yes: listed, answered once or for always, refused, and withdrawn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

from pointsman.core.model import Json
from pointsman.router.gateway.confirmation.approvals import Approvals, Pending, Standing
from pointsman.router.gateway.confirmation.gate import SessionAnswer, secret_of
from pointsman.router.gateway.confirmation.question_text import is_shortened
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
E = TypeVar("E", bound=Pending | Standing | SessionAnswer)


async def list_approvals(parts: Parts) -> Json:
    """The calls that wait for a yes, the tools that have one for always or at a modern client for 15 minutes, and
    whether any call needs one at all. A call of a server that was removed waits for nothing.

    `always` of a call that waits: its token and tool have a yes for always, so that it runs when it is repeated.
    """
    servers = parts.current.config.servers
    store = parts.gateway.gate.approvals
    pending, standing = await _stored(store.pending), await _stored(store.standing)
    always = [_described_standing(parts, one) for one in standing]
    runs = {(one["token"], one["toolKey"]) for one in always if one["inEffect"]}
    sessions = parts.gateway.gate.session_answers()
    return {
        "inUse": not parts.catalog.rights.confirm.idle,
        "pending": [
            {**_described(parts, one), "always": (one.call.token, one.call.tool_key) in runs}
            for one in pending
            if one.server_id in servers
        ],
        "always": always,
        "sessions": [_described_session(one) for one in sessions if one.tool_key.partition(":")[0] in servers],
    }


async def count_waiting(parts: Parts) -> int | None:
    """How many calls wait for an answer; None: the state store cannot be read."""
    if parts.catalog.rights.confirm.idle:
        return 0
    try:
        listed = (await list_approvals(parts))["pending"]
    except OwnerError:
        return None
    return sum(one["answer"] is None for one in listed)


async def show_call(parts: Parts, approval_id: str) -> Json:
    """One call with all of its arguments, as far as they have at most 64 KiB, without secrets."""
    store = parts.gateway.gate.approvals
    pending = _find(await _stored(store.pending), approval_id, "call")
    return {**_described(parts, pending), "arguments": await _stored(lambda: store.arguments_of(pending))}


async def answer_call(parts: Parts, approval_id: str, answer: Answer, asked_by: str) -> Json:
    """Answer a call that waits. `once`: this call, or the next identical one of a client that cannot be asked.

    The latest answer to such a call holds, and says which one it replaces. A refusal holds for all identical calls,
    also where they would be asked. Of two answers at the same moment the second is refused, with what holds.
    """
    store = parts.gateway.gate.approvals
    pending = _find(await _stored(store.pending), approval_id, "call that waits")
    changes_mind = pending.answer != answer and not pending.asked
    if pending.answer is not None and not changes_mind:
        step = f"`pointsman approve {pending.id} --withdraw` takes the answer back, as long as it has not been used."
        raise OwnerError("answered", f"The call `{pending.id}` has been answered already: {pending.answer}. {step}")
    secret = secret_of(parts.current.config, pending.call.token)
    if not secret:
        raise OwnerError("gone", f"The token `{pending.call.token}` does not exist any more.")
    by = _PAGE if asked_by == _PAGE else "cli"
    if not await _stored(lambda: _take(store, pending, answer, by, parts.current.config.limits.approval_s)):
        now = await _stored(lambda: store.answered(pending))
        raise _over(pending) if now is None else _overtaken(now)
    if answer == "always":
        await _stored(lambda: store.always(pending.call, secret, by))
    _record(parts, answer, pending.call.token, pending.call.tool_key, pending.server_id, asked_by)
    if pending.asked:
        await _until_taken(parts, store, pending, answer)
    described = _described(parts, pending)
    return described | {"answer": answer, "note": _replaced(pending) + _note(described, answer)}


def _replaced(pending: Pending) -> str:
    """Which answer of the owner the new one replaces; empty: it is the first."""
    if pending.answer is None:
        return ""
    what = "a refusal" if pending.answer == "refuse" else "an unused yes for once"
    return f" This replaces {what}, {_given(pending)}."


def _given(pending: Pending) -> str:
    """Who gave an answer, and when."""
    who = "on the page" if pending.by == _PAGE else "by `pointsman approve`"
    ago_s = round(max(time.time() - pending.answered_at, 0.0))
    return f"given {who} {ago_s} s ago" if pending.answered_at else f"given {who}"


def _note(one: Json, answer: Answer) -> str:
    """The sentences that follow an answer, each after a space: whether a yes has an effect, and what is next."""
    if answer == "refuse":
        return ""
    why = " This yes has no effect: the tool's definition has changed since the call was made"
    if one["changed"] == "held":
        step = f"`pointsman pin approve {one['toolKey']}`"
        return f"{why}, and waits for {step}. After that, a repeated call is asked again."
    if one["changed"] is not None:
        return f"{why}. If the call is repeated, it is asked again."
    return "" if one["asked"] else " Its client may now repeat the call."


def _take(store: Approvals, pending: Pending, answer: Answer, by: str, life_s: float) -> bool:
    """A yes for always leaves none for once behind: only a call that waits in a gateway is told."""
    if answer == "always" and not pending.asked:
        return store.drop(pending)
    taken = store.answer(pending, "refuse" if answer == "refuse" else "once", by, life_s)
    if taken and pending.asked:
        store.refuse(pending, by, life_s) if answer == "refuse" else store.forget_refusal(pending.call)
    return taken


async def withdraw(parts: Parts, approval_id: str, asked_by: str) -> Json:
    """Take back an answer: a yes for always, for a session, or for once that has not been used, or a refusal."""
    gate = parts.gateway.gate
    standing = await _stored(gate.approvals.standing)
    answered = [one for one in await _stored(gate.approvals.pending) if one.answer is not None and not one.asked]
    answers: list[Pending | Standing | SessionAnswer] = [*standing, *answered, *gate.session_answers()]
    found = _find(answers, approval_id, "answer")
    if isinstance(found, Standing):
        always = found
        await _stored(lambda: gate.approvals.withdraw(always))
        gate.end_sessions(found.token, found.tool_key)
        described: Json = {**_described_standing(parts, found), "withdrawn": "always"}
    elif isinstance(found, Pending):
        pending = found
        if not await _stored(lambda: gate.approvals.drop(pending)):
            raise _over(found)
        described = {**_described(parts, found), "withdrawn": found.answer}
    else:
        gate.end_session(found.id)
        described = {**_described_session(found), "withdrawn": "session"}
    tool_key = described["toolKey"]
    _record(parts, "withdraw", described["token"], tool_key, tool_key.partition(":")[0], asked_by)
    return described


async def _until_taken(parts: Parts, store: Approvals, pending: Pending, answer: Answer) -> None:
    """Wait until the gateway in which the call waits has the answer. Raises OwnerError: it has ended."""
    parts.gateway.gate.look()
    ends = time.monotonic() + TAKEN_S
    while (found := await _stored(lambda: store.listed(pending))) is not None:
        if found.gone or time.monotonic() > ends:
            await _stored(lambda: store.remove(pending))
            raise _left(pending, answer) if found.gone else _over(pending)
        await asyncio.sleep(_LOOK_S)


def _record(parts: Parts, what: str, token: str, tool_key: str, server_id: str, asked_by: str) -> None:
    parts.audit.record_change(
        f"approval/{what}", f"tokens.{token}", client=asked_by, server_id=server_id, tool_key=tool_key
    )


def _described(parts: Parts, one: Pending) -> Json:
    """`changed`: why a yes has no effect, `held` if the tool's definition waits for approval; None: it has."""
    return {
        "id": one.id,
        "token": one.call.token,
        "project": one.call.project,
        "client": one.client,
        "toolKey": one.call.tool_key,
        "effect": one.effect,
        "arguments": one.arguments,
        "shortened": is_shortened(one.arguments),
        "digest": one.call.digest,
        "asked": one.asked,
        "answer": one.answer,
        "answeredBy": one.by or None,
        "changed": _change_since(parts, one.call.tool_key, one.call.definition),
        "ageS": round(max(time.time() - one.at, 0.0)),
        "leftS": round(max(one.until - time.time(), 0.0)),
    }


def _described_session(one: SessionAnswer) -> Json:
    return {
        "id": one.id,
        "token": one.token,
        "project": one.project,
        "client": one.client,
        "toolKey": one.tool_key,
        "leftS": round(one.left_s),
    }


def _described_standing(parts: Parts, one: Standing) -> Json:
    """`inEffect`: the server is configured, and neither the token nor the tool's definition has changed since, as far
    as the definition is known."""
    configured = one.tool_key.partition(":")[0] in parts.current.config.servers
    same = configured and _change_since(parts, one.tool_key, one.definition) is None
    return {
        "id": one.id,
        "token": one.token,
        "toolKey": one.tool_key,
        "by": one.by,
        "ageS": round(max(time.time() - one.at, 0.0)),
        "inEffect": same and one.secret == secret_of(parts.current.config, one.token),
    }


def _change_since(parts: Parts, tool_key: str, definition: str) -> Literal["held", "changed"] | None:
    """Whether a tool has another definition now, as far as is known; `held`: one that waits for approval."""
    server_id, _, name = tool_key.partition(":")
    listed = parts.catalog.last_list(server_id)
    tool = listed.items.get(name) if listed is not None else None
    if tool is not None:
        return None if tool.digest.hex() == definition else "changed"
    held = any((one.kind, one.name) == ("tool", name) for one in parts.pins.held(server_id))
    return "held" if held else None


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


def _overtaken(now: Pending) -> OwnerError:
    what = "refused" if now.answer == "refuse" else "answered with yes, once"
    return OwnerError(
        "answered",
        f"Your answer was not taken: the call `{now.id}` was {what} meanwhile, {_given(now)}, and that holds. "
        "Answer once more to replace it.",
    )


def _left(pending: Pending, answer: Answer) -> OwnerError:
    holds = " The yes for always holds." if answer == "always" else ""
    caller = f"the client of `{pending.call.token}`"
    return OwnerError("gone", f"Nothing was run: {caller} left before the call `{pending.id}` was answered.{holds}")


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
        "approval": lambda given: show_call(parts, read_text(given, "id")),
        "answer_approval": answer,
        "withdraw_approval": lambda given: withdraw(parts, read_text(given, "id"), client),
    }


def _answer(given: Json) -> Answer:
    for one in ANSWERS:
        if given.get("answer") == one:
            return one
    raise OwnerError("invalid_request", f"`answer` must be one of {', '.join(ANSWERS)}.")
