"""The servers of the current configuration. A reload restarts only those whose connection it changes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct, field

from pointsman.catalog.names import display_name
from pointsman.config.model import GatewayConfig, Limits
from pointsman.config.sections.rates import ServerRates
from pointsman.config.sections.server import Server, ServerTimeouts
from pointsman.core.model import ServerStatus, WallClock
from pointsman.router.downstream.connection import Connect
from pointsman.router.downstream.server.caller_accounts import CallerAccounts
from pointsman.router.downstream.server.own_connections import OwnConnections
from pointsman.router.downstream.server.server import DownstreamServer, OnChange
from pointsman.router.downstream.server.start_queue import StartQueue
from pointsman.router.downstream.server.supervisor import BackoffPolicy, Supervisor
from pointsman.router.downstream.talk.server_memory import ServerMemory
from pointsman.router.serving.shares import TokenShares
from pointsman.router.serving.tasks import TaskSet

MakeConnect = Callable[[str, Server, Limits, bool], Connect]
"""The last argument: whether to declare support for apps, because clients see the server's tools by name."""

MakeAccounts = Callable[[str, Server, Limits, bool], CallerAccounts | None]
"""None: all callers use one account."""

_DISABLED = "disabled in the configuration"
_REMOVED = "removed from the configuration"
_HELD = "stopped by its owner, until it is started again or its entry changes"


class ConnectionSpec(Struct, frozen=True):
    """The part of an entry that needs a new connection when it changes: all keys but those listed as irrelevant."""

    server: Server
    limits: tuple[int, int]
    apps: bool  # declared in the handshake

    @classmethod
    def of(cls, server: Server, config: GatewayConfig) -> ConnectionSpec:
        irrelevant: dict[str, object] = {
            "name": None,
            "projects": (),
            "tool_permissions": {},
            "trust_annotations": None,
            "prefix": None,
            "timeouts": ServerTimeouts(),
            "pin": None,
            "confirm": "never",
            "questions": True,
            "rates": ServerRates(),
            "tool_rates": {},
        }
        limits = (config.limits.result_bytes, config.limits.messages)
        return cls(server.model_copy(update=irrelevant), limits, config.is_flat(server))


class _Slot(Struct, eq=False):
    server: DownstreamServer
    spec: ConnectionSpec | None = None  # None: disabled, or held
    held: ConnectionSpec | None = None  # what `start` uses: the owner has stopped it
    connect: Connect | None = None
    accounts: CallerAccounts | None = None
    supervisor: Supervisor | None = None
    predecessors: list[Supervisor] = field(default_factory=list)  # serve until the supervisor has settled

    def all_supervisors(self) -> list[Supervisor]:
        return [*self.predecessors, *([self.supervisor] if self.supervisor is not None else [])]


