"""Keeps `subscriptions/listen` open at a modern server, over any transport, so that its changes are heard of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine

from pointsman.core.errors import DownstreamError
from pointsman.core.model import Caller, Json
from pointsman.core.seams import INVALID_PARAMS, METHOD_NOT_FOUND
from pointsman.router.downstream.connection import BudgetExceededError, Call, Connection, ConnectionLostError, Noticed
from pointsman.router.serving.tasks import Backoff

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
_LISTS = ("tools", "prompts", "resources")
Watched = Callable[[], Collection[str]]
"""The URIs that are watched on one connection, at this moment."""

_MOST_RESOURCES = 10_000


class SubscribedResources:
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


async def subscribe_again(connection: Connection, watched: Watched) -> None:
    """The legacy way: one request for each resource, on each new connection or session."""
    for uri in tuple(watched()):
        if uri not in watched():
            continue  # nobody wants it any more
        try:
            await connection.request(Call("resources/subscribe", {"uri": uri}))
        except DownstreamError:
            continue  # that one is no more
        except (ConnectionLostError, BudgetExceededError):
            return


class Subscriptions:
    """One request that stays open: for the lists that the server declares, and for the resources being watched."""

    def __init__(self, connection: Connection, noticed: Noticed, watched: Watched) -> None:
        declared = connection.introduction.capabilities
        self._connection = connection
        self._noticed = noticed
        self._lists = [
            name for name in _LISTS if isinstance(declared.get(name), dict) and declared[name].get("listChanged")
        ]
        self._watched = watched  # its owner says `changed`
        self._pauses = Backoff()
        self._missed = False  # there was a gap, in which changes may have gone unheard
        self._changed = asyncio.Event()
        self._sent: Json = {}  # the filter of the request that is open
        self._honoured: Json | None = None  # what the server takes of it; None: it has not acknowledged
        self._overtaken = False  # a request was replaced before its acknowledgement, which may still come
        self._refused: DownstreamError | None = None  # for good
        self._waiting: dict[asyncio.Future[None], str] = {}  # for a resource to be acknowledged

    def changed(self) -> None:
        """Other resources are watched now: the request is replaced."""
        self._changed.set()

    async def subscribe(self, uri: str) -> None:
        """Wait until the server has acknowledged that it tells of `uri`, which is watched already.

        Raises:
            DownstreamError: the server refuses, or leaves the resource out of what it takes.
            ConnectionLostError, BudgetExceededError: the request failed; it is sent again, but not waited for.
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

    def hears(self, kind: str) -> bool:
        """Whether the server tells of changes to this list now."""
        return self._honoured is not None and bool(self._honoured.get(f"{kind}ListChanged"))

    def acknowledged(self, params: Json) -> None:
        """The server has taken the request. After a gap anything may have changed, so that is what is told."""
        self._pauses.reset()
        honoured = params.get("notifications")
        self._honoured = honoured if isinstance(honoured, dict) else self._sent
        self._tell_waiting(self._honoured)
        if self._missed:
            self._missed = False
            for name in self._lists:
                self._noticed(f"notifications/{name}/list_changed", {})

    def _tell_waiting(self, honoured: Json) -> None:
        taken, sent = _resources(honoured), _resources(self._sent)
        for waiting, uri in self._waiting.items():
            if waiting.done():
                continue
            if uri in taken:
                waiting.set_result(None)
            elif uri in sent and not self._overtaken:
                code = INVALID_PARAMS if taken else METHOD_NOT_FOUND
                waiting.set_exception(DownstreamError(code, "the server does not take subscriptions to this resource"))
        self._overtaken = False

    def _fail_waiting(self, error: Exception, *, all_of_them: bool = False) -> None:
        """For those whose resource was in the request that failed."""
        for waiting, uri in self._waiting.items():
            if not waiting.done() and (all_of_them or uri in _resources(self._sent)):
                waiting.set_exception(error)

    async def run(self) -> None:
        """Until cancelled, or until the server says that it has no such thing."""
        try:
            while await self._run_once():
                pass
        finally:
            self._fail_waiting(self._refused or ConnectionLostError("its connection was replaced"), all_of_them=True)

    async def _run_once(self) -> bool:
        """Returns False where the server has no subscriptions."""
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
            # What is wrong with the server shows in its calls; here it is only tried again.
            self._fail_waiting(error)
        else:
            if not self._changed.is_set():
                self._fail_waiting(ConnectionLostError("it ended the stream of its changes"))
        if not self._changed.is_set():
            self._missed = True
            await self._until_changed(self._pauses.wait())
        return True

    def _filter(self) -> Json:
        wanted: Json = {f"{name}ListChanged": True for name in self._lists}
        if watched := self._watched():
            wanted["resourceSubscriptions"] = sorted(watched)
        return wanted

    async def _listen(self, wanted: Json) -> None:
        try:
            await self._until_changed(self._connection.request(Call(LISTEN, {"notifications": wanted})))
        finally:
            self._overtaken = self._honoured is None and self._changed.is_set()
            self._honoured = None

    async def _until_changed(self, work: Coroutine[None, None, object]) -> None:
        """Wait for `work`, or end it when other resources are watched."""
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
