"""The search service as a process: from the bound socket to the last answer."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from starlette.applications import Starlette

from pointsman.config.model import GatewayConfig, SearchApi
from pointsman.router.front.http.connections import is_exempt
from pointsman.router.front.http.headers import HostRules
from pointsman.router.front.http.protocol import guarded_protocol
from pointsman.router.search_api.app import SearchApp
from pointsman.router.search_api.refusals import body_below_asgi
from pointsman.router.search_api.service import SearchService
from pointsman.router.serving import signals
from pointsman.router.serving.reload import Reloader
from pointsman.router.serving.socket import HttpServer, bind, url_of
from pointsman.router.serving.tasks import TaskSet

logger = logging.getLogger(__name__)

HTTP_SERVER, WARM_UP = "HTTP server", "search warm-up"
GRACE_S = 9  # for searches under way when we are asked to end


@dataclass(frozen=True, slots=True)
class Launch:
    """What to serve. Unlike the gateway, this keeps no state on disk."""

    config: GatewayConfig
    config_path: Path
    load: Callable[[], GatewayConfig]  # reads `config_path` again, with environment and command line on top
    ready: Callable[[str], None]  # told the URL when requests are taken


async def serve(launch: Launch) -> None:
    """Serve until a signal says stop.

    Raises:
        ListenError: the address cannot be had.
        DaemonError: an essential task ended.
    """
    listen = _own(launch.config).listen
    with bind(listen.host, listen.port) as listener:
        # Where we are told to ask is where we ask: no redirects, and no proxy that the environment names.
        async with httpx2.AsyncClient(follow_redirects=False, trust_env=False) as http:
            await _serve(launch, listener, SearchService(launch.config, http))


async def _serve(launch: Launch, listener: socket.socket, desk: SearchService) -> None:
    port = listener.getsockname()[1]

    async def apply(config: GatewayConfig) -> None:
        old, new = _own(desk.rights.config).listen, _own(config).listen
        if (old.host, old.port) != (new.host, new.port):
            logger.warning("`search_api.listen` has changed; that takes effect at the next start")
        desk.configure(config)
        app.hosts = HostRules.of(new, port)

    reloader = Reloader(launch.config_path, launch.load, apply)
    tasks = TaskSet()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        reloader.start(tasks)
        tasks.start(WARM_UP, desk.warm_up, on_failure="log")
        yield
        await tasks.cancel(*reloader.tasks, WARM_UP)

    def opened() -> None:
        app.open = True
        launch.ready(url_of(listener))

    def faults() -> dict[str, str]:
        return reloader.report() | tasks.report()

    app = SearchApp(desk, HostRules.of(_own(launch.config).listen, port), faults, lifespan)
    protocol = guarded_protocol(
        lambda: desk.rights.config.limits,
        error_body=body_below_asgi,
        exempt=lambda host: is_exempt(host, app.hosts.trusted_proxies),
    )
    server = HttpServer(app.asgi, protocol, opened, graceful_s=GRACE_S)
    stop = asyncio.Event()
    with signals.stopping(stop), signals.reloading(reloader.request):
        tasks.start(HTTP_SERVER, lambda: server.serve(sockets=[listener]), on_failure="end")
        try:
            await tasks.until(stop)
        finally:
            app.open = False
            server.should_exit = True
            await tasks.join(HTTP_SERVER)
            await tasks.close()


def _own(config: GatewayConfig) -> SearchApi:
    return config.search_api or SearchApi()
