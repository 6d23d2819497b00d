"""The daemon: builds its parts, serves until it is stopped, and closes them in reverse order. `run.py` runs it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cache

from starlette.types import ASGIApp

from pointsman import __version__
from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.core.model import Caller
from pointsman.core.seams import Change
from pointsman.router.audit.compaction.compaction import auditing
from pointsman.router.audit.database import databases_set_aside
from pointsman.router.auth.sign_in import Access
from pointsman.router.downstream.server.connectors import Connectors
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.downstream.stderr_log import ServerLogs
from pointsman.router.downstream.stdio.child import SystemProcesses
from pointsman.router.downstream.stdio.guard import Guard
from pointsman.router.downstream.stdio.launch import protected_paths
from pointsman.router.downstream.talk.server_memory import ServerMemory
from pointsman.router.front.asgi import Front
from pointsman.router.front.http.headers import HostRules
from pointsman.router.front.http.protocol import guarded_protocol
from pointsman.router.gateway.caller_ids import CallerIds
from pointsman.router.gateway.caller_sign_in import CallerSignIns
from pointsman.router.gateway.confirmation.gate import Gate
from pointsman.router.gateway.cursors import Cursors
from pointsman.router.gateway.gateway import PointsmanGateway
from pointsman.router.launch import Launch
from pointsman.router.observe.context_use import ContextUse
from pointsman.router.observe.health import Health
from pointsman.router.observe.metrics import Gauges, Metrics
from pointsman.router.observe.recent import RecentFigures
from pointsman.router.observe.telemetry import start_tracing
from pointsman.router.observe.usage import UsageMemory
from pointsman.router.other_paths import OtherPaths
from pointsman.router.owner.changes import changed_entries
from pointsman.router.owner.channel import owner_channel
from pointsman.router.owner.operations import OWNER, page_link, summary
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.pins import pin_operations
from pointsman.router.owner.replicas import channel_operations
from pointsman.router.owner.sign_in.grants import grant_operations
from pointsman.router.owner.sign_in.page_sign_ins import SignIns
from pointsman.router.owner.sign_in.server_sign_ins import end_accounts_of, sign_in_operations, warn_of_unused
from pointsman.router.page.mount import PageMount
from pointsman.router.replication import (
    authorization_server,
    counted_rates,
    find_peers,
    open_pins,
    open_placement,
    open_server_sign_ins,
    open_shared_state,
    open_values,
    start_sharing,
    stored_results,
)
from pointsman.router.search import Search
from pointsman.router.serving import process, state_folder
from pointsman.router.serving.first_token import FirstToken
from pointsman.router.serving.in_flight import InFlight
from pointsman.router.serving.log_file import LogFile
from pointsman.router.serving.reload import Reloader, log_advice
from pointsman.router.serving.request_keys import request_keys
from pointsman.router.serving.shares import TokenShares
from pointsman.router.serving.socket import HttpServer, url_of
from pointsman.router.serving.tasks import TaskSet

logger = logging.getLogger(__name__)

HTTP_SERVER = "HTTP server"
GRACE_S = 8.0  # for calls under way when the daemon is stopped
GRACEFUL_S = int(GRACE_S) + 1  # with the time for connections to close
FIRST_LISTS_S = 10.0  # before the summary names the servers that are missing


class Daemon:
    """One gateway. `start` builds it, `serve` runs it, `reload` replaces its configuration, `stop` closes it."""

    def __init__(self, launch: Launch, listener: socket.socket, log_file: LogFile | None = None) -> None:
        self._current = CurrentConfig(launch.config)
        self._launch = launch
        self._listener = listener
        self._log_file = log_file
        self._configure_log(launch.config)
        self._port: int = listener.getsockname()[1]
        self._tasks = TaskSet()
        self._stack = AsyncExitStack()  # closes what `start` opened, in reverse order
        self._stack.push_async_callback(self._tasks.close)
        self._reloader = Reloader(
            launch.config_path, launch.load, self.reload, lambda: self._current.config, around=launch.manager.reloading
        )

    async def start(self) -> None:
        """Build the parts from the bottom up, and connect to the servers. Raises StateFolderError.

        Processes are started when the port is open.
        """
        stack, launch = self._stack, self._launch
        self._tracing = start_tracing(self._current.config.telemetry, os.environ)
        if self._tracing is not None:
            stack.push_async_callback(self._tracing.close)
        self._keys = request_keys(self._current.config.state.request_keys, launch.state_dir)
        self._start_downstream(await self._start_guard())
        self._metrics, self._usage, self._context_use = Metrics(), UsageMemory(), ContextUse()
        self._recent = RecentFigures(self._metrics)
        self._shared = open_shared_state(self._current.config, launch.state_dir)
        if self._shared is not None:
            stack.push_async_callback(self._shared.close)
        self._build_catalog()
        self._tasks.start("definition scan", self._catalog.watch.run)
        self._audit = await stack.enter_async_context(
            auditing(
                launch.state_dir,
                self._current,
                tasks=self._tasks,
                observers=[self._metrics, self._usage],
                writer=self._shared.audit_writer if self._shared else None,
                shared=launch.replica_dir is not None,
            )
        )
        stack.push_async_callback(self._fleet.close, 0.0)  # calls had their time when the front drained
        stack.push_async_callback(self._search.close)
        keys = self._keys
        with_older = launch.replica_dir is not None and not launch.worker  # all workers have one version
        counting = counted_rates(self._shared, self._current.config, launch.state_dir, self._tasks)
        self._rates = await stack.enter_async_context(counting)
        self._rates.rights_of = self._access.identities.rights_of
        self.gateway = PointsmanGateway(
            self._catalog,
            self._offers,
            self._fleet,
            self._audit,
            Cursors(keys, time.time),
            self._usage,
            CallerIds(keys),
            self._shares,
            stored_results(self._shared, self._current, launch.state_dir, keys, with_older=with_older),
            self._context_use,
            self._rates,
            Gate(open_values(self._shared, launch.state_dir), lambda: self._current.config),
            CallerSignIns(lambda: self._server_sign_ins().links, lambda: self._parts.address(), self._current),
        )
        self.gateway.client_connected = self._client_connected
        stack.push_async_callback(self.gateway.close)
        if launch.first_token is not None and launch.first_token.unused is not None:
            self._watch_for_use(launch.first_token)
        self._health = Health(
            self._catalog,
            self._search.cloud,
            self._search.encoder,
            self._fleet,
            self._audit,
            self._reloader,
            self._tasks,
            launch.state_dir,
        )
        self._health.pins = self._pins
        self._sign_ins = SignIns(keys, launch.state_dir)
        self._start_peers(keys)
        started, state_dir = launch.began or launch.config, launch.state_dir
        opening = authorization_server(self._shared, self._current, started, self._audit, keys, state_dir, self._tasks)
        self._authorization = await stack.enter_async_context(opening)
        if self._authorization is not None:
            self._authorization.revoked = self._signed_out
            self._authorization.ended = lambda person: self._tasks.spawn(
                end_accounts_of(person, self._server_sign_ins, self._current, self._audit)
            )
            self._access.add_own_server(self._authorization, self._current.config)
            self._catalog.identities_changed()
        self._build_front(keys)
        shared, sessions, replica_dir = self._shared, self._front.sessions, launch.replica_dir
        start_sharing(shared, replica_dir, self._tasks, self._health, sessions, self._usage, self._sign_ins)
        self._metrics.watch(self._gauges())
        log_advice(self._current.config)
        self._fleet.hold_starts()
        await self._fleet.apply(self._current.config)

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain. Raises DaemonError."""
        parts, url = self._parts, self._parts.url
        operations = (
            channel_operations(parts) | pin_operations(parts) | grant_operations(parts) | sign_in_operations(parts)
        )

        def opened() -> None:
            process.collect_garbage_seldom()
            self._health.open = True
            self._launch.ready(url)
            self._fleet.resume_starts()  # not before: the port need not wait for hundreds of processes
            self._say(f"pointsman {__version__} ready on {url} (process {os.getpid()})")
            self._launch.manager.ready(f"ready on {url}")
            self._tasks.start("first summary", lambda: self._summarize(parts), on_failure="log")
            if self._launch.page is not None and self._current.config.page.enabled:
                self._launch.page(page_link(parts)["url"])

        protocol = guarded_protocol(
            lambda: self._current.config.limits,
            exempt=self._front.is_exempt,
            unread=self._front.unread,
            serve_post=self._front.serve_post,
        )
        server = HttpServer(self._front, protocol, opened, graceful_s=GRACEFUL_S, unix_listener=self._peer_listener)
        async with AsyncExitStack() as stack:
            stack.enter_context(process.reload_on_sighup(self._reloader.request))
            owner = await stack.enter_async_context(owner_channel(self._launch.own_dir, operations))
            pid = os.getppid() if self._launch.worker else None  # the one to signal
            stack.enter_context(state_folder.announced(self._launch.own_dir, url, self._launch.config_path, pid))
            await stack.enter_async_context(self.background())
            self._tasks.start(HTTP_SERVER, lambda: server.serve(sockets=[self._listener]), on_failure="end")
            try:
                if self._peers is not None:
                    await self._peers.directory.announce(self._peers.own)
                await self._tasks.until(stop)
                await self._leave_proxy()
            finally:
                self._health.open = False
                if self._peers is not None:
                    await self._peers.directory.withdraw()
                self._launch.manager.stopping()
                if running := self._front.calls_running + owner.running:
                    calls = "1 call" if running == 1 else f"{running} calls"
                    logger.info("waiting for %s to end; a second signal ends at once", calls)
                server.should_exit = True
                self._page.end_streams()
                # The HTTP server may end before the calls: those of clients that have gone away.
                drained = self._front.drain(GRACE_S), owner.drain(GRACE_S)
                await asyncio.gather(*drained, self._tasks.join(HTTP_SERVER))
                if self._launch.drained is not None:
                    await self._launch.drained()

    async def _leave_proxy(self) -> None:
        """Answer 503 to a proxy's health checks and still take calls, so that none meets a closed port."""
        behind_proxy = self._peers is not None and not self._launch.worker  # workers stop together
        drain_s = self._current.config.listen.drain_for(replica=behind_proxy)
        if drain_s:
            self._health.draining = True
            self._launch.manager.stopping()
            logger.info("draining: calls are taken for another %g s; a second signal ends at once", drain_s)
            await asyncio.sleep(drain_s)

    async def reload(self, config: GatewayConfig) -> None:
        """Replace the configuration. Rights come first: a revoked token must stop working whatever fails after that."""
        before = self._current.config
        self._current.replace(config)
        self._launch.applied()
        self._access.configure(config)
        self._catalog.reconfigure(config)
        self._shares.reload(config.limits)
        self._offers.reconfigure(config)
        self._pins.reconfigured(before, config)
        self.gateway.hub.rights_changed()
        self.gateway.large_results.reconfigured()
        self._front.hosts = HostRules.of(config.listen, self._port)
        self._front.sign_in = self._access.sign_in(self._catalog)
        self._configure_log(config)
        for verb, what in changed_entries(before, config):
            self._record_change(verb, what)
        log_advice(config)
        self._search.cloud.configure(config.cloud_search)
        await self._rates.configure(config)
        await self._fleet.apply(config)
        await warn_of_unused(self._server_sign_ins, before, config)

    def _configure_log(self, config: GatewayConfig) -> None:
        if self._log_file is not None:
            self._log_file.configure(config.log)
        if self._launch.stderr is not None:
            self._launch.stderr.configure(config.log.format)

    async def stop(self) -> None:
        """Close what `start` opened, in reverse order."""
        await self._stack.aclose()

    # The parts

    async def _start_guard(self) -> Guard:
        guard = Guard()
        await guard.start()
        self._stack.push_async_callback(guard.close)
        return guard

    def _start_peers(self, keys: Sequence[str]) -> None:
        """Make this gateway a replica, if it is to be one. Raises StateFolderError."""
        state_dir, replica_dir = self._launch.state_dir, self._launch.replica_dir
        self._peers, self._peer_listener = find_peers(self._shared, state_dir, replica_dir, self._port, keys)
        if self._peer_listener is not None:
            self._stack.callback(self._peer_listener.close)
        if self._peers is not None:
            self._health.replicas = self._peers.report
            self._say(f"pointsman is replica {self._peers.own.id} at {self._peers.own.address}")

    def _signed_out(self, identity_id: str) -> None:
        self._access.identities.forget(identity_id)
        self.gateway.hub.rights_changed()

    def _start_downstream(self, guard: Guard) -> None:
        state_dir, database = self._launch.state_dir, self._current.config.state.database
        self._logs = ServerLogs(self._launch.own_dir)
        self._placement = open_placement(self._current.config, self._launch.replica_dir)
        memory = self._memory = ServerMemory(self._launch.own_dir)
        self._shares = TokenShares(self._current.config.limits)
        in_flight = self._in_flight = InFlight(lambda: self._current.config.limits.in_flight_bytes)
        self._server_sign_ins = cache(  # opened for the first server that has `oauth`
            lambda: open_server_sign_ins(open_values(self._shared, state_dir), self._current, self._keys, self._stack)
        )
        connectors = Connectors(
            SystemProcesses(guard, protected=protected_paths(state_dir, self._launch.config_path)),
            state_dir,
            self._logs,
            memory=memory,
            in_flight=in_flight,
            state_database=database,
            sign_ins=self._server_sign_ins,
            placement=self._placement,
            config=lambda: self._current.config,
        )
        self._fleet = Fleet(
            connectors,
            clock=time.time,
            on_change=self._publish,
            shares=self._shares,
            memory=memory,
            make_accounts=connectors.accounts,
        )

    def _build_catalog(self) -> None:
        self._access = Access(self._current.config)
        self._stack.push_async_callback(self._access.close)
        state_dir, replica_dir, servers = self._launch.state_dir, self._launch.replica_dir, self._fleet.servers
        self._pins = open_pins(self._shared, self._current, state_dir, replica_dir, servers)
        self._pins.held_back = self._record_changed_tools
        self._pins.approved = lambda server_id: self.gateway.hub.lists_changed(server_id)
        self._stack.push_async_callback(self._pins.close)
        self._search = Search(
            self._current,
            self._fleet,
            state_dir,
            pins=self._pins,
            usage=self._usage,
            names=self._memory,
            changed_tools=self._record_changed_tools,
            identities=self._access.identities,
        )
        self._catalog, self._offers = self._search.catalog, self._search.offers

    def _watch_for_use(self, first_token: FirstToken) -> None:
        """Look at the token of each request until a client has sent the first one; later requests skip this."""
        identify = self.gateway.identify

        def watch(token: str | None, project: str | None) -> Caller:
            token_id = self._catalog.rights.tokens.find(token) if token else None
            if token_id is not None and first_token.used(self._current.config.tokens[token_id].sha256):
                self.gateway.identify = identify
            return identify(token, project)

        self.gateway.identify = watch

    def _build_front(self, keys: Sequence[str]) -> None:
        self._front = Front(
            self.gateway,
            self._current,
            HostRules.of(self._current.config.listen, self._port),
            server_info={"name": "pointsman", "title": "Pointsman", "version": __version__},
            instructions=self.gateway.instructions,
            request_keys=keys,
            full=self._shares.is_full,
            in_flight=self._in_flight,
            peers=self._peers,
            tracer=self._tracing,
        )
        self._front.sign_in = self._access.sign_in(self._catalog)
        if self._launch.stderr is not None:
            self._launch.stderr.ids = self._front.log_ids
        self._parts = self._build_parts()
        self._page = PageMount(self._parts, lambda: self._front.hosts)
        self._front.other_paths = OtherPaths(self._build_app)

    def _build_app(self) -> ASGIApp:
        from pointsman.router.app import build_app

        return build_app(self._front, self.gateway, self._health, self._page, self._parts)

    def _build_parts(self) -> Parts:
        return Parts(
            self._current,
            self._launch.config_path,
            self._launch.state_dir,
            f"{url_of(self._listener)}/mcp",
            time.time(),
            self._catalog,
            self._fleet,
            self._logs,
            self.gateway,
            self._metrics,
            self._context_use,
            self._health,
            self._reloader,
            self._audit,
            self._sign_ins,
            self._recent,
            self._shared.audit_rows if self._shared else self._launch.state_dir,
            self._pins,
            self._offers,
            self._server_sign_ins,
            self._authorization,
            self._peers,
            self._launch.worker,
            self._launch.config.workers,
            self._placement,
            read_secrets_again=self._launch.read_secrets_again,
        )

    def _gauges(self) -> Gauges:
        servers = self._fleet.servers
        return Gauges(
            statuses=self._fleet.statuses,
            restarts=lambda: {server_id: server.restarts for server_id, server in servers.items()},
            sessions=lambda: self._front.sessions_open,
            cloud=self._search.cloud.status,
            tools_not_encoded=lambda: self._search.encoder.missing,
            task_restarts=lambda: self._tasks.restarts,
            databases_set_aside=lambda: len(databases_set_aside(self._launch.state_dir)),
            requests=lambda: self._shares.total,
            queued=lambda: sum(server.queue.waiting for server in servers.values()),
            unread_bytes=lambda: self._front.unread.total,
            in_flight_bytes=lambda: self._in_flight.total,
        )

    @asynccontextmanager
    async def background(self) -> AsyncGenerator[None]:
        """Run the background tasks: from before the port opens until it is closed."""
        tasks = self._tasks
        await self._pins.load()
        if self._launch.began is not None:
            await self._reloader.catch_up()
        self._reloader.start(tasks)
        tasks.start("session cleanup", self._front.run)
        tasks.start("server logs", self._logs.run)
        tasks.start("stored results", self.gateway.large_results.run)
        tasks.start("recent figures", self._recent.run)
        tasks.start("pins", self._pins.run)
        tasks.start("cloud search preparation", self._search.cloud.prepare, on_failure="log")
        if self._launch.manager.watchdog_s:
            tasks.start("watchdog", self._launch.manager.keep_alive)
        try:
            yield
        finally:
            started = ("session cleanup", "server logs", "stored results", "recent figures", "pins", "watchdog")
            await tasks.cancel(*self._reloader.tasks, *started, "cloud search preparation", "search model")

    async def _summarize(self, parts: Parts) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LISTS_S):
                await self._fleet.settled()
                await self._catalog.collected(OWNER)
        line = summary(parts)
        self._launch.summary(line)
        self._say(f"pointsman has {line}")
        self._launch.manager.status(f"ready on {parts.url} with {line}")
        await self._search.encode_tools()

    def _client_connected(self, searches: bool) -> None:
        if self._search.wanted(searches):
            self._tasks.start("search model", self._search.prepare, on_failure="log")

    def _say(self, line: str) -> None:
        """Write to the log file what a command prints on stderr in its own way."""
        if self._log_file is not None:
            self._log_file.say(line)

    def _publish(self, server_id: str, change: Change) -> None:
        self.gateway.hub.publish(server_id, change)

    def _record_change(self, verb: str, what: str) -> None:
        section, _, name = what.partition(".")
        self._audit.record_change(
            f"configuration/{verb}",
            what,
            client=self._reloader.asked_by or "file",
            server_id=name if section == "servers" else None,
            project_id=name if section == "projects" else None,
        )

    def _record_changed_tools(self, server_id: str, names: Sequence[str]) -> None:
        self._audit.record_changed_tools(server_id, names)
