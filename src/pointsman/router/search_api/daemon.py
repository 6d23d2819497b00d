"""Runs the search service: binds the socket, serves, reloads and drains."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2

from pointsman.config.model import GatewayConfig, SearchApi
from pointsman.router.front.http.connections import is_exempt
from pointsman.router.front.http.headers import HostRules
from pointsman.router.front.http.protocol import guarded_protocol
from pointsman.router.search_api.app import SearchApp
from pointsman.router.search_api.errors import http_error_body
from pointsman.router.search_api.service import SearchService
from pointsman.router.serving import process
from pointsman.router.serving.first_token import FirstToken
from pointsman.router.serving.reload import Reloader
from pointsman.router.serving.socket import HttpServer, bind, url_of
from pointsman.router.serving.tasks import TaskSet

logger = logging.getLogger(__name__)

HTTP_SERVER, WARM_UP = "HTTP server", "search warm-up"
GRACE_S = 9  # for searches in progress at shutdown


@dataclass(frozen=True, slots=True)
class Launch:
    """What to serve. Unlike the gateway, the service keeps no state on disk, except that its first token is unused."""

    config: GatewayConfig
    config_path: Path
    load: Callable[[], GatewayConfig]  # rereads `config_path`, overridden by environment and command line
    ready: Callable[[str], None]  # called with the URL when the service accepts requests
    # Called when the port is ours, to write the first configuration; True: read `config_path` again.
    prepare: Callable[[GatewayConfig], bool] = lambda config: False
    first_token: FirstToken | None = None


async def serve(launch: Launch) -> None:
    """Serve until a stop signal.

    Raises:
        ListenError: could not bind the address.
        ConfigError: the configuration that `prepare` has written is invalid.
        DaemonError: an essential task ended.
    """
    listen = _settings(launch.config).listen
    with bind(listen.host, listen.port) as listener:
        if launch.prepare(launch.config):
            launch = replace(launch, config=launch.load())
        # Only the configured address is contacted: no redirects, and no proxy from the environment.
        async with httpx2.AsyncClient(follow_redirects=False, trust_env=False) as http:
            await _serve(launch, listener, SearchService(launch.config, http))


async def _serve(launch: Launch, listener: socket.socket, service: SearchService) -> None:
    port = listener.getsockname()[1]

    async def apply(config: GatewayConfig) -> None:
        old, new = _settings(service.rights.config).listen, _settings(config).listen
        if (old.host, old.port) != (new.host, new.port):
            logger.warning("`search_api.listen` changed; the change takes effect at the next start")
        service.configure(config)
        app.hosts = HostRules.of(new, port)

    reloader = Reloader(launch.config_path, launch.load, apply, lambda: service.rights.config, read_at_start=())
    tasks = TaskSet()

    def opened() -> None:
        app.open = True
        launch.ready(url_of(listener))

    def faults() -> dict[str, str]:
        return reloader.report() | tasks.report()

    app = SearchApp(service, HostRules.of(_settings(launch.config).listen, port), faults, launch.first_token)
    protocol = guarded_protocol(
        lambda: service.rights.config.limits,
        error_body=http_error_body,
        exempt=lambda host: is_exempt(host, app.hosts.trusted_proxies),
    )
    server = HttpServer(app.asgi, protocol, opened, graceful_s=GRACE_S)
    stop = asyncio.Event()
    with process.stop_on_signals(stop), process.reload_on_sighup(reloader.request):
        reloader.start(tasks)
        tasks.start(WARM_UP, service.warm_up, on_failure="log")
        tasks.start(HTTP_SERVER, lambda: server.serve(sockets=[listener]), on_failure="end")
        try:
            await tasks.until(stop)
        finally:
            app.open = False
            server.should_exit = True
            await tasks.join(HTTP_SERVER)
            await tasks.close()


def _settings(config: GatewayConfig) -> SearchApi:
    return config.search_api or SearchApi()
