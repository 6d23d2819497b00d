"""HAProxy and Caddy in front of replicas, with the configurations of docs/guide/replicas.md."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from tests.gateway_process import own_environment

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "replicas.md"
PROGRAMS = {"haproxy": ("haproxy", "/usr/sbin/haproxy"), "caddy": ("caddy", "/usr/bin/caddy")}
READY_S = 30.0
PORTS_IN_GUIDE = (3291, 3292, 3293)


def program(name: str) -> str:
    """The path of a proxy; a test that needs one that is not installed is skipped and says so."""
    for candidate in PROGRAMS[name]:
        if found := shutil.which(candidate):
            return found
    pytest.skip(f"{name} is not installed: apt-get install {name}")


@asynccontextmanager
async def haproxy(folder: Path, port: int, ports: Sequence[int]) -> AsyncIterator[None]:
    file = folder / "haproxy.cfg"
    file.write_text(_from_guide("HAProxy", port, ports, "bind :3282", f"bind 127.0.0.1:{port}"))
    async with _running(folder, port, program("haproxy"), "-db", "-f", str(file)):
        yield


@asynccontextmanager
async def caddy(folder: Path, port: int, ports: Sequence[int]) -> AsyncIterator[None]:
    file = folder / "Caddyfile"
    bound = _from_guide("Caddy", port, ports, "http://mcp.example {", f"http://mcp.example:{port} {{\n  bind 127.0.0.1")
    file.write_text("{\n  admin off\n}\n" + bound.replace("mcp.example", "127.0.0.1"))
    async with _running(folder, port, program("caddy"), "run", "--adapter", "caddyfile", "--config", str(file)):
        yield


def _from_guide(name: str, port: int, ports: Sequence[int], listens: str, listens_here: str) -> str:
    """The configuration that the guide prints, with the ports of this test."""
    found = re.search(rf"### {name}\n\n```text\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    text = found[1]
    assert listens in text
    text = text.replace(listens, listens_here).replace("Host mcp.example", f"Host 127.0.0.1:{port}")
    for in_guide, here in zip(PORTS_IN_GUIDE, ports, strict=True):
        assert f"127.0.0.1:{in_guide}" in text
        text = text.replace(f"127.0.0.1:{in_guide}", f"127.0.0.1:{here}")
    return text


@asynccontextmanager
async def _running(folder: Path, port: int, *command: str) -> AsyncIterator[None]:
    """Run a proxy, and wait until it has found a replica that is ready."""
    log = folder / "proxy.log"
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*command, stdout=file, stderr=file, env=own_environment(folder))
    try:
        async with asyncio.timeout(READY_S), httpx2.AsyncClient() as http:
            while True:
                assert process.returncode is None, log.read_text()
                with suppress(httpx2.HTTPError):
                    if (await http.get(f"http://127.0.0.1:{port}/health")).status_code == 200:
                        break
                await asyncio.sleep(0.05)
        yield
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
