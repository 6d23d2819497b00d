"""Records calls: an intent before the call, an outcome after it, and refusals as one row."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, overload

import msgspec

from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.core.errors import (
    DEFINITION_CHANGED,
    INTERNAL,
    AuditUnavailableError,
    DownstreamError,
    GatewayError,
    RateLimitedError,
)
from pointsman.core.model import WallClock
from pointsman.core.seams import FrontRequest, ProtocolError
from pointsman.router.audit.journal import Journal, encode_line
from pointsman.router.audit.redaction import clean_arguments, clean_queries, free_text
from pointsman.router.audit.row_rate import REPEATED, RefusalCounter, RowRate, TokenBucket, too_many_rows
from pointsman.router.audit.rows import Ending, Intent, Kind, Outcome

MAX_NAME_CHARS = 128  # ids, client names, methods, codes
MAX_TOOL_KEY_CHARS = 256
MAX_LATE = 10_000  # outcomes kept in memory while the journal is not writable
UNAUTHORIZED_BURST = 100  # rows of callers without a valid token
UNAUTHORIZED_PER_S = 10.0
# By error code; all others are `error`.
_ENDINGS: dict[str, Ending] = {
    **dict.fromkeys(("unknown_tool", "rate_limited", "confirmation_required", "confirmation_refused"), "denied"),
    "timeout": "timeout",
}
CHANGES_BURST = 100  # rows of one server
CHANGES_PER_S = 1.0

logger = logging.getLogger(__name__)


class Observer(Protocol):
    """Gets what the journal gets, from the same code, so that `/metrics` agrees with the rows."""

    def finished(self, intent: Intent, outcome: Outcome) -> None: ...
    def journal_failed(self) -> None: ...


class Record(msgspec.Struct, eq=False):  # a struct, because each call makes one
    """A call in progress, whose intent is in the journal.

    As a context manager it writes the outcome when the block ends, derived from the exception if there is one.
    """

    _log: AuditLog
    _intent: Intent
    _began: float
    _finished: bool = False
    read_as: str | None = None  # for the outcome: how a call that was not written exactly was read
    confirmed: str | None = None  # for the outcome: how a person confirmed the call, or did not

    def __enter__(self) -> Record:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not self._finished:
            self.finish(*_ending_of(error))

    def finish(
        self,
        outcome: Ending,
        code: str | None = None,
        *,
        results: int | None = None,
        bytes: int | None = None,  # noqa: A002 - the row's field name
        provider: str | None = None,
        fallback: bool | None = None,
    ) -> None:
        """Write the outcome. Only the first call has an effect. Never raises."""
        if self._finished:
            return
        self._finished = True
        ms = int((self._log._monotonic() - self._began) * 1_000_000 + 0.5) / 1000  # `round` prints and parses it
        if code is not None:
            code = short_name(code, MAX_NAME_CHARS)
        if provider is not None:
            provider = short_name(provider, MAX_NAME_CHARS)
        written = Outcome(
            seq=self._intent.seq,
            outcome=outcome,
            code=code,
            ms=ms,
            results=results,
            bytes=bytes,
            provider=provider,
            fallback=fallback,
            read_as=self.read_as,
            confirmed=self.confirmed,
        )
        self._log._write_outcome(self._intent, written)

    def begin_next_round(self) -> None:
        """Continue the call in a new row, after this one was finished with `input_required`.

        Raises:
            AuditUnavailableError: the row could not be written; the call has no open row.
        """
        self._intent, self._began = self._log._begin_again(self._intent)
        self._finished = False


class AuditLog:
    """Writes the audit. Used from one thread; a call costs two short writes and never waits."""

    def __init__(
        self,
        journal: Journal,
        current: CurrentConfig | None = None,
        *,
        observers: Sequence[Observer] = (),
        wall: WallClock = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`current`: whether to record arguments, and how much one token may write; None for the defaults."""
        self._journal = journal
        self._current = current or CurrentConfig(GatewayConfig())
        self._observers = tuple(observers)
        self._wall = wall
        self._monotonic = monotonic
        self._late: deque[bytes] = deque()
        self._failing = False
        self.rows_held_back = False  # the state database is not writable; for `/health`
        self.journal_full = False  # no call begins until the state database takes rows again
        self._unauthorized = TokenBucket(UNAUTHORIZED_BURST, monotonic())
        self._changes: dict[str, TokenBucket] = {}  # by server
        self._rate = RowRate(self._current)
        self._refusals = RefusalCounter()

    def open(self) -> None:
        """Open the journal early, so that a failure is logged at start. `begin` retries."""
        try:
            self._journal.open()
        except OSError as error:
            self._failed(error)

    def begin(
        self,
        request: FrontRequest,
        kind: Kind,
        *,
        queries: Sequence[str] | None = None,
        tool_key: str | None = None,
        server_id: str | None = None,
        arguments: object = None,
    ) -> Record:
        """Write the intent. Send nothing to a server before this returns.

        Use as `with audit.begin(...) as record`, which writes an outcome for every intent.

        Raises:
            AuditUnavailableError: the intent could not be written.
            RateLimitedError: the token has written too much recently; the refusal is recorded.
        """
        token_id = request.caller.token_id
        wait_s = self._rate.wait_s(token_id, self._monotonic())
        if wait_s:
            self.record_refused_request(request, RateLimitedError.code, kind, tool_key, server_id)
            raise too_many_rows(wait_s)
        intent = Intent(
            seq=self._next_seq(),
            time_ms=int(self._wall() * 1000),
            request_id=request.id,
            kind=kind,
            token=token_id,
            project=request.caller.project_id,
            client=short_name(request.client.name, MAX_NAME_CHARS),
            method=short_name(request.method, MAX_NAME_CHARS),
            queries=None if queries is None else clean_queries(queries),
            tool_key=short_name(tool_key, MAX_TOOL_KEY_CHARS),
            server_id=short_name(server_id, MAX_NAME_CHARS),
            arguments=clean_arguments(arguments)
            if arguments is not None and self._current.audit.arguments
            else msgspec.UNSET,
        )
        return Record(self, intent, self._write_intent(intent))

    def record_refused_request(
        self, request: FrontRequest, code: str, kind: Kind, tool_key: object = None, server_id: str | None = None
    ) -> None:
        """`record_refusal` for a request whose caller is known. Never raises."""
        self.record_refusal(
            code,
            kind=kind,
            method=request.method,
            token_id=request.caller.token_id,
            project_id=request.caller.project_id,
            client=request.client.name,
            request_id=request.id,
            tool_key=tool_key if isinstance(tool_key, str) else None,
            server_id=server_id,
        )

    def record_refusal(
        self,
        code: str,
        *,
        kind: Kind,
        method: str,
        token_id: str | None,
        project_id: str | None = None,
        client: str = "",
        request_id: str | None = None,
        queries: Sequence[str] | None = None,
        tool_key: str | None = None,
        server_id: str | None = None,
        person: str | None = None,
    ) -> None:
        """Write the row of a call that was refused before it had any effect. Never raises.

        Callers without a valid token get a bounded number of rows, so that they cannot evict the
        rows of others; further refusals are only counted. Refusals that a token repeats share a row. A `person` who
        was verified and has no rights is named in the row, and counts as one without a token.
        """
        intent = Intent(
            seq=0,
            time_ms=int(self._wall() * 1000),
            request_id=short_name(request_id, MAX_NAME_CHARS) if request_id else secrets.token_hex(8),
            kind=kind,
            token=short_name(token_id, MAX_NAME_CHARS),
            project=short_name(project_id, MAX_NAME_CHARS),
            client=short_name(client, MAX_NAME_CHARS),
            method=short_name(method, MAX_NAME_CHARS),
            queries=None if queries is None else clean_queries(queries),
            tool_key=short_name(tool_key, MAX_TOOL_KEY_CHARS),
            server_id=short_name(server_id, MAX_NAME_CHARS),
        )
        outcome = Outcome(0, "denied", short_name(code, MAX_NAME_CHARS), ms=0.0)
        if self._has_own_row(intent, outcome):
            named = person if token_id is None else token_id
            self._write_row(msgspec.structs.replace(intent, token=short_name(named, MAX_NAME_CHARS)), outcome)
        for observer in self._observers:
            observer.finished(intent, outcome)

    def record_changed_tools(self, server_id: str, names: Sequence[str]) -> None:
        """Write a row for each known tool whose definition changed. Never raises.

        A server that keeps changing its tools gets a bounded number of rows; further changes are only counted.
        """
        now = self._monotonic()
        bucket = self._changes.get(server_id)
        if bucket is None:
            bucket = self._changes[server_id] = TokenBucket(CHANGES_BURST, now)
        bucket.fill(CHANGES_BURST, CHANGES_PER_S, now)
        for name in names:
            intent = Intent(
                seq=0,
                time_ms=int(self._wall() * 1000),
                request_id=secrets.token_hex(8),
                kind="change",
                method="tools/list",
                tool_key=short_name(f"{server_id}:{name}", MAX_TOOL_KEY_CHARS),
                server_id=short_name(server_id, MAX_NAME_CHARS),
            )
            outcome = Outcome(0, "ok", DEFINITION_CHANGED, ms=0.0)
            if bucket.left >= 1:
                bucket.left -= 1
                self._write_row(intent, outcome)
            for observer in self._observers:
                observer.finished(intent, outcome)

    def record_change(
        self,
        method: str,
        what: str,
        *,
        client: str,
        server_id: str | None = None,
        project_id: str | None = None,
        tool_key: str | None = None,
        token_id: str | None = None,
        ending: Ending = "ok",
        source: str = "",
    ) -> None:
        """Write a row for what the owner changed, or tried to. Never raises.

        `what` names the thing, such as `servers.time`; it becomes the code. `client` is the way: `page`, `pointsman
        cli`, or `file` for a change of the file itself. A file that keeps changing gets a bounded number of rows, and
        so does each other `source`.
        """
        now = self._monotonic()
        bucket = self._changes.setdefault(source, TokenBucket(CHANGES_BURST, now))
        if bucket.fill(CHANGES_BURST, CHANGES_PER_S, now) < 1:
            return
        bucket.left -= 1
        intent = Intent(
            seq=0,
            time_ms=int(self._wall() * 1000),
            request_id=secrets.token_hex(8),
            kind="change",
            token=short_name(token_id, MAX_NAME_CHARS),
            project=short_name(project_id, MAX_NAME_CHARS),
            client=short_name(client, MAX_NAME_CHARS),
            method=short_name(method, MAX_NAME_CHARS),
            tool_key=short_name(tool_key, MAX_TOOL_KEY_CHARS),
            server_id=short_name(server_id, MAX_NAME_CHARS),
        )
        self._write_row(intent, Outcome(0, ending, short_name(what, MAX_NAME_CHARS), ms=0.0))

    def _has_own_row(self, intent: Intent, outcome: Outcome) -> bool:
        now = self._monotonic()
        if intent.token is None and outcome.code not in REPEATED:
            if self._unauthorized.fill(UNAUTHORIZED_BURST, UNAUTHORIZED_PER_S, now) < 1:
                return False
            self._unauthorized.left -= 1
            return True
        over = intent.token is not None and self._rate.wait_s(intent.token, now) > 0
        if over or outcome.code in REPEATED:
            return self._refusals.is_first(intent, outcome, now)
        return True

    def housekeep(self) -> None:
        """Retry outcomes that could not be written, and close the segment. Called periodically."""
        self._write_repeats(self._monotonic())
        try:
            self._write_late()
            self._journal.rotate()
        except OSError as error:
            self._failed(error)

    @property
    def last_seq(self) -> int:
        """The seq of the latest row."""
        return self._journal.last_seq

    @property
    def position(self) -> object:
        """A value that changes with each row, and with each outcome of one."""
        return self._journal.written

    @property
    def failing(self) -> bool:
        """Whether calls are refused, because the last write failed or the journal is full; for `/health`."""
        return self._failing or self.journal_full

    def close(self) -> None:
        self._write_repeats(math.inf)
        try:
            self._write_late()
        except OSError as error:
            logger.error("could not write %d audit outcomes: %s", len(self._late), error)  # noqa: TRY400
        self._journal.close()

    def _begin_again(self, intent: Intent) -> tuple[Intent, float]:
        """Write the same intent with a new seq, and return it with its start time. Raises AuditUnavailableError."""
        again = msgspec.structs.replace(intent, seq=self._next_seq(), time_ms=int(self._wall() * 1000))
        return again, self._write_intent(again)

    def _next_seq(self) -> int:
        """Return the seq of an intent that is written at once. Raises AuditUnavailableError."""
        if self.journal_full:
            raise AuditUnavailableError
        try:
            if self._late:
                self._write_late()
            return self._journal.next_seq()
        except OSError as error:
            raise self._failed(error) from None

    def _write_intent(self, intent: Intent) -> float:
        """Write the intent, and return its start time. Raises AuditUnavailableError."""
        line = encode_line(intent)
        try:
            self._journal.append(line, intents=1)
        except OSError as error:
            raise self._failed(error) from None
        if intent.token is not None:
            self._rate.wrote(intent.token, len(line))
        if self._failing:
            self._recovered()
        return self._monotonic()

    def _write_outcome(self, intent: Intent, outcome: Outcome) -> None:
        line = encode_line(outcome)
        try:
            if self._late:
                self._write_late()
            self._journal.append(line)
        except OSError as error:
            self._failed(error)
            self._keep_for_later(line)
        for observer in self._observers:
            observer.finished(intent, outcome)

    def _write_row(self, intent: Intent, outcome: Outcome) -> None:
        try:
            self._write_late()
            seq = self._journal.next_seq()
            numbered = (msgspec.structs.replace(entry, seq=seq) for entry in (intent, outcome))
            lines = b"".join(map(encode_line, numbered))
            self._journal.append(lines, intents=1)
        except OSError as error:
            self._failed(error)
            return
        if intent.token is not None:
            self._rate.wrote(intent.token, len(lines))

    def _write_repeats(self, now: float) -> None:
        for intent, outcome in self._refusals.due(now):
            self._write_row(intent, outcome)

    def _write_late(self) -> None:
        while self._late:
            self._journal.append(self._late[0])
            self._late.popleft()

    def _keep_for_later(self, line: bytes) -> None:
        # No call begins while the journal fails, so the number of calls in progress bounds this already.
        if len(self._late) < MAX_LATE:
            self._late.append(line)

    def _failed(self, error: OSError) -> AuditUnavailableError:
        for observer in self._observers:
            observer.journal_failed()
        if not self._failing:
            self._failing = True
            reason = os.strerror(error.errno) if error.errno else str(error)
            logger.error("could not write the audit journal; calls are refused until it is writable: %s", reason)
        return AuditUnavailableError()

    def _recovered(self) -> None:
        self._failing = False
        logger.warning("the audit journal is writable again")


def _ending_of(error: BaseException | None) -> tuple[Ending, str | None]:
    """Return outcome and code of a block that ended with `error`."""
    if error is None:
        return "ok", None
    if isinstance(error, GatewayError):
        return _ENDINGS.get(error.code, "error"), error.code
    if isinstance(error, (ProtocolError, DownstreamError)):
        return "error", str(error.code)
    if isinstance(error, asyncio.CancelledError):
        return "cancelled", None
    return "error", INTERNAL


@overload
def short_name(text: str, limit: int) -> str: ...
@overload
def short_name(text: str | None, limit: int) -> str | None: ...
def short_name(text: str | None, limit: int) -> str | None:
    """Truncate a name (tool key, client, method) to `limit` and mask Pointsman tokens in it."""
    if text is not None and (len(text) > limit or "ptm_" in text):
        return free_text(text, limit)
    return text
