"""The daemon: its parts put together, from the bound socket to the last child gone."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette

from pointsman import __version__
from pointsman.catalog.offers import Offers
from pointsman.catalog.service import ToolCatalogService
from pointsman.config.loader import advice
from pointsman.config.model import GatewayConfig, Strategy
from pointsman.core.sdk import load_sealing
from pointsman.providers.base import SearchProvider
from pointsman.providers.bm25.provider import LOAD_WAIT_S, BM25SearchProvider
from pointsman.providers.cloud.provider import CloudSearchProvider
from pointsman.router.app import build_app
from pointsman.router.audit.compaction import auditing
from pointsman.router.audit.database import databases_set_aside
from pointsman.router.downstream.server.connectors import Connectors
from pointsman.router.downstream.server.fleet import Fleet
from pointsman.router.downstream.stdio.guard import Guard
from pointsman.router.downstream.stdio.process import SystemProcesses
from pointsman.router.downstream.stdio.server_logs import ServerLogs
from pointsman.router.downstream.talk.server_memory import ServerMemory
from pointsman.router.front.asgi import Front
from pointsman.router.front.entrance import Entrance
from pointsman.router.front.http.connections import is_exempt
from pointsman.router.front.http.headers import HostRules
from pointsman.router.front.http.protocol import guarded_protocol
from pointsman.router.gateway.caller_ids import CallerIds
from pointsman.router.gateway.cursors import Cursors
from pointsman.router.gateway.gateway import PointsmanGateway
from pointsman.router.observe.health import Health
from pointsman.router.observe.metrics import Gauges, Metrics
from pointsman.router.observe.usage import UsageMemory
from pointsman.router.serving import process, state_folder
from pointsman.router.serving.in_flight import InFlight
from pointsman.router.serving.reload import Reloader
from pointsman.router.serving.request_keys import request_keys
from pointsman.router.serving.shares import TokenShares
from pointsman.router.serving.socket import HttpServer, bind, url_of
from pointsman.router.serving.tasks import TaskSet

logger = logging.getLogger(__name__)

HTTP_SERVER = "HTTP server"
SETTLE_S = 1.0  # for servers to be reached before the port opens, so that a first call finds them
GRACE_S = 8.0  # for calls under way when we are asked to end
CLOSE_S = 1.0  # for connections to close after that


@dataclass(frozen=True, slots=True)
class Launch:
    """What to serve."""

    config: GatewayConfig
    config_path: Path
    load: Callable[[], GatewayConfig]  # reads `config_path` again, with environment and command line on top
    state_dir: Path
    ready: Callable[[str], None]  # told the URL of /mcp when requests are taken


@dataclass(frozen=True, slots=True)
class Parts:
    front: Front
    health: Health
    reloader: Reloader
    tasks: TaskSet
    app: Starlette


async def serve(launch: Launch, stop: asyncio.Event | None = None) -> None:
    """Serve until a signal says stop; with `stop`, until its holder says so, who hears the signals then.

    Raises:
        StateFolderError: another daemon has the state folder, or it cannot be written.
        ListenError: the address cannot be had.
        DaemonError: an essential task ended.
    """
    process.return_large_blocks()
    with state_folder.locked(launch.state_dir), bind(launch.config.listen.host, launch.config.listen.port) as listener:
        async with _put_together(launch, listener.getsockname()[1]) as parts:
            if stop is not None:
                await _serve(launch, parts, listener, stop)
                return
            stop = asyncio.Event()
            with process.stop_on_signals(stop):
                await _serve(launch, parts, listener, stop)


async def _serve(launch: Launch, parts: Parts, listener: socket.socket, stop: asyncio.Event) -> None:
    url = f"{url_of(listener)}/mcp"

    def opened() -> None:
        _spare_the_collector()
        parts.health.open = True
        launch.ready(url)

    protocol = guarded_protocol(
        lambda: parts.front.limits,
        exempt=lambda host: is_exempt(host, parts.front.hosts.trusted_proxies),
        unread=parts.front.unread,
    )
    app = Entrance(parts.front, parts.app)
    server = HttpServer(app, protocol, grace_s=int(GRACE_S + CLOSE_S), opened=opened)
    with process.reload_on_sighup(parts.reloader.request), state_folder.announced(launch.state_dir, url):
        parts.tasks.start(HTTP_SERVER, lambda: server.serve(sockets=[listener]), on_failure="end")
        try:
            await parts.tasks.until(stop)
        finally:
            parts.health.open = False
            if parts.front.calls_running:
                logger.info("waiting for %d calls to end; a second signal ends at once", parts.front.calls_running)
            server.should_exit = True
            await parts.front.drain(GRACE_S)
            await parts.tasks.join(HTTP_SERVER)


def _spare_the_collector() -> None:
    """What is imported stays, and what a call leaves behind is freed by counting: there is little to collect."""
    gc.collect()
    gc.freeze()  # without this every full collection walks all modules, for 30 ms
    gc.set_threshold(10_000, 20, 50)  # the usual 700 is soon reached when many calls are under way


def _kept_until_restart(old: GatewayConfig, new: GatewayConfig) -> list[str]:
    """The keys whose new values a reload cannot take over."""
    places = {
        "listen.host": old.listen.host != new.listen.host,
        "listen.port": old.listen.port != new.listen.port,
        "state": old.state != new.state,
    }
    return [key for key, changed in places.items() if changed]


def _warn(config: GatewayConfig) -> None:
    for remark in advice(config):
        logger.warning("%s", remark)


@asynccontextmanager
async def _put_together(launch: Launch, port: int) -> AsyncGenerator[Parts]:
    """Build from the bottom up; what was opened is closed in the opposite order."""
    async with AsyncExitStack() as stack:
        tasks = TaskSet()
        stack.push_async_callback(tasks.close)
        guard = Guard()
        await guard.start()
        stack.push_async_callback(guard.close)

        logs = ServerLogs(launch.state_dir)
        memory = ServerMemory(launch.state_dir)
        shares = TokenShares(launch.config.limits)
        in_flight = InFlight(lambda: shares.limits.in_flight_bytes)
        connectors = Connectors(SystemProcesses(guard), launch.state_dir, logs, memory=memory, in_flight=in_flight)
        fleet = Fleet(
            connectors,
            clock=time.time,
            on_change=lambda server_id, change: gateway.hub.publish(server_id, change),
            shares=shares,
            memory=memory,
        )
        usage = UsageMemory()
        local = BM25SearchProvider(lambda: catalog.rights.config.search.embeddings, load_wait_s=LOAD_WAIT_S)
        cloud = CloudSearchProvider(launch.config.cloud_search)
        providers: dict[Strategy, SearchProvider] = {"bm25": local, "cloud": cloud}
        catalog = ToolCatalogService(
            launch.config,
            fleet.servers,
            providers,
            usage=usage.figures,
            changed_tools=lambda server_id, names: audit.changed_tools(server_id, names),
        )
        metrics = Metrics()
        audit = await stack.enter_async_context(
            auditing(
                launch.state_dir,
                lambda: catalog.rights.config.audit,
                tasks=tasks,
                observers=[metrics, usage],
                bytes_per_s=lambda: shares.limits.audit_bytes_per_s,
            )
        )
        stack.push_async_callback(fleet.close, 0.0)  # calls had their time when the front drained
        stack.push_async_callback(catalog.close)
        stack.push_async_callback(cloud.close)
        offers = Offers(catalog, fleet.servers)
        stack.push_async_callback(offers.close)
        keys = request_keys(launch.config.state.request_keys, launch.state_dir)
        gateway = PointsmanGateway(
            catalog, offers, fleet, audit, Cursors(keys, time.time), usage, CallerIds(keys), shares
        )
        stack.push_async_callback(gateway.close)
        front = Front(
            gateway,
            launch.config.limits,
            HostRules.of(launch.config.listen, port),
            server_info={"name": "pointsman", "title": "Pointsman", "version": __version__},
            instructions=gateway.instructions,
            request_keys=keys,
            full=lambda: shares.full,
            in_flight=in_flight,
        )

        async def apply(config: GatewayConfig) -> None:
            """Rights first: a revoked token must not wait for anything else, and nothing else can keep it alive."""
            before = catalog.rights.config
            catalog.reconfigure(config)
            shares.limits = config.limits
            offers.reconfigure(config)
            gateway.hub.rights_changed()
            front.configure(config.limits, HostRules.of(config.listen, port))
            for key in _kept_until_restart(before, config):
                logger.warning("`%s` has changed; that takes effect at the next start", key)
            _warn(config)
            cloud.configure(config.cloud_search)
            await fleet.apply(config)

        reloader = Reloader(launch.config_path, launch.load, apply)
        metrics.watch(
            Gauges(
                statuses=fleet.statuses,
                restarts=lambda: {server_id: server.restarts for server_id, server in fleet.servers.items()},
                sessions=lambda: front.sessions_open,
                cloud=cloud.status,
                task_restarts=lambda: tasks.restarts,
                databases_set_aside=lambda: len(databases_set_aside(launch.state_dir)),
                requests=lambda: shares.total,
                queued=lambda: sum(server.queue.waiting for server in fleet.servers.values()),
                unread_bytes=lambda: front.unread.total,
                in_flight_bytes=lambda: in_flight.total,
            )
        )
        health = Health(catalog, cloud, fleet, audit, reloader, tasks, launch.state_dir)
        _warn(launch.config)
        await fleet.apply(launch.config)

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncGenerator[None]:
            with suppress(TimeoutError):  # the others are there; these come when they come
                async with asyncio.timeout(SETTLE_S):
                    await fleet.settled()
            reloader.start(tasks)
            tasks.start("session cleanup", front.run)
            tasks.start("server logs", logs.run)
            tasks.start("sealing", lambda: asyncio.to_thread(load_sealing), on_failure="log")
            tasks.start("cloud search preparation", cloud.prepare, on_failure="log")
            if catalog.searchable:
                tasks.start("search model", local.prepare, on_failure="log")
            yield
            beside = ("session cleanup", "server logs", "sealing", "cloud search preparation", "search model")
            await tasks.cancel(*reloader.tasks, *beside)

        yield Parts(front, health, reloader, tasks, build_app(front, gateway, health, metrics, lifespan))
