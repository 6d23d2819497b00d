"""What the suite is pointed at: the fixture alone, and gateways in front of it."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from tests.conformance.token_proxy import token_proxy
from tests.gateway_process import gateway_process, own_environment, write_config

ROOT = Path(__file__).parents[2]
START_S = 60.0
STOP_S = 30.0

Surface = Literal["router", "flat"]
DownstreamEra = Literal["modern", "legacy"]


@asynccontextmanager
async def fixture() -> AsyncIterator[str]:
    async with _program("tests.conformance.fixture") as url:
        yield url


@asynccontextmanager
async def own_front(surface: Surface, era: DownstreamEra, fixture_url: str, folder: Path) -> AsyncIterator[str]:
    """Our gateway as it is served, with a token on every request."""
    async with token_proxy() as proxy:
        origins = [f"http://{host}" for host in proxy.hosts]
        listen = {"allowed_hosts": proxy.hosts, "allowed_origins": origins}
        config = _config(surface, era, fixture_url) | {"listen": listen}
        async with gateway_process(folder, config) as gateway:
            port = urlsplit(gateway.url).port
            assert port is not None
            proxy.target = (port, gateway.token)
            yield proxy.url


@asynccontextmanager
async def sdk_front(surface: Surface, era: DownstreamEra, fixture_url: str, folder: Path) -> AsyncIterator[str]:
    """The same gateway behind the SDK's server."""
    token = "ptm_" + secrets.token_urlsafe(32)
    write_config(folder / "pointsman.yaml", _config(surface, era, fixture_url), token)
    environment = own_environment(folder) | {"CONFORMANCE_TOKEN": token}
    async with _program("tests.conformance.sdk_gateway", str(folder), env=environment) as url:
        yield url


def _config(surface: Surface, era: DownstreamEra, fixture_url: str) -> dict[str, Any]:
    """Without a prefix, so that prompts and resources have the names that the suite knows."""
    return {
        "servers": {"fixture": {"url": fixture_url, "era": era, "prefix": "", "pin": "off"}},
        "unassigned": {"exposure": "flat" if surface == "flat" else "meta"},
    }


@asynccontextmanager
async def _program(module: str, *args: str, env: Mapping[str, str] | None = None) -> AsyncIterator[str]:
    """Run a module that prints the URL under which it serves."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-m", module, *args),
        cwd=ROOT,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_S)
        assert line, f"{module} ended before it served"
        yield line.decode().strip()
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), STOP_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
