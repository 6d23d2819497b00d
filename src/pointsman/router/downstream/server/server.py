"""One downstream server, as the catalog and the gateway see it: the same object through all its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime

from msgspec.structs import replace

from pointsman.config.sections.server import Timeouts
from pointsman.core.errors import (
    MAY_HAVE_RUN,
    NOT_RUN,
    TRY_LATER,
    CallTimeoutError,
    DownstreamError,
    GatewayError,
    NotSentError,
)
from pointsman.core.kinds import SKILLS, SKILLS_EXTENSION
from pointsman.core.model import Caller, Json, ServerState, ServerStatus, WallClock
from pointsman.core.seams import INVALID_PARAMS, METHOD_NOT_FOUND, BackChannel, Change, FrontRequest
from pointsman.router.downstream.connection import (
    BudgetExceededError,
    Call,
    CallNotSentError,
    Connection,
    ConnectionLostError,
    Introduction,
    SessionRenewedError,
    SignInNeededError,
)
from pointsman.router.downstream.server.call import COMPLETE, Deadline, complete_with_input
from pointsman.router.downstream.server.caller_accounts import CallerAccounts
from pointsman.router.downstream.server.connection_lease import ConnectionLease
from pointsman.router.downstream.server.failures import as_gateway_error
from pointsman.router.downstream.server.list_generations import CHANGED, LISTS, Kind, ListGenerations
from pointsman.router.downstream.server.liveness import PING
from pointsman.router.downstream.server.own_connections import OwnConnections
from pointsman.router.downstream.talk.question_rules import ForbiddenQuestionError, checked_error, without_questions
from pointsman.router.downstream.talk.request_meta import APPS_CLIENT, NAMESPACE
from pointsman.router.downstream.talk.subscriptions import ACKNOWLEDGED, SubscribedResources, Subscriptions
from pointsman.router.serving.shares import FairQueue, TokenShares
from pointsman.router.serving.timer_queue import TimerQueue

OnChange = Callable[[str, Change], None]
"""Called with the server's id when one of its lists or a subscribed resource changed, or when it came or went."""

RESTART_S = 10.0  # how long after its connection was lost a server counts as restarting

_SUBSCRIBE = "resources/subscribe"
_UNSUBSCRIBE = "resources/unsubscribe"
_UPDATED = "notifications/resources/updated"
_NO_SESSION = object()


