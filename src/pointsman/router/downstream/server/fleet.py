"""The servers of the present configuration. A new configuration touches only those whose connection it changes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pointsman.catalog.names import display_name
from pointsman.config.model import GatewayConfig, Limits, Server, ServerTimeouts
from pointsman.core.model import ServerStatus, WallClock
from pointsman.router.downstream.connection import Connect
from pointsman.router.downstream.server.own_connections import OwnConnections
from pointsman.router.downstream.server.server import DownstreamServer, OnChange
from pointsman.router.downstream.server.start_queue import StartQueue
from pointsman.router.downstream.server.supervisor import BackoffPolicy, Supervisor
from pointsman.router.downstream.talk.server_memory import ServerMemory
from pointsman.router.downstream.talk.tasks import TaskSet
from pointsman.router.serving.shares import TokenShares

MakeConnect = Callable[[str, Server, Limits], Connect]
_DISABLED = "disabled in the configuration"
_REMOVED = "removed from the configuration"


@dataclass(frozen=True, slots=True)
class ConnectionSpec:
    """All that makes a new connection necessary when it changes. A key that is new to the model counts, too."""

    server: Server
    limits: tuple[int, int]

    @classmethod
    def of(cls, server: Server, limits: Limits) -> ConnectionSpec:
        irrelevant: dict[str, object] = {
            "name": None,
            "projects": (),
            "tool_permissions": {},
            "prefix": None,
            "timeouts": ServerTimeouts(),
        }
        return cls(server.model_copy(update=irrelevant), (limits.result_bytes, limits.messages))


@dataclass(slots=True, eq=False)
class _Slot:
    server: DownstreamServer
    recipe: ConnectionSpec | None = None  # None: disabled
    supervisor: Supervisor | None = None
    predecessors: list[Supervisor] = field(default_factory=list)  # they serve until the supervisor has settled

    def all_supervisors(self) -> list[Supervisor]:
        return [*self.predecessors, *([self.supervisor] if self.supervisor is not None else [])]


class Fleet:
    """Starts, stops and restarts servers. What is under way on a connection that must go may finish there."""

    def __init__(
        self,
        make_connect: MakeConnect,
        *,
        clock: WallClock,
        on_change: OnChange,
        pace: BackoffPolicy | None = None,
        shares: TokenShares | None = None,
        memory: ServerMemory | None = None,
    ) -> None:
        self._shares = shares
        self._make_connect = make_connect
        self._clock = clock
        self._on_change = on_change
        self._pace = pace or BackoffPolicy()
        self._memory = memory or ServerMemory()
        self._starts = StartQueue()
        self._generations = itertools.count(1)  # one for all, so that a server that comes back under its id looks new
        self._berths: dict[str, _Slot] = {}
        self._servers: dict[str, DownstreamServer] = {}
        self._leaving: set[Supervisor | OwnConnections] = set()  # they let calls finish, then close
        self._background = TaskSet()

    @property
    def servers(self) -> Mapping[str, DownstreamServer]:
        return MappingProxyType(self._servers)

    def get(self, server_id: str) -> DownstreamServer | None:
        return self._servers.get(server_id)

    def statuses(self) -> dict[str, ServerStatus]:
        return {server_id: server.status for server_id, server in self._servers.items()}

    async def settled(self) -> None:
        """Wait until every server has been tried once. For the caller to limit."""
        current = [berth.supervisor for berth in self._berths.values()]
        await asyncio.gather(*(supervisor.settled.wait() for supervisor in current if supervisor is not None))

    def poke(self) -> None:
        """Try every failed server again now."""
        for berth in self._berths.values():
            if berth.supervisor is not None:
                berth.supervisor.poke()

    async def apply(self, config: GatewayConfig) -> None:
        """Make it so. Returns at once: servers start and end in the background, each on its own.

        Raises:
            ExceptionGroup: some entries could not be applied; all others were.
        """
        for server_id in self._berths.keys() - config.servers.keys():
            self._remove(server_id)
        self._memory.keep_only(config.servers.keys())
        failures: dict[str, Exception] = {}
        for server_id, wanted in config.servers.items():
            try:
                self._fit(server_id, wanted, config)
            except Exception as error:
                failures[server_id] = error
        if failures:
            names = ", ".join(f"`{server_id}`" for server_id in failures)
            raise ExceptionGroup(f"could not apply the entries of {names}", [*failures.values()])

    async def close(self, grace_s: float) -> None:
        """End all servers; calls under way have `grace_s` to finish."""
        leaving = [*self._leaving]
        for berth in self._berths.values():
            berth.server.stop("the gateway is stopping")
            leaving += berth.all_supervisors()
            leaving += [berth.server.own] if berth.server.own is not None else []
        self._berths.clear()
        await asyncio.gather(*(each.stop(grace_s) for each in leaving))
        await self._background.close()
        self._memory.flush()

    def _remove(self, server_id: str) -> None:
        berth = self._berths.pop(server_id)
        del self._servers[server_id]
        berth.server.stop(_REMOVED)
        self._retire(berth.server, berth.all_supervisors())
        self._isolate(berth, None)

    def _fit(self, server_id: str, wanted: Server, config: GatewayConfig) -> None:
        name, timeouts = display_name(server_id, wanted), config.timeouts_of(wanted)
        berth = self._berths.get(server_id)
        if berth is None:
            server = DownstreamServer(
                server_id,
                name,
                timeouts,
                generations=self._generations,
                clock=self._clock,
                on_change=self._on_change,
                shares=self._shares,
            )
            if wanted.bundled is not None:
                server.first_start_s = timeouts.connect_s  # it is known to come up, also on a busy machine
            berth = self._berths[server_id] = _Slot(server)
            self._servers[server_id] = server
        berth.server.name, berth.server.timeouts = name, timeouts
        berth.server.queue.hand_out()  # there may be more slots now
        recipe = ConnectionSpec.of(wanted, config.limits) if wanted.enabled else None
        if recipe is None:
            self._disable(berth)
        elif recipe != berth.recipe:
            self._restart(berth, recipe, self._make_connect(server_id, wanted, config.limits))

    def _disable(self, berth: _Slot) -> None:
        berth.server.stop(_DISABLED)
        self._retire(berth.server, berth.all_supervisors())
        berth.recipe, berth.supervisor, berth.predecessors = None, None, []
        self._isolate(berth, None)

    def _restart(self, berth: _Slot, recipe: ConnectionSpec, connect: Connect) -> None:
        """The new connection is opened beside the old one, which serves until the new one stands or fails."""
        previous = berth.supervisor
        if previous is not None and previous.connected:
            previous.last_connection()
            berth.predecessors.append(previous)
        elif previous is not None:
            self._retire(berth.server, [previous])
        if not berth.predecessors:
            berth.server.starting("it is being started")
        berth.recipe = recipe
        starts = self._starts if recipe.server.url is None else None  # to reach a URL starts no process
        record = self._memory.of(berth.server.id, recipe.server)
        if recipe.server.bundled is not None:
            record.ran = True  # it is a part of the gateway
        berth.supervisor = Supervisor(berth.server, connect, self._pace, starts, record)
        berth.supervisor.start()
        self._isolate(berth, connect if recipe.server.isolation == "per-caller" else None)
        self._background.start(self._relieve(berth, berth.supervisor))

    def _isolate(self, berth: _Slot, connect: Connect | None) -> None:
        """From now on callers share the connection, or have their own that `connect` makes."""
        server, previous, recipe = berth.server, berth.server.own, berth.recipe
        server.own = None
        if connect is not None:
            server.own = OwnConnections(
                connect,
                server.notice_from,
                server.watches.of,
                lambda: server.timeouts.connect_s,
                starts=self._starts if recipe is not None and recipe.server.url is None else None,
            )
            for caller in server.watches.callers():
                server.own.keep(caller)
        if previous is not None:
            self._see_off(server, previous)

    async def _relieve(self, berth: _Slot, supervisor: Supervisor) -> None:
        await supervisor.settled.wait()
        if berth.supervisor is not supervisor:
            return  # the configuration changed again meanwhile
        self._retire(berth.server, berth.predecessors)
        berth.predecessors = []

    def _retire(self, server: DownstreamServer, supervisors: Iterable[Supervisor]) -> None:
        for supervisor in supervisors:
            supervisor.dismiss()
            self._see_off(server, supervisor)

    def _see_off(self, server: DownstreamServer, leaving: Supervisor | OwnConnections) -> None:
        self._leaving.add(leaving)
        stop = self._background.start(leaving.stop(server.timeouts.call_s))
        stop.add_done_callback(lambda _: self._leaving.discard(leaving))