class Fleet:
    """Starts, stops and restarts servers. Calls under way on a connection that is replaced may finish there."""

    def __init__(
        self,
        make_connect: MakeConnect,
        *,
        clock: WallClock,
        on_change: OnChange,
        policy: BackoffPolicy | None = None,
        shares: TokenShares | None = None,
        memory: ServerMemory | None = None,
        make_accounts: MakeAccounts = lambda *_: None,
    ) -> None:
        self._shares = shares
        self._make_accounts = make_accounts
        self._make_connect = make_connect
        self._clock = clock
        self._on_change = on_change
        self._policy = policy or BackoffPolicy()
        self._memory = memory or ServerMemory()
        self._starts = StartQueue()
        self._generations = itertools.count(1)  # shared, so that a server that returns under its id gets a new one
        self._slots: dict[str, _Slot] = {}
        self._servers: dict[str, DownstreamServer] = {}
        self.servers: Mapping[str, DownstreamServer] = MappingProxyType(self._servers)  # a view, always current
        self._leaving: set[Supervisor | OwnConnections] = set()  # being drained and closed
        self._tasks = TaskSet()

    def statuses(self) -> dict[str, ServerStatus]:
        return {server_id: server.status for server_id, server in self._servers.items()}

    async def settled(self) -> None:
        """Wait until every server has made its first attempt. The caller limits the time."""
        current = [slot.supervisor for slot in self._slots.values()]
        await asyncio.gather(*(supervisor.settled.wait() for supervisor in current if supervisor is not None))

    async def settled_one(self, server_id: str) -> None:
        """Wait until this server, if it is enabled, has made its first attempt. The caller limits the time."""
        slot = self._slots.get(server_id)
        if slot is not None and slot.supervisor is not None:
            await slot.supervisor.settled.wait()

    def hold_starts(self) -> None:
        """Start no process before `resume_starts`; URLs are connected to at once."""
        self._starts.hold()

    def resume_starts(self) -> None:
        self._starts.resume()

    def restart(self, server_id: str) -> None:
        """Open a new connection, which replaces the present one. Does nothing for a server that is disabled."""
        slot = self._slots.get(server_id)
        spec = (slot.spec or slot.held) if slot is not None else None
        if slot is not None and spec is not None and slot.connect is not None:
            slot.held = None
            self._restart(slot, spec, slot.connect)

    def hold(self, server_id: str) -> None:
        """Stop a server until `restart`, or until its entry changes. Does nothing for one that is disabled."""
        slot = self._slots.get(server_id)
        if slot is not None and slot.spec is not None:
            held = slot.spec
            self._disable(slot, _HELD)
            slot.held = held

    def retry_now(self) -> None:
        """Retry every failed server without further delay."""
        for slot in self._slots.values():
            if slot.supervisor is not None:
                slot.supervisor.retry_now()

    async def apply(self, config: GatewayConfig) -> None:
        """Apply a configuration. Returns at once: servers start and end in the background, each on its own.

        Raises:
            ExceptionGroup: some entries could not be applied; all others have been.
        """
        for server_id in self._slots.keys() - config.servers.keys():
            self._remove(server_id)
        self._memory.keep_only(config.servers.keys())
        failures: dict[str, Exception] = {}
        for server_id, wanted in config.servers.items():
            try:
                self._apply_entry(server_id, wanted, config)
            except Exception as error:
                failures[server_id] = error
        if failures:
            names = ", ".join(f"`{server_id}`" for server_id in failures)
            raise ExceptionGroup(f"could not apply the entries of {names}", [*failures.values()])

    async def close(self, grace_s: float) -> None:
        """Stop all servers; calls under way have `grace_s` to finish."""
        leaving = [*self._leaving]
        for slot in self._slots.values():
            slot.server.stop("the gateway is stopping")
            leaving += slot.all_supervisors()
            leaving += [slot.server.own] if slot.server.own is not None else []
        self._slots.clear()
        await asyncio.gather(*(each.stop(grace_s) for each in leaving))
        await self._tasks.close()
        self._memory.flush()

    def _remove(self, server_id: str) -> None:
        slot = self._slots.pop(server_id)
        del self._servers[server_id]
        slot.server.stop(_REMOVED)
        self._retire(slot.server, slot.all_supervisors())
        self._set_isolation(slot, None)

    def _apply_entry(self, server_id: str, wanted: Server, config: GatewayConfig) -> None:
        name, timeouts = display_name(server_id, wanted), config.timeouts_of(wanted)
        slot = self._slots.get(server_id)
        if slot is None:
            server = DownstreamServer(
                server_id,
                name,
                timeouts,
                generations=self._generations,
                clock=self._clock,
                on_change=self._on_change,
                shares=self._shares,
            )
            slot = self._slots[server_id] = _Slot(server)
            self._servers[server_id] = server
        slot.server.name, slot.server.timeouts, slot.server.questions = name, timeouts, wanted.questions
        slot.server.queue.hand_out()  # there may be more slots now
        spec = ConnectionSpec.of(wanted, config) if wanted.enabled else None
        if spec is None:
            slot.held = None
            self._disable(slot, _DISABLED)
        elif spec not in (slot.spec, slot.held):
            slot.held = None
            slot.server.declares_apps = spec.apps
            slot.accounts = self._make_accounts(server_id, wanted, config.limits, spec.apps)
            self._restart(slot, spec, self._make_connect(server_id, wanted, config.limits, spec.apps))

    def _disable(self, slot: _Slot, reason: str) -> None:
        slot.server.stop(reason)
        self._retire(slot.server, slot.all_supervisors())
        slot.spec, slot.supervisor, slot.predecessors = None, None, []
        self._set_isolation(slot, None)

    def _restart(self, slot: _Slot, spec: ConnectionSpec, connect: Connect) -> None:
        """Open the new connection while the old one serves, until the first attempt has succeeded or failed."""
        previous = slot.supervisor
        slot.server.changed()
        if previous is not None and previous.connected:
            previous.stop_reconnecting()
            slot.predecessors.append(previous)
        elif previous is not None:
            self._retire(slot.server, [previous])
        if not slot.predecessors:
            slot.server.starting("it has not answered yet")
        slot.spec, slot.connect = spec, connect
        starts = self._starts if spec.server.url is None else None  # a URL starts no process
        record = self._memory.of(slot.server.id, spec.server)
        if spec.server.bundled is not None:
            record.ran = True  # it is a part of the gateway
        slot.supervisor = Supervisor(slot.server, connect, self._policy, starts, record, spec.server.downloader)
        slot.supervisor.start()
        apart = spec.server.isolation == "per-caller" or slot.accounts is not None
        self._set_isolation(slot, connect if apart else None)
        self._tasks.spawn(self._hand_over(slot, slot.supervisor))

    def _set_isolation(self, slot: _Slot, connect: Connect | None) -> None:
        """Let callers share the connection, or with `connect` give each its own."""
        server, previous, spec = slot.server, slot.server.own, slot.spec
        server.own = server.accounts = None
        if connect is not None:
            server.accounts = slot.accounts
            server.own = OwnConnections(
                connect,
                server.notice_from,
                server.subscribed.of,
                lambda: server.timeouts.connect_s,
                starts=self._starts if spec is not None and spec.server.url is None else None,
                accounts=slot.accounts,
            )
            for caller in server.subscribed.callers():
                server.own.keep(caller)
        if previous is not None:
            self._stop(server, previous)

    async def _hand_over(self, slot: _Slot, supervisor: Supervisor) -> None:
        """Retire the predecessors once `supervisor` has made its first attempt."""
        await supervisor.settled.wait()
        if slot.supervisor is not supervisor:
            return  # replaced by a later reload
        self._retire(slot.server, slot.predecessors)
        slot.predecessors = []

    def _retire(self, server: DownstreamServer, supervisors: Iterable[Supervisor]) -> None:
        for supervisor in supervisors:
            supervisor.cancel()
            self._stop(server, supervisor)

    def _stop(self, server: DownstreamServer, leaving: Supervisor | OwnConnections) -> None:
        self._leaving.add(leaving)
        stop = self._tasks.spawn(leaving.stop(server.timeouts.call_s))
        stop.add_done_callback(lambda _: self._leaving.discard(leaving))
