"""Serve a whole gateway behind the SDK's server instead of our front: `python -m tests.conformance.sdk_gateway FOLDER`.

FOLDER has the `pointsman.yaml`; the token's secret is in the environment as `CONFORMANCE_TOKEN`. Prints its URL.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Route

from pointsman.config.loader import load
from pointsman.config.model import GatewayConfig
from pointsman.router import daemon
from pointsman.router.gateway.gateway import PointsmanGateway
from pointsman.router.launch import Launch
from pointsman.router.serving.socket import bind
from tests.conformance.fixture.events import Events
from tests.conformance.sdk_front import SdkFront


async def serve(folder: Path, token: str) -> None:
    path = folder / "pointsman.yaml"

    def read() -> GatewayConfig:
        return load(path, os.environ)

    launch = Launch(read(), path, read, folder / "state", lambda url: None)
    launch.state_dir.mkdir(exist_ok=True)
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        # Built by the daemon itself, so that everything but the front is what is really served.
        async with started(daemon.Daemon(launch, listener)) as gateway:
            front = SdkFront(gateway, gateway.identify(token, None))
            hosts = [f"127.0.0.1:{port}", f"localhost:{port}"]
            security = TransportSecuritySettings(
                allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
            )
            manager = StreamableHTTPSessionManager(
                front.server(), event_store=Events(), retry_interval=100, security_settings=security
            )
            app = Starlette(routes=[Route("/mcp", StreamableHTTPASGIApp(manager))])
            config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_level="warning")
            async with manager.run(), front.publishing():
                print(f"http://127.0.0.1:{port}/mcp", flush=True)
                await uvicorn.Server(config).serve(sockets=[listener])


@asynccontextmanager
async def started(real: daemon.Daemon) -> AsyncGenerator[PointsmanGateway]:
    try:
        await real.start()
        async with real.background():
            yield real.gateway
    finally:
        await real.stop()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), os.environ["CONFORMANCE_TOKEN"]))
