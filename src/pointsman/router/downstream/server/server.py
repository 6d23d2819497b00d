"""One downstream server, as the catalog and the gateway know it: the same object through all its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Literal

from pointsman.config.model import Timeouts
from pointsman.core.errors import CallTimeoutError, DownstreamError, ServerUnavailableError
from pointsman.core.model import Caller, Json, ServerState, ServerStatus, WallClock
from pointsman.core.seams import INVALID_PARAMS, METHOD_NOT_FOUND, BackChannel, Change, FrontRequest
from pointsman.router.downstream.connection import (
    BudgetExceededError,
    Call,
    Connection,
    ConnectionLostError,
    Introduction,
)
from pointsman.router.downstream.server.connection_lease import ConnectionLease
from pointsman.router.downstream.server.deadline import Deadline
from pointsman.router.downstream.server.input_rounds import carry
from pointsman.router.downstream.server.own_connections import OwnConnections
from pointsman.router.downstream.talk.subscriptions import ACKNOWLEDGED, SubscribedResources, Subscriptions
from pointsman.router.serving.shares import FairQueue, TokenShares

OnChange = Callable[[str, Change], None]
"""Called with the server's id when one of its lists or a watched resource changed, or it came or went as a whole."""

Kind = Literal["tools", "resources", "prompts"]

FIRST_START_S = 3.0  # how long after its creation a list waits for a server that was never up and never failed

