"""The gate: a call that needs a person's yes waits here for it. Whatever goes wrong, the call is not made."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from hashlib import sha256
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from pointsman.catalog.confirmation import Rule
from pointsman.catalog.definitions import KnownTool
from pointsman.catalog.identities import is_identity, rights_token
from pointsman.config.model import GatewayConfig
from pointsman.core.errors import ConfirmationRefusedError, ConfirmationRequiredError
from pointsman.core.kinds import declares
from pointsman.core.model import Caller, Json
from pointsman.core.seams import (
    CONFIRMATION,
    BackChannel,
    CannotAskError,
    ClientGoneError,
    FrontRequest,
    ProtocolError,
)
from pointsman.router.audit.log import Record
from pointsman.router.gateway.confirmation import question_text
from pointsman.router.gateway.confirmation.approvals import (
    ID_CHARS,
    Approvals,
    Call,
    Looked,
    Pending,
    digest_of,
    new_id,
)
from pointsman.router.gateway.rounds import RecordedRounds
from pointsman.router.state.key_values import KeyValues, StateAwayError

METHOD: Final = "elicitation/create"
MODERN_SESSION_S: Final = (
    900.0  # modern clients have no sessions: `session` is this long, for token, project and client
)
LOOK_EVERY_S: Final = 1.0  # for the owner's answer, which may have been given to another gateway
SECRET_CHARS: Final = 16  # of the hash of a token's secret
_MOST_SESSIONS: Final = 10_000
_MOST_LISTED_SESSIONS: Final = 500
_WAYS = (
    "Nothing was run. The person can answer it with `pointsman approve {id}` or on the gateway's page within {within}; "
    "then make the same call again, with the same arguments. A client that supports elicitation is asked directly."
)

logger = logging.getLogger(__name__)


class _Answer(NamedTuple):
    word: str  # `once`, `session`, or anything else for no
    by: str  # `client`, `page` or `cli`


class _Session(NamedTuple):
    """What an answer `session` is for: a tool as it is defined now, in a legacy session, or for a modern client."""

    era: str
    caller: Caller
    holder: object  # the session, or the name of the client
    tool_key: str
    definition: str


class SessionAnswer(NamedTuple):
    """An answer `session` of a modern client that holds, as the owner sees it."""

    id: str
    token: str
    project: str | None
    client: str
    tool_key: str
    left_s: float


class _Gated(msgspec.Struct, frozen=True, eq=False):
    """One call at the gate."""

    request: FrontRequest
    record: Record
    rule: Rule
    tool: KnownTool
    arguments: Json
    call: Call
    session: _Session | None  # None: `session` is no answer here


class Gate:
    """Asks, waits and remembers. One for each gateway; the store is shared between them."""

    def __init__(self, values: KeyValues, config: Callable[[], GatewayConfig]) -> None:
        self.approvals = Approvals(values)
        self._config = config
        self._open: dict[str, asyncio.Future[_Answer]] = {}  # by the id of a pending call of this gateway
        self._sessions: OrderedDict[_Session, float] = OrderedDict()  # until when `session` holds
        self._look = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching = False

    async def confirm(
        self, request: FrontRequest, back: BackChannel, record: Record, rule: Rule, tool: KnownTool, arguments: Json
    ) -> bool:
        """Return once a person has said yes; whether that took a question, so that the world may have changed.

        Raises:
            ConfirmationRequiredError, ConfirmationRefusedError: do not make the call.
            ProtocolError: its next row cannot be written.
        """
        call = _call(request, tool, arguments)
        gated = _Gated(request, record, rule, tool, arguments, call, _session_of(request, call))
        try:
            if await self._has_yes(gated):
                return False
            await self._ask_person(gated, back)
        except StateAwayError as error:
            logger.error("a call was refused, because its confirmation cannot be looked up: %s", error)  # noqa: TRY400
            record.confirmed = "unavailable"
            raise ConfirmationRequiredError(
                "The call needs a person's confirmation, which cannot be recorded now. Nothing was run. The operator "
                "finds the reason in the gateway's log; try again later."
            ) from None
        return True

    async def next_round(self, request: FrontRequest, tool: KnownTool, arguments: Json, result: Json) -> Json:
        """Let a modern client go on with a confirmed call that its server has answered with a question."""
        call = _call(request, tool, arguments)
        try:
            word = await asyncio.to_thread(self.approvals.open_round, call, self._config().limits.parked_s)
        except StateAwayError as error:
            logger.warning("the next round of a confirmed call will be asked again: %s", error)
            return result
        return {**result, CONFIRMATION: word}

    def look(self) -> None:
        """The owner has answered: look now."""
        self._look.set()

    def session_answers(self) -> list[SessionAnswer]:
        """The answers `session` of modern clients to this gateway that hold, the latest first, and at most 500.

        When a legacy session ends is not known here, so those are not listed.
        """
        now = time.monotonic()
        held = ((key, until - now) for key, until in reversed(self._sessions.items()) if until > now)
        modern = (_session_answer(key, left_s) for key, left_s in held if key.era == "modern")
        return list(islice(modern, _MOST_LISTED_SESSIONS))

    def end_session(self, answer_id: str) -> None:
        """Ask again in spite of an answer `session`."""
        for key in [key for key in self._sessions if key.era == "modern" and _session_id(key) == answer_id]:
            del self._sessions[key]

    def end_sessions(self, token: str, tool_key: str) -> None:
        """Ask again in spite of all answers `session` for a token and tool, in both eras."""
        for key in [key for key in self._sessions if (key.caller.token_id, key.tool_key) == (token, tool_key)]:
            del self._sessions[key]

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self.approvals.close)

    async def _has_yes(self, gated: _Gated) -> bool:
        """Whether somebody has said yes before. Raises ConfirmationRefusedError, StateAwayError."""
        record, call, word = gated.record, gated.call, gated.request.confirmation
        await self._raise_if_refused(gated)
        if word is not None and await asyncio.to_thread(self.approvals.continue_round, word, call):
            record.confirmed = "earlier round"
            return True
        if gated.session is not None and self._sessions.get(gated.session, 0.0) > time.monotonic():
            record.confirmed = "session"
            return True
        looked = await asyncio.to_thread(self.approvals.look, call, secret_of(self._config(), call.token))
        if looked.always:
            record.confirmed = "always"
            return True
        if looked.answer is None:
            return False
        self._settle(gated, _Answer(looked.answer, looked.by))
        return True

    async def _raise_if_refused(self, gated: _Gated) -> None:
        """The owner's no to this very call holds whatever else says yes. Raises ConfirmationRefusedError."""
        refused = await asyncio.to_thread(self.approvals.refusal, gated.call)
        if refused is not None:
            gated.record.confirmed = f"{refused.by} refused"
            raise ConfirmationRefusedError(gated.call.tool_key, _refusal(refused))

    async def _ask_person(self, gated: _Gated, back: BackChannel) -> None:
        """Raises ConfirmationRequiredError, ConfirmationRefusedError, ProtocolError, StateAwayError."""
        request, pending = gated.request, self._pending(gated)
        if not declares(request.client.capabilities, METHOD):
            raise await self._defer(gated, pending)
        rounds = RecordedRounds(back, request, gated.record) if request.client.era == "modern" else None
        question = question_text.question(gated.rule, gated.tool, gated.arguments, _life(gated))
        try:
            answer = await self._first_answer(rounds or back, question, gated, pending)
        except (CannotAskError, ProtocolError):
            raise await self._defer(gated, pending) from None
        except ClientGoneError:
            gated.record.confirmed = "client gone"
            raise ConfirmationRequiredError("Nothing was run: the client left before it confirmed the call.") from None
        if rounds is not None:
            rounds.next_round()  # unless the client's answer has begun it
        if answer is None:
            gated.record.confirmed = "timeout"
            raise self._timed_out(gated.call)
        if answer.by == "client":
            await self._raise_if_refused(gated)  # by the owner, in the meantime
        self._settle(gated, answer)

    def _settle(self, gated: _Gated, answer: _Answer) -> None:
        """Raises ConfirmationRefusedError unless the answer is a yes."""
        if answer.word == "session" and gated.session is not None:
            self._remember(gated.session)
        elif answer.word != "once":
            gated.record.confirmed = f"{answer.by} refused"
            raise ConfirmationRefusedError(gated.call.tool_key)
        gated.record.confirmed = f"{answer.by} {answer.word}"

    async def _first_answer(self, back: BackChannel, question: Json, gated: _Gated, pending: Pending) -> _Answer | None:
        """The answer of the client or of the owner; None: neither answered in time. The owner's counts only as long as
        the client is there: a legacy client that was killed has left, though it could still resume its stream.

        Raises StateAwayError, and as `BackChannel.ask`.
        """
        limit_s = self._config().limits.parked_s
        await asyncio.to_thread(self.approvals.add, pending, limit_s)
        await asyncio.to_thread(self._keep_arguments, gated, pending, limit_s)
        owner: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._open[pending.id] = owner
        self._watch()
        client = asyncio.ensure_future(_ask(back, question))
        end = self.approvals.remove
        try:
            await asyncio.wait((client, owner), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not owner.done():
                return client.result() if client.done() else None
            if not back.reachable():
                end = self.approvals.leave
                raise ClientGoneError
            return owner.result()
        finally:
            del self._open[pending.id]
            self._spawn(self._end(end, pending))
            client.cancel()
            await asyncio.gather(client, return_exceptions=True)

    async def _defer(self, gated: _Gated, pending: Pending) -> ConfirmationRequiredError:
        """List a call whose client cannot be asked. Raises StateAwayError."""
        life_s = self._config().limits.approval_s
        pending = msgspec.structs.replace(pending, until=pending.at + life_s)
        listed = await asyncio.to_thread(self.approvals.defer, pending, life_s)
        what = f"The call of {question_text.name(pending.call.tool_key)} needs a person's confirmation"
        if listed is None:
            gated.record.confirmed = "not listed"
            return ConfirmationRequiredError(
                f"{what}, and too many calls of this token wait for one already. Nothing was run. Wait until the "
                "person has answered some of them with `pointsman approve` or on the gateway's page."
            )
        await asyncio.to_thread(self._keep_arguments, gated, listed, life_s)
        gated.record.confirmed = "listed"
        ways = _WAYS.format(id=listed.id, within=_minutes(life_s))
        return ConfirmationRequiredError(f"{what}, and this client cannot ask for it. {ways}")

    def _keep_arguments(self, gated: _Gated, listed: Pending, life_s: float) -> None:
        """Let the owner see what the question shortens, also after the answer. Raises StateAwayError."""
        whole = question_text.whole_arguments(gated.arguments, gated.tool)
        if whole is not None:
            self.approvals.keep_arguments(listed, whole, life_s + self._config().limits.approval_s)

    def _timed_out(self, call: Call) -> ConfirmationRequiredError:
        limit_s = self._config().limits.parked_s
        return ConfirmationRequiredError(
            f"The call of {question_text.name(call.tool_key)} needs a person's confirmation, and nobody answered "
            f"within {limit_s:g} s. Nothing was run. Make the call again if it is still wanted."
        )

    def _pending(self, gated: _Gated) -> Pending:
        now = time.time()
        return Pending(
            id=new_id(),
            call=gated.call,
            asked=True,
            client=gated.request.client.name,
            server_id=gated.tool.server_id,
            effect=question_text.effect(gated.rule, gated.tool),
            arguments=question_text.shown_arguments(gated.arguments, gated.tool, masked=True),
            at=now,
            until=now + self._config().limits.parked_s,
        )

    def _remember(self, session: _Session) -> None:
        lasts_s = MODERN_SESSION_S if session.era == "modern" else math.inf
        self._sessions[session] = time.monotonic() + lasts_s
        self._sessions.move_to_end(session)
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)

    # The owner's answers to calls that wait here

    def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            self._spawn(self._take_answers())

    async def _take_answers(self) -> None:
        try:
            while self._open:
                await self._take_answers_now()
                try:
                    await asyncio.wait_for(self._look.wait(), LOOK_EVERY_S)
                except TimeoutError:
                    continue
                self._look.clear()
        finally:
            self._watching = False

    async def _take_answers_now(self) -> None:
        try:
            answered = await asyncio.to_thread(self.approvals.answers)
        except StateAwayError:
            return  # nobody can have answered
        for pending_id, waiting in self._open.items():
            found = answered.get(pending_id)
            if found is not None and found.answer is not None and not waiting.done():
                waiting.set_result(_Answer(found.answer, found.by))

    async def _end(self, end: Callable[[Pending], None], pending: Pending) -> None:
        try:
            await asyncio.to_thread(end, pending)
        except StateAwayError as error:
            logger.warning("a call that is over stays listed until its time is over: %s", error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _call(request: FrontRequest, tool: KnownTool, arguments: Json) -> Call:
    key, caller = tool.document.tool_key, request.caller
    return Call(caller.token_id, caller.project_id, key, tool.digest.hex(), digest_of(key, arguments))


def secret_of(config: GatewayConfig, token_id: str) -> str:
    """What tells a token from an earlier or later one of the same name. An identity stays the same for ever."""
    if is_identity(token_id):
        return rights_token(token_id)[:SECRET_CHARS]
    token = config.tokens.get(token_id)
    return token.sha256[:SECRET_CHARS] if token is not None else ""


def _session_of(request: FrontRequest, call: Call) -> _Session | None:
    era = request.client.era
    holder = request.client.name if era == "modern" else request.session
    if era != "modern" and not holder:
        return None
    return _Session(era, request.caller, holder, call.tool_key, call.definition)


def _session_id(key: _Session) -> str:
    """Of a modern client."""
    told = [key.caller.token_id, key.caller.project_id, key.holder, key.tool_key, key.definition]
    return sha256(msgspec.json.encode(told)).hexdigest()[:ID_CHARS]


def _session_answer(key: _Session, left_s: float) -> SessionAnswer:
    caller = key.caller
    return SessionAnswer(_session_id(key), caller.token_id, caller.project_id, str(key.holder), key.tool_key, left_s)


def _refusal(looked: Looked) -> str:
    return (
        f"the owner refused it earlier, and that holds for another {_minutes(math.ceil(looked.left_s))}, unless the "
        f"owner takes it back with `pointsman approve {looked.id} --withdraw`"
    )


def _life(gated: _Gated) -> str | None:
    if gated.session is None:
        return None
    if gated.request.client.era == "modern":
        name = question_text.name(gated.request.client.name)
        clients = f"every client of this token that calls itself {name}"
        return f"all calls of this tool by {clients}, with any arguments, for {_minutes(MODERN_SESSION_S)}"
    return "all calls of this tool, with any arguments, until this session ends"


async def _ask(back: BackChannel, question: Json) -> _Answer:
    """The client's answer; empty: not one of those that were asked for. Raises as `BackChannel.ask`."""
    result = await back.ask(METHOD, question)
    content = result.get("content")
    word = content.get("answer") if result.get("action") == "accept" and isinstance(content, dict) else None
    return _Answer(word if isinstance(word, str) else "", "client")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.3g} minutes" if seconds >= 120 else f"{seconds:g} seconds"