class DownstreamServer:
    """Fits `core.model.ToolSource` and `core.seams.Downstream`. Its supervisor gives it connections."""

    def __init__(
        self,
        server_id: str,
        name: str,
        timeouts: Timeouts,
        *,
        generations: Iterator[int],
        clock: WallClock,
        on_change: OnChange,
        shares: TokenShares | None = None,
    ) -> None:
        self.queue = FairQueue(server_id, shares)
        self._loop = asyncio.get_running_loop()
        self.id = server_id
        self.name = name
        self.timeouts = timeouts
        self._deadlines: TimerQueue[Deadline] = TimerQueue(self._loop, timeouts.call_s, Deadline.expire)
        self.restarts = 0  # attempts to connect after the first one, whether or not they succeeded
        self._generations = ListGenerations(generations)
        self._clock = clock
        self._on_change = on_change
        self._lease: ConnectionLease | None = None
        self.subscribed = SubscribedResources()
        self._introduction: Introduction | None = None  # kept while disconnected, so that capabilities are stable
        self.status = ServerStatus("starting", "it has not been started yet", clock())
        self._first_start_over = asyncio.Event()
        self._restart_timer: asyncio.TimerHandle | None = None  # None: not restarting
        self._restart_over = asyncio.Event()
        self.connected_at = 0.0  # on the loop's clock
        self._changed = True  # its configuration, since the last connection was opened
        self.questions = True  # whether it may ask clients anything
        self.declares_apps = False  # in its handshake and in requests for its lists
        self.own: OwnConnections | None = None  # with `isolation: per-caller`; the shared one then serves lists
        self.accounts: CallerAccounts | None = None  # with `credentials: per-caller`; `own` uses them
        self.request_reconnect: Callable[[], None] = lambda: None  # called when a request finds no connection

    @property
    def list_timeout_s(self) -> float:
        return self.timeouts.list_s

    @property
    def introduction(self) -> Introduction | None:
        """The result of its last handshake; None before the first."""
        return self._introduction

    @property
    def capabilities(self) -> Json:
        return self._introduction.capabilities if self._introduction is not None else {}

    @property
    def skills(self) -> Json | None:
        """Its settings of the skills extension; None: it does not declare it."""
        extensions = self.capabilities.get("extensions")
        settings = extensions.get(SKILLS_EXTENSION) if isinstance(extensions, dict) else None
        return settings if isinstance(settings, dict) else None

    # ------------------------------------------------------------------ for the catalog and the gateway

    @property
    def generation(self) -> int:
        """The generation of its tools."""
        return self._generations.of("tools")

    def generation_of(self, kind: Kind) -> int:
        """Grows whenever a cached list of that kind becomes invalid: at each connect and at each `list_changed`."""
        return self._generations.of(kind)

    def announces_changes(self, kind: Kind) -> bool:
        """Whether a change of that list would reach us: it is connected, and notifies of changes if there are any."""
        lease = self._lease
        if lease is None:
            return False
        declared = self.capabilities.get(kind)
        if not isinstance(declared, dict) or not declared.get("listChanged"):
            return True
        return lease.subscriptions is None or lease.subscriptions.covers(kind)

    async def first_start(self) -> None:
        await self._first_start_over.wait()

    @property
    def restarting(self) -> bool:
        return self._restart_timer is not None

    async def restarted(self) -> None:
        if not self.restarting:
            return
        self.request_reconnect()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.timeouts.call_s):
                await self._restart_over.wait()

    @property
    def session(self) -> object:
        lease = self._lease  # a connection that replaces a lost session has another introduction from then on
        return lease.connection.introduction if lease is not None else _NO_SESSION

    def is_current(self, generation: int) -> bool:
        return self._generations.is_current(generation)

    def keeps_list_of(self, generation: int) -> bool:
        return self.restarting and self.is_current(generation)

    async def tools_page(self, cursor: str | None) -> Json:
        return await self.list_page("tools/list", cursor)

    async def list_page(self, method: str, cursor: str | None) -> Json:
        """One page of a list (the keys of `LISTS`), as it was sent.

        Empty where the server does not declare the capability or the extension.

        Raises:
            ServerUnavailableError, CallTimeoutError, DownstreamError: as `ToolSource.list_page` has it.
        """
        lease = self._shared()
        kind, field = LISTS[method]
        if kind not in self.capabilities or (method == SKILLS.method and self.skills is None):
            return {field: []}
        params: Json = {} if cursor is None else {"cursor": cursor}
        if self.declares_apps and lease.connection.introduction.era == "modern":
            params["_meta"] = {NAMESPACE + "clientCapabilities": APPS_CLIENT}
        try:
            return await self._request_own(lease, Call(method, params))
        except DownstreamError as refusal:
            if refusal.code == METHOD_NOT_FOUND and method == "resources/templates/list":
                return {field: []}  # many servers with resources do not support templates
            raise

    async def answers(self) -> bool:
        """Whether it answers a ping, in the time that a list may take. Raises ServerUnavailableError."""
        lease = self._shared()
        try:
            await self._request_own(lease, Call(PING[lease.connection.introduction.era], {}))
        except CallTimeoutError:
            return False
        except DownstreamError:
            pass  # an error is an answer, too
        return True

    async def _request_own(self, lease: ConnectionLease, call: Call) -> Json:
        limit_s, began, answers = self.timeouts.list_s, self._loop.time(), lease.liveness.answers
        try:
            with lease:
                async with asyncio.timeout(limit_s):
                    result = await lease.request_own(call)
        except DownstreamError:
            lease.liveness.answered()
            raise
        except (TimeoutError, ConnectionLostError, BudgetExceededError) as error:
            if isinstance(error, TimeoutError):
                lease.liveness.unanswered(answers, limit_s, limit_s)
            raise self._as_gateway_error(error, lease, limit_s) from None
        except asyncio.CancelledError:  # by a time limit of our caller, for example
            if not lease.retired:
                lease.liveness.unanswered(answers, self._loop.time() - began, limit_s)
            raise
        lease.liveness.answered()
        return result

    async def request(
        self,
        method: str,
        params: Json,
        request: FrontRequest,
        back: BackChannel,
        spent_s: float = 0.0,
        session: object | None = None,
    ) -> Json:
        """As `Downstream.request`; `spent_s` of the deadline has passed already.

        Raises NotSentError as well, also if `session` is given and the server has another one by the time of sending.
        """
        if method == _UNSUBSCRIBE:
            return await self._unsubscribe(params, request, back)  # never queued: it only frees resources
        queue = self.queue
        if not queue.take_now():
            await queue.take(request.caller.token_id)
        try:
            if method == _SUBSCRIBE:
                return await self._subscribe(params, request, back)
            lease = self._lease
            if lease is None or self.own is not None:
                lease = await self._lease_for(request.caller)
            return await self._call_server(lease, method, params, request, back, queue, spent_s, session)
        finally:
            queue.give_back()

    async def _lease_for(self, caller: Caller) -> ConnectionLease:
        lease = self._shared()
        if self.own is None:
            return lease
        try:
            return await self.own.lease_for(caller)
        except ConnectionLostError as error:
            own = self.accounts is not None
            if isinstance(error, CallNotSentError) and not (own and isinstance(error, SignInNeededError)):
                self._expire_tools()
            raise as_gateway_error(self.id, error, self.timeouts.call_s, own=own) from None

    async def _call_server(
        self,
        lease: ConnectionLease,
        method: str,
        params: Json,
        request: FrontRequest,
        back: BackChannel,
        queue: FairQueue | None = None,
        spent_s: float = 0.0,
        session: object | None = None,
    ) -> Json:
        limit_s, liveness = self.timeouts.call_s, lease.liveness
        answers = liveness.answers
        if not self.questions:
            request = without_questions(request)
        deadlines = None if spent_s else self._deadlines
        if deadlines is not None and deadlines.delay_s != limit_s:  # a reload has changed it
            deadlines = self._deadlines = TimerQueue(self._loop, limit_s, Deadline.expire)
        token_id = request.caller.token_id
        deadline = Deadline(self._loop, limit_s - spent_s, back, queue, token_id, deadlines, self.questions)
        try:
            with lease, deadline:
                connection, level = lease.connection, request.client.log_level
                if lease.log_level is not None and level is not None and not lease.log_level.covers(level):
                    await lease.log_level.lower(level)
                if session is not None and session is not connection.introduction and session is not self.session:
                    raise SessionRenewedError("it restarted before the call was sent")
                result = await connection.request(Call(method, params, request, deadline, deadline))
                if result.get("resultType", COMPLETE) != COMPLETE and connection.introduction.era == "modern":
                    result = await complete_with_input(connection, method, params, request, deadline, result)
        except (DownstreamError, ForbiddenQuestionError) as error:
            liveness.answered()
            raise checked_error(self.id, error, allowed=self.questions) from None
        except (TimeoutError, ConnectionLostError, BudgetExceededError) as error:
            if isinstance(error, TimeoutError):  # it may be a long call: what counts is whether it answers a ping
                liveness.unanswered(answers, 0.0, self.timeouts.list_s)
            advice = MAY_HAVE_RUN if method == "tools/call" else TRY_LATER
            raise self._as_gateway_error(error, lease, limit_s, advice, limit_s - deadline.left_s()) from None
        liveness.answers += 1
        if liveness.silent:
            liveness.answered()
        return result

    def _as_gateway_error(
        self, error: Exception, lease: ConnectionLease, limit_s: float, advice: str = TRY_LATER, spent_s: float = 0.0
    ) -> GatewayError:
        own = lease.own and self.accounts is not None  # with an account of the caller's
        if isinstance(error, CallNotSentError) and error.over and not (own and isinstance(error, SignInNeededError)):
            self._lost(lease, error)
        return as_gateway_error(self.id, error, limit_s, advice, spent_s, own=own)

    async def _subscribe(self, params: Json, request: FrontRequest, back: BackChannel) -> Json:
        """Subscribe to a resource. The server object keeps the subscription, because it must outlive the connection."""
        uri, caller = params.get("uri"), request.caller
        if not isinstance(uri, str) or self.subscribed.full:
            raise DownstreamError(INVALID_PARAMS, "`uri` is missing, or there are too many subscriptions already")
        lease = await self._lease_for(caller)
        known = uri in self.subscribed.of(caller)
        self.subscribed.add(caller, uri)  # before it is sent: a connection that replaces this one must know it
        try:
            if lease.subscriptions is not None:
                result: Json = await self._listen(lease, lease.subscriptions, uri)
            else:
                result = await self._call_server(lease, _SUBSCRIBE, params, request, back)
        except BaseException:
            if not known:
                self.subscribed.discard(caller, uri)
                if lease.subscriptions is not None:
                    lease.subscriptions.changed()
            raise
        self.subscribed.add(caller, uri)  # another request of this caller may have failed or ended meanwhile
        if self.own is not None:
            self.own.keep(caller)
        return result

    async def _listen(self, lease: ConnectionLease, subscriptions: Subscriptions, uri: str) -> Json:
        """Subscribe at a modern server: its open request is replaced by one that names the resource as well."""
        limit_s = self.timeouts.call_s
        try:
            with lease:
                async with asyncio.timeout(limit_s):
                    await subscriptions.subscribe(uri)
        except (TimeoutError, ConnectionLostError, BudgetExceededError) as error:
            raise self._as_gateway_error(error, lease, limit_s) from None
        return {}

    async def _unsubscribe(self, params: Json, request: FrontRequest, back: BackChannel) -> Json:
        """Unsubscribe one caller, and at the server once no other caller on that connection is subscribed."""
        uri, caller = str(params.get("uri")), request.caller
        self.subscribed.discard(caller, uri)
        lease = self._lease if self.own is None else self.own.current_lease(caller)
        if lease is None or uri in self._subscribed_with(caller):
            return {}  # a disconnected server has lost its subscriptions, and this one is not renewed
        if lease.subscriptions is not None:
            lease.subscriptions.changed()
            return {}
        result = await self._call_server(lease, _UNSUBSCRIBE, params, request, back)
        if uri in self._subscribed_with(caller):  # another caller has subscribed meanwhile
            await self._call_server(lease, _SUBSCRIBE, params, request, back)
        return result

    def _subscribed_with(self, caller: Caller) -> Collection[str]:
        """The subscriptions on the connection that this caller uses."""
        return self._subscribed_on_shared() if self.own is None else self.subscribed.of(caller)

    def _subscribed_on_shared(self) -> Collection[str]:
        """The subscriptions on the shared connection: none where each caller has its own."""
        return self.subscribed.all() if self.own is None else ()

    def _shared(self) -> ConnectionLease:
        if self._lease is None:
            self.request_reconnect()
            raise NotSentError(self.id, self.status.reason, advice=NOT_RUN if self.status.sign_in else TRY_LATER)
        return self._lease

    # ------------------------------------------------------------------ for its supervisor

    def attach(self, connection: Connection) -> ConnectionLease:
        """Send requests over `connection` from now on; what is under way on another one stays there."""
        self._introduction = connection.introduction
        self._lease = lease = ConnectionLease(connection, self.notice, self._subscribed_on_shared)
        lease.liveness.on_silence = lambda silent_s: self._silence_changed(lease, silent_s)
        self._set_status("running", "")
        self._first_start_over.set()
        self.connected_at = self._loop.time()
        self._end_restart()
        if self._changed:
            self._changed = False
            self._generations.reconfigured()
        self._all_changed()
        return lease

    def detach(self, lease: ConnectionLease, reason: str | ConnectionLostError) -> None:
        """`lease` has ended. Without effect if another has replaced it already."""
        if self._lease is not lease:
            return
        if not self._changed and not isinstance(reason, SignInNeededError):
            self._restart_over.clear()
            self._restart_timer = self._loop.call_later(RESTART_S, self._withdraw_list)
        self.fail(reason)

    def _lost(self, lease: ConnectionLease, reason: ConnectionLostError) -> None:
        """A request found `lease` over. Its supervisor will notice, but the next request may come before that."""
        if self.own is None or self._lease is lease:
            self.detach(lease, reason)
        else:
            self._expire_tools()

    def _expire_tools(self) -> None:
        """A caller's own connection is over: the next list shows whether the shared one is, too."""
        self._generations.expire("tools")

    def changed(self) -> None:
        """Its configuration has changed: lists from before stay valid only on the connection that gave them."""
        self._changed = True
        self._generations.reconfigured()
        self._withdraw_list()

    def starting(self, reason: str) -> None:
        """It is started for the first time with this configuration."""
        self._first_start_over.clear()
        self._disconnected("starting", reason)

    def fail(self, reason: str | ConnectionLostError) -> None:
        """It does not run. If it needs a sign-in it does not come back by itself: nobody waits for it any longer."""
        needed = reason if isinstance(reason, SignInNeededError) else None
        self._disconnected("failed", str(reason), sign_in=needed is not None and needed.person)
        if needed is not None:
            self._withdraw_list()

    def stop(self, reason: str) -> None:
        self._withdraw_list()
        self._disconnected("stopped", reason)

    def _disconnected(self, state: ServerState, reason: str, *, sign_in: bool = False) -> None:
        was_connected, self._lease = self._lease is not None, None
        self._set_status(state, reason, sign_in=sign_in)
        if state != "starting":
            self._first_start_over.set()
        if was_connected:
            self._all_changed()

    def _withdraw_list(self) -> None:
        """If it is restarting, its last list of tools is valid no longer."""
        if self.restarting:
            self._end_restart()
            if "tools" in self.capabilities:
                self._on_change(self.id, Change("notifications/tools/list_changed", {}))

    def _end_restart(self) -> None:
        if self._restart_timer is not None:
            self._restart_timer.cancel()
            self._restart_timer = None
            self._restart_over.set()

    def _all_changed(self) -> None:
        """Invalidate all lists: they may be empty while the server is disconnected, and may differ afterwards."""
        for method, kind in CHANGED.items():
            self._generations.expire(kind)
            if kind in self.capabilities:
                self._on_change(self.id, Change(method, {}))

    def notice(self, method: str, params: Json) -> None:
        """Handle a notification that belongs to no call."""
        kind = CHANGED.get(method)
        if kind is not None:
            self._generations.expire(kind)
        elif method == ACKNOWLEDGED and self._lease is not None and self._lease.subscriptions is not None:
            self._lease.subscriptions.acknowledged(params)
        if kind is not None or method == _UPDATED:
            self._on_change(self.id, Change(method, params))

    def notice_from(self, caller: Caller, method: str, params: Json) -> None:
        """Handle one on a caller's own connection: an update of a resource there concerns that caller only."""
        if method == _UPDATED:
            self._on_change(self.id, Change(method, params, caller))
        else:
            self.notice(method, params)

    def _silence_changed(self, lease: ConnectionLease, silent_s: float | None) -> None:
        """Its connection has answered nothing for `silent_s`, or answers again: its lists are fetched anew then."""
        if lease is not self._lease:
            return
        self._set_status("running", "")
        if silent_s is None:
            self._all_changed()
            return
        since = self._clock() - silent_s
        shown = datetime.fromtimestamp(since, UTC).isoformat("T", "seconds")
        self.status = replace(self.status, reason=f"it has answered nothing since {shown}", silent_since=since)

    def _set_status(self, state: ServerState, reason: str, *, sign_in: bool = False) -> None:
        since = self.status.since if self.status.state == state else self._clock()
        self.status = ServerStatus(state, reason, since, sign_in=sign_in)