_SUBSCRIBE = "resources/subscribe"
_UNSUBSCRIBE = "resources/unsubscribe"
_UPDATED = "notifications/resources/updated"
_KINDS: tuple[Kind, ...] = ("tools", "resources", "prompts")
_CHANGED: dict[str, Kind] = {f"notifications/{kind}/list_changed": kind for kind in _KINDS}
_LISTS: dict[str, tuple[Kind, str]] = {  # method -> the capability it needs, and the field that holds its items
    "tools/list": ("tools", "tools"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resources", "resourceTemplates"),
    "prompts/list": ("prompts", "prompts"),
}


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
        self.restarts = 0  # attempts to connect after the first one, whether or not they succeeded
        self._generations = generations
        self._clock = clock
        self._on_change = on_change
        self._live: ConnectionLease | None = None
        self.watches = SubscribedResources()
        self._introduction: Introduction | None = None  # kept while it is away: capabilities do not flicker
        self._generation_of: dict[Kind, int] = dict.fromkeys(_KINDS, next(generations))
        self.status = ServerStatus("starting", "it has not been started yet", clock())
        self.first_start_s = FIRST_START_S
        self._born = self._loop.time()
        self._first_start_over = asyncio.Event()
        self.own: OwnConnections | None = None  # with `isolation: per-caller`; the shared connection then serves lists
        self.wanted: Callable[[], None] = lambda: None  # told when a request finds no connection

    @property
    def list_timeout_s(self) -> float:
        return self.timeouts.list_s

    @property
    def introduction(self) -> Introduction | None:
        """What the server last said of itself; None before its first connection."""
        return self._introduction

    @property
    def capabilities(self) -> Json:
        return self._introduction.capabilities if self._introduction is not None else {}

    # ------------------------------------------------------------------ for the catalog and the gateway

    @property
    def generation(self) -> int:
        """Of its tools, as `ToolSource` has it."""
        return self._generation_of["tools"]

    def generation_of(self, kind: Kind) -> int:
        """Grows whenever a kept list of that kind stops being true: at each connect and at each `list_changed`."""
        return self._generation_of[kind]

    def hears_changes(self, kind: Kind) -> bool:
        """Whether a change of that list would be heard: it is connected, and tells of changes if it has any."""
        live = self._live
        if live is None:
            return False
        declared = self.capabilities.get(kind)
        if not isinstance(declared, dict) or not declared.get("listChanged"):
            return True
        return live.subscriptions is None or live.subscriptions.hears(kind)

    async def first_start(self) -> None:
        left_s = self._born + self.first_start_s - self._loop.time()
        if left_s <= 0 or self._first_start_over.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._first_start_over.wait()

    async def tools_page(self, cursor: str | None) -> Json:
        return await self.list_page("tools/list", cursor)

    async def list_page(self, method: str, cursor: str | None) -> Json:
        """One page of `tools/list`, `resources/list`, `resources/templates/list` or `prompts/list`, as it was sent.

        Empty where the server does not declare such things.

        Raises:
            ServerUnavailableError, CallTimeoutError, DownstreamError: as `ToolSource.tools_page` has it.
        """
        live = self._shared()
        kind, field = _LISTS[method]
        if kind not in self.capabilities:
            return {field: []}
        call = Call(method, {} if cursor is None else {"cursor": cursor})
        limit_s = self.timeouts.list_s
        try:
            with live:
                async with asyncio.timeout(limit_s):
                    return await live.connection.request(call)
        except DownstreamError as refusal:
            if refusal.code == METHOD_NOT_FOUND and method == "resources/templates/list":
                return {field: []}  # many a server with resources knows no templates
            raise
        except TimeoutError:
            raise CallTimeoutError(self.id, limit_s) from None
        except ConnectionLostError as error:
            raise ServerUnavailableError(self.id, str(error)) from None
        except BudgetExceededError as error:
            raise ServerUnavailableError(self.id, str(error), "Ask it for less, or use another tool.") from None

    async def request(self, method: str, params: Json, request: FrontRequest, back: BackChannel) -> Json:
        if method == _UNSUBSCRIBE:
            return await self._unwatch(params, request, back)  # never waits: it only frees what the server keeps
        queue = self.queue
        if not queue.take_now():
            await queue.take(request.caller.token_id)
        try:
            if method == _SUBSCRIBE:
                return await self._watch(params, request, back)
            live = await self._live_for(request.caller)
            return await self._carry(live, method, params, request, back, queue)
        finally:
            queue.give_back()

    async def _live_for(self, caller: Caller) -> ConnectionLease:
        live = self._shared()
        if self.own is None:
            return live
        try:
            return await self.own.live_for(caller)
        except ConnectionLostError as error:
            raise ServerUnavailableError(self.id, str(error)) from None

    async def _carry(
        self,
        live: ConnectionLease,
        method: str,
        params: Json,
        request: FrontRequest,
        back: BackChannel,
        queue: FairQueue | None = None,
    ) -> Json:
        limit_s = self.timeouts.call_s
        try:
            with live, Deadline(self._loop, limit_s, queue, request.caller.token_id) as deadline:
                level = request.client.log_level
                if level is not None and not live.log_level.suits(level):
                    await live.log_level.lower(level)
                return await carry(live.connection, method, params, request, deadline.pausing(back), deadline)
        except TimeoutError:
            raise CallTimeoutError(self.id, limit_s) from None
        except ConnectionLostError as error:
            raise ServerUnavailableError(self.id, str(error)) from None
        except BudgetExceededError as error:
            raise ServerUnavailableError(self.id, str(error), "Ask it for less, or use another tool.") from None

    async def _watch(self, params: Json, request: FrontRequest, back: BackChannel) -> Json:
        """Subscribe to a resource. It is remembered here, because it must outlive the connection."""
        uri, caller = params.get("uri"), request.caller
        if not isinstance(uri, str) or self.watches.full:
            raise DownstreamError(INVALID_PARAMS, "`uri` is missing, or too many resources are watched already")
        live = await self._live_for(caller)
        known = uri in self.watches.of(caller)
        self.watches.add(caller, uri)  # before it is sent: if the connection is replaced meanwhile, the next one has it
        try:
            if live.subscriptions is not None:
                result: Json = await self._listen(live, live.subscriptions, uri)
            else:
                result = await self._carry(live, _SUBSCRIBE, params, request, back)
        except BaseException:
            if not known:
                self.watches.discard(caller, uri)
                if live.subscriptions is not None:
                    live.subscriptions.changed()
            raise
        self.watches.add(caller, uri)  # another request of this caller may have failed or ended meanwhile
        if self.own is not None:
            self.own.keep(caller)
        return result

    async def _listen(self, live: ConnectionLease, subscriptions: Subscriptions, uri: str) -> Json:
        """The modern way: the request that stays open is replaced by one that names the resource as well."""
        limit_s = self.timeouts.call_s
        try:
            with live:
                async with asyncio.timeout(limit_s):
                    await subscriptions.subscribe(uri)
        except TimeoutError:
            raise CallTimeoutError(self.id, limit_s) from None
        except ConnectionLostError as error:
            raise ServerUnavailableError(self.id, str(error)) from None
        except BudgetExceededError as error:
            raise ServerUnavailableError(self.id, str(error), "Ask it for less, or use another tool.") from None
        return {}

    async def _unwatch(self, params: Json, request: FrontRequest, back: BackChannel) -> Json:
        """Of one caller. The server is told when nobody watches it on that connection any more."""
        uri, caller = str(params.get("uri")), request.caller
        self.watches.discard(caller, uri)
        live = self._live if self.own is None else self.own.live_now(caller)
        if live is None or uri in self._watched_with(caller):
            return {}  # one that is away has forgotten by itself, and is not told of it anew
        if live.subscriptions is not None:
            live.subscriptions.changed()
            return {}
        result = await self._carry(live, _UNSUBSCRIBE, params, request, back)
        if uri in self._watched_with(caller):  # somebody came while we were at it
            await self._carry(live, _SUBSCRIBE, params, request, back)
        return result

    def _watched_with(self, caller: Caller) -> Collection[str]:
        """What is watched on the connection that carries this caller's requests."""
        return self._watched_by_all() if self.own is None else self.watches.of(caller)

    def _watched_by_all(self) -> Collection[str]:
        """What is watched on the shared connection: nothing, where each caller has its own."""
        return self.watches.all() if self.own is None else ()

    def _shared(self) -> ConnectionLease:
        if self._live is None:
            self.wanted()
            raise ServerUnavailableError(self.id, self.status.reason)
        return self._live

    # ------------------------------------------------------------------ for its supervisor

    def attach(self, connection: Connection) -> ConnectionLease:
        """From now on requests go over `connection`; what is under way on another one stays there."""
        self._introduction = connection.introduction
        self._live = ConnectionLease(connection, self.notice, self._watched_by_all)
        self._set_status("running", "")
        self._first_start_over.set()
        self._all_changed()
        return self._live

    def detach(self, live: ConnectionLease, reason: str) -> None:
        """`live` has ended. Means nothing if another has taken its place already."""
        if self._live is live:
            self.fail(reason)

    def starting(self, reason: str) -> None:
        self._away("starting", reason)

    def fail(self, reason: str) -> None:
        self._away("failed", reason)

    def stop(self, reason: str) -> None:
        self._away("stopped", reason)

    def _away(self, state: ServerState, reason: str) -> None:
        was_there, self._live = self._live is not None, None
        self._set_status(state, reason)
        if state != "starting":
            self._first_start_over.set()
        if was_there:
            self._all_changed()

    def _all_changed(self) -> None:
        """What a server offers is in nobody's list while it is away, and may be other things when it is back."""
        for method, kind in _CHANGED.items():
            self._generation_of[kind] = next(self._generations)
            if kind in self.capabilities:
                self._on_change(self.id, Change(method, {}))

    def notice(self, method: str, params: Json) -> None:
        """A notification that belongs to no call."""
        kind = _CHANGED.get(method)
        if kind is not None:
            self._generation_of[kind] = next(self._generations)
        elif method == ACKNOWLEDGED and self._live is not None and self._live.subscriptions is not None:
            self._live.subscriptions.acknowledged(params)
        if kind is not None or method == _UPDATED:
            self._on_change(self.id, Change(method, params))

    def notice_from(self, caller: Caller, method: str, params: Json) -> None:
        """The same on a caller's own connection: what happened to a resource there concerns nobody else."""
        if method == _UPDATED:
            self._on_change(self.id, Change(method, params, caller))
        else:
            self.notice(method, params)

    def _set_status(self, state: ServerState, reason: str) -> None:
        since = self.status.since if self.status.state == state else self._clock()
        self.status = ServerStatus(state, reason, since)
