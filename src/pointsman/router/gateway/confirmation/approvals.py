"""What the owner and the gate know of confirmations: calls that wait for a yes, and tools that have one for always.

Kept in the state store, so that several gateways have one list and a restart forgets no refusal. Everything here blocks
and raises StateAwayError; call it from a thread.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, Literal, TypeVar

import msgspec

from pointsman.core.model import Json, WallClock
from pointsman.router.state.key_values import ABSENT, Entry, KeyValues, StateAwayError

Answer = Literal["once", "refuse"]

MOST_DEFERRED: Final = 50  # calls of one token that wait for the owner
_PENDING: Final = "confirm/pending/"
_ARGUMENTS: Final = "confirm/arguments/"
_ALWAYS: Final = "confirm/always/"
_ROUND: Final = "confirm/round/"
_GATEWAY: Final = "confirm/gateway/"
LEASE_S: Final = 10.0  # a call is listed as long as the gateway in which it waits renews its lease
RENEW_S: Final = 3.0
_GONE_S: Final = 10.0  # for the owner to be told
ID_CHARS: Final = 10
T = TypeVar("T", bound=msgspec.Struct)
_sorted = msgspec.json.Encoder(order="sorted")


class Call(msgspec.Struct, frozen=True):
    """What is confirmed: a tool as it is defined now, and arguments, for a caller."""

    token: str
    project: str | None
    tool_key: str
    definition: str  # hex digest
    digest: str  # hex, of the tool's key and the arguments

    @property
    def whole(self) -> str:
        """The digest of all of it."""
        return _hex([self.token, self.project, self.tool_key, self.definition, self.digest])


class Pending(msgspec.Struct, frozen=True, rename="camel"):
    """A call that waits for a yes. `asked`: its client has the question, and the call waits in a gateway."""

    id: str
    call: Call
    asked: bool
    client: str
    server_id: str
    effect: str  # in words
    arguments: str  # JSON as people see it: bounded, without secrets and without invisible characters
    at: float
    until: float
    answer: Answer | None = None
    by: str = ""  # who answered: `page` or `cli`
    answered_at: float = 0.0
    gateway: str = ""  # in which it waits, if it is `asked`
    gone: bool = False  # it was not made in spite of a yes, because its client had left


class Standing(msgspec.Struct, frozen=True, rename="camel"):
    """A yes for always: for one token and tool, until the tool's definition or the token's secret changes."""

    id: str
    token: str
    tool_key: str
    definition: str
    secret: str  # the beginning of the hash of the token's secret: a new token of the same name is another one
    at: float
    by: str


class Looked(msgspec.Struct, frozen=True):
    """What the store says of a call."""

    always: bool = False
    answer: Answer | None = None
    by: str = ""
    id: str = ""
    left_s: float = 0.0  # an answer holds as long


def digest_of(tool_key: str, arguments: Json) -> str:
    return _hex([tool_key, arguments])


class Approvals:
    """Over any `KeyValues`."""

    def __init__(self, values: KeyValues, clock: WallClock = time.time) -> None:
        self._values = values
        self._clock = clock
        self._own = secrets.token_hex(8)
        self._renew_at = -math.inf  # on the monotonic clock

    # For the gate

    def look(self, call: Call, secret: str) -> Looked:
        """Whether the call has a yes: for always, or for once, which this uses up. A refusal of it is stronger."""
        refused = self.refusal(call)
        if refused is not None:
            return refused
        standing = _decode(self._values.get(_standing_key(call.token, call.tool_key)), Standing)
        if standing is not None and (standing.definition, standing.secret) == (call.definition, secret):
            return Looked(always=True)
        key = _deferred_key(call)
        entry = self._values.get(key)
        pending = _decode(entry, Pending)
        if entry is None or pending is None or pending.call != call:
            return Looked()
        if pending.answer == "once" and not self._values.delete(key, version=entry.version):
            return Looked()  # another call has used it
        if pending.answer == "once":
            self._forget_arguments(pending)
        return self._looked(pending)

    def refusal(self, call: Call) -> Looked | None:
        """The owner's no to this very call, as long as it is the owner's latest word on it."""
        pending = _decode(self._values.get(_deferred_key(call)), Pending)
        refused = pending is not None and pending.call == call and pending.answer == "refuse"
        return self._looked(pending) if pending is not None and refused else None

    def _looked(self, pending: Pending) -> Looked:
        left_s = max(pending.until - self._clock(), 0.0)
        return Looked(answer=pending.answer, by=pending.by, id=pending.id, left_s=left_s)

    def defer(self, pending: Pending, life_s: float) -> Pending | None:
        """List a call for the owner, once however often it is repeated; None: too many of its token are listed."""
        token, key = pending.call.token, _deferred_key(pending.call)
        pending = msgspec.structs.replace(pending, id=_short(pending.call), asked=False)
        listed = self._values.list(f"{_PENDING}{token}/")
        if key not in listed and len(listed) >= MOST_DEFERRED:
            return None
        self._values.put(key, _encode(pending), version=ABSENT, life_s=life_s)
        return pending

    def add(self, pending: Pending, life_s: float) -> None:
        """List a call that waits in this gateway, as long as `answers` is called at least every RENEW_S."""
        self._renew_lease()
        listed = msgspec.structs.replace(pending, gateway=self._own)
        self._values.put(_asked_key(pending), _encode(listed), life_s=life_s)

    def remove(self, pending: Pending) -> None:
        self._values.delete(_asked_key(pending))
        self._forget_arguments(pending)

    def keep_arguments(self, pending: Pending, text: str, life_s: float) -> None:
        """All of the arguments of a call that is listed, because `pending.arguments` are shortened."""
        self._values.put(_arguments_key(pending), text.encode(), life_s=life_s)

    def arguments_of(self, pending: Pending) -> str:
        """All of the arguments, as far as they are kept."""
        entry = self._values.get(_arguments_key(pending))
        return entry.value.decode() if entry is not None else pending.arguments

    def _forget_arguments(self, pending: Pending) -> None:
        self._values.delete(_arguments_key(pending))

    def leave(self, pending: Pending) -> None:
        """Say that a call that was answered is not made: its client has left."""
        gone = msgspec.structs.replace(pending, gone=True)
        self._values.put(_asked_key(pending), _encode(gone), life_s=_GONE_S)

    def answers(self) -> dict[str, Pending]:
        """The answered ones of those that wait in a gateway, by id."""
        self._renew_lease()
        return {one.id: one for one in self.pending() if one.asked and one.answer is not None}

    def _renew_lease(self) -> None:
        now = time.monotonic()
        if now >= self._renew_at:
            self._values.put(_GATEWAY + self._own, b"", life_s=LEASE_S)
            self._renew_at = now + RENEW_S

    def open_round(self, call: Call, life_s: float) -> str:
        """A word by which the next round of a confirmed call is known, once."""
        word = secrets.token_urlsafe(18)
        self._values.put(_ROUND + word, call.whole.encode(), version=ABSENT, life_s=life_s)
        return word

    def continue_round(self, word: str, call: Call) -> bool:
        """Use up the word of the round before."""
        if not word.isascii() or not word.replace("-", "").replace("_", "").isalnum():
            return False
        entry = self._values.get(_ROUND + word)
        if entry is None or entry.value != call.whole.encode():
            return False
        return self._values.delete(_ROUND + word, version=entry.version)

    def close(self) -> None:
        self._values.close()

    # For the owner

    def pending(self) -> Sequence[Pending]:
        """The oldest first. A call that waited in a gateway that was killed is not listed any more."""
        found = [_decode(entry, Pending) for entry in self._values.list(_PENDING).values()]
        waiting = [one for one in found if one is not None and not one.gone]
        running = self._values.list(_GATEWAY) if any(one.asked for one in waiting) else {}
        listed = (one for one in waiting if not one.asked or _GATEWAY + one.gateway in running)
        return sorted(listed, key=lambda one: one.at)

    def standing(self) -> Sequence[Standing]:
        found = (_decode(entry, Standing) for entry in self._values.list(_ALWAYS).values())
        return [one for one in found if one is not None]

    def answer(self, pending: Pending, answer: Answer, by: str, life_s: float) -> bool:
        """Answer a call, instead of the answer that `pending` has; False: it was answered, has ended or has expired
        meanwhile."""
        key = _asked_key(pending) if pending.asked else _deferred_key(pending.call)
        entry = self._values.get(key)
        now = _decode(entry, Pending)
        if entry is None or now is None or (now.answer, now.call) != (pending.answer, pending.call):
            return False
        at = self._clock()
        answered = msgspec.structs.replace(now, answer=answer, by=by, answered_at=at, until=at + life_s)
        return self._values.put(key, _encode(answered), version=entry.version, life_s=life_s) is not None

    def refuse(self, pending: Pending, by: str, life_s: float) -> None:
        """Refuse the calls identical to one that waits in a gateway, which has its own answer."""
        at, short = self._clock(), _short(pending.call)
        kept = msgspec.structs.replace(
            pending, id=short, asked=False, answer="refuse", by=by, answered_at=at, until=at + life_s
        )
        self._values.put(_deferred_key(pending.call), _encode(kept), life_s=life_s)

    def forget_refusal(self, call: Call) -> None:
        """The owner has said yes to an identical call since."""
        key = _deferred_key(call)
        entry = self._values.get(key)
        pending = _decode(entry, Pending)
        if entry is not None and pending is not None and pending.answer == "refuse":
            self._values.delete(key, version=entry.version)

    def drop(self, pending: Pending) -> bool:
        """Forget a call whose client cannot be asked, with its answer; False: something has changed meanwhile."""
        key = _deferred_key(pending.call)
        entry = self._values.get(key)
        now = _decode(entry, Pending)
        if entry is None or now is None or (now.answer, now.call) != (pending.answer, pending.call):
            return False
        dropped = self._values.delete(key, version=entry.version)
        if dropped:
            self._forget_arguments(pending)
        return dropped

    def answered(self, pending: Pending) -> Pending | None:
        """The call as it is now, if it has an answer that can still be replaced."""
        now = _decode(self._values.get(_deferred_key(pending.call)), Pending)
        return now if now is not None and now.call == pending.call and now.answer is not None else None

    def listed(self, pending: Pending) -> Pending | None:
        """A call that waits in a gateway, as long as that has not taken its answer; or that is `gone`."""
        return _decode(self._values.get(_asked_key(pending)), Pending)

    def always(self, call: Call, secret: str, by: str) -> Standing:
        """Say yes to all calls of a tool by a token, as it is defined in `call`."""
        key = _standing_key(call.token, call.tool_key)
        short = sha256(key.encode()).hexdigest()[:ID_CHARS]
        standing = Standing(short, call.token, call.tool_key, call.definition, secret, self._clock(), by)
        self._values.put(key, _encode(standing))
        return standing

    def withdraw(self, standing: Standing) -> bool:
        """Take back a yes for always, and each unused one for once of the same token and tool."""
        for one in self.pending():
            same = (one.call.token, one.call.tool_key) == (standing.token, standing.tool_key)
            if same and one.answer == "once" and not one.asked:
                self._values.delete(_deferred_key(one.call))
        return self._values.delete(_standing_key(standing.token, standing.tool_key))


def new_id() -> str:
    return secrets.token_hex(ID_CHARS // 2)


def _asked_key(pending: Pending) -> str:
    return f"{_PENDING}{pending.call.token}/{pending.id}"


def _deferred_key(call: Call) -> str:
    return f"{_PENDING}{call.token}/{_short(call)}"


def _arguments_key(pending: Pending) -> str:
    return f"{_ARGUMENTS}{pending.call.token}/{pending.id}"


def _short(call: Call) -> str:
    return call.whole[:ID_CHARS]


def _standing_key(token: str, tool_key: str) -> str:
    return f"{_ALWAYS}{token}/{sha256(tool_key.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _decode(entry: Entry | None, kind: type[T]) -> T | None:
    """Raises StateAwayError: what is stored is not ours, so nothing may be concluded from it."""
    if entry is None:
        return None
    try:
        return msgspec.json.decode(entry.value, type=kind)
    except msgspec.DecodeError as error:
        raise StateAwayError(f"a stored approval cannot be read: {error}") from error


def _encode(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


def _hex(value: object) -> str:
    return sha256(_sorted.encode(value)).hexdigest()
