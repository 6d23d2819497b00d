"""Subscriptions at a server: to its lists and resources, in either era, over any transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine

from pointsman.core.errors import DownstreamError
from pointsman.core.model import Caller, Json
from pointsman.core.seams import INVALID_PARAMS, METHOD_NOT_FOUND
from pointsman.router.downstream.connection import (
    BudgetExceededError,
    Call,
    Connection,
    ConnectionLostError,
    OnNotification,
)
from pointsman.router.serving.tasks import Backoff

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
_LISTS = ("tools", "prompts", "resources")
SubscribedUris = Callable[[], Collection[str]]
"""The URIs of the resources that are subscribed to on one connection, at this moment."""

_MOST_RESOURCES = 10_000


class SubscribedResources:
    """The resources of one server that callers are subscribed to. Outlives its connections."""

    def __init__(self) -> None:
        self._of: dict[Caller, set[str]] = {}

    @property
    def full(self) -> bool:
        return sum(map(len, self._of.values())) >= _MOST_RESOURCES

    def add(self, caller: Caller, uri: str) -> None:
        self._of.setdefault(caller, set()).add(uri)

    def discard(self, caller: Caller, uri: str) -> None:
        uris = self._of.get(caller)
        if uris is not None:
            uris.discard(uri)
            if not uris:
                del self._of[caller]

    def callers(self) -> Collection[Caller]:
        return tuple(self._of)

    def of(self, caller: Caller) -> Collection[str]:
        return frozenset(self._of.get(caller, ()))

    def all(self) -> Collection[str]:
        return frozenset().union(*self._of.values())


async def resubscribe(connection: Connection, subscribed: SubscribedUris) -> None:
    """Subscribe on a new legacy connection or session, with one request for each resource."""
    for uri in tuple(subscribed()):
        if uri not in subscribed():
            continue  # unsubscribed meanwhile
        try:
            await connection.request(Call("resources/subscribe", {"uri": uri}))
        except DownstreamError:
            continue  # that resource no longer exists
        except (ConnectionLostError, BudgetExceededError):
            return


class Subscriptions:
    """Keeps one `subscriptions/listen` open at a modern server: for its lists, and for the subscribed resources."""

    def __init__(self, connection: Connection, on_notification: OnNotification, subscribed: SubscribedUris) -> None:
        declared = connection.introduction.capabilities
        self._connection = connection
        self._on_notification = on_notification
        self._lists = [
            name for name in _LISTS if isinstance(declared.get(name), dict) and declared[name].get("listChanged")
        ]
        self._subscribed = subscribed  # its owner calls `changed`
        self._backoff = Backoff()
        self._missed = False  # there was a gap, in which changes may have been missed
        self._changed = asyncio.Event()
        self._sent: Json = {}  # the filter of the request that is open
        self._honoured: Json | None = None  # the part that the server accepted; None: not acknowledged yet
        self._replaced = False  # a request was replaced before its acknowledgement, which may still come
        self._refused: DownstreamError | None = None  # permanently
        self._waiting: dict[asyncio.Future[None], str] = {}  # for the acknowledgement of a resource

    def changed(self) -> None:
        """Replace the request: the set of subscribed resources has changed."""
        self._changed.set()

    async def subscribe(self, uri: str) -> None:
        """Wait until the server has acknowledged the subscription to `uri`, which is in the set already.

        Raises:
            DownstreamError: the server refuses the request, or does not accept the resource.
            ConnectionLostError, BudgetExceededError: the request failed; it is retried in the background.
        """
        if self._refused is not None:
            raise self._refused
        if self._honoured is not None and uri in _resources(self._honoured):
            return
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[acknowledged] = uri
        self.changed()
        try:
            await acknowledged
        finally:
            del self._waiting[acknowledged]

    def covers(self, kind: str) -> bool:
        """Whether the server currently notifies us of changes to this list."""
        return self._honoured is not None and bool(self._honoured.get(f"{kind}ListChanged"))

    def acknowledged(self, params: Json) -> None:
        """The server has accepted the request. After a gap, report all lists as changed: any of them may be."""
        self._backoff.reset()
        honoured = params.get("notifications")
        self._honoured = honoured if isinstance(honoured, dict) else self._sent
        self._resolve_waiting(self._honoured)
        if self._missed:
            self._missed = False
            for name in self._lists:
                self._on_notification(f"notifications/{name}/list_changed", {})

    def _resolve_waiting(self, honoured: Json) -> None:
        accepted, sent = _resources(honoured), _resources(self._sent)
        for waiting, uri in self._waiting.items():
            if waiting.done():
                continue
            if uri in accepted:
                waiting.set_result(None)
            elif uri in sent and not self._replaced:
                code = INVALID_PARAMS if accepted else METHOD_NOT_FOUND
                waiting.set_exception(DownstreamError(code, "the server does not accept this subscription"))
        self._replaced = False

    def _fail_waiting(self, error: Exception, *, all_of_them: bool = False) -> None:
        """Fail those whose resource was in the failed request."""
        for waiting, uri in self._waiting.items():
            if not waiting.done() and (all_of_them or uri in _resources(self._sent)):
                waiting.set_exception(error)

    async def run(self) -> None:
        """Run until cancelled, or until the server turns out not to support subscriptions."""
        try:
            while await self._run_once():
                pass
        finally:
            self._fail_waiting(self._refused or ConnectionLostError("its connection was replaced"), all_of_them=True)

    async def _run_once(self) -> bool:
        """Returns False where the server does not support subscriptions."""
        self._changed.clear()
        self._sent = self._filter()
        if not self._sent:
            await self._changed.wait()
            return True
        try:
            await self._listen(self._sent)
        except DownstreamError as refusal:
            self._fail_waiting(refusal)
            if refusal.code == METHOD_NOT_FOUND:
                self._refused = refusal
                return False
        except (ConnectionLostError, BudgetExceededError) as error:
            # A failure of the server shows in its calls; here the request is only retried.
            self._fail_waiting(error)
        else:
            if not self._changed.is_set():
                self._fail_waiting(ConnectionLostError("it ended the stream of its subscriptions"))
        if not self._changed.is_set():
            self._missed = True
            await self._until_changed(self._backoff.wait())
        return True

    def _filter(self) -> Json:
        wanted: Json = {f"{name}ListChanged": True for name in self._lists}
        if uris := self._subscribed():
            wanted["resourceSubscriptions"] = sorted(uris)
        return wanted

    async def _listen(self, wanted: Json) -> None:
        try:
            await self._until_changed(self._connection.request(Call(LISTEN, {"notifications": wanted})))
        finally:
            self._replaced = self._honoured is None and self._changed.is_set()
            self._honoured = None

    async def _until_changed(self, work: Coroutine[None, None, object]) -> None:
        """Run `work` until it is done, or until the set of subscribed resources changes."""
        running = asyncio.ensure_future(work)
        change = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((running, change), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            running.cancel()
            change.cancel()
            await asyncio.gather(running, change, return_exceptions=True)


def _resources(wanted: Json) -> list[object]:
    uris = wanted.get("resourceSubscriptions")
    return uris if isinstance(uris, list) else []
