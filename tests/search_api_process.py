"""A whole search service as a process of its own, for tests that must see it from outside."""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gateway_process import START_S, STOP_S, own_environment, write_config

READY = re.compile(r"^pointsman search-api ready on (http://\S+)$")


@dataclass(eq=False)
class SearchApiProcess:
    """One run of `pointsman search-api serve`. `token` may search for any project, unless the config names its own."""

    process: asyncio.subprocess.Process
    config_file: Path
    token: str
    url: str = ""
    lines: list[str] = field(default_factory=list)  # all of stderr so far

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def stderr(self) -> str:
        return "\n".join(self.lines)

    def write_config(self, config: Mapping[str, Any]) -> None:
        write_config(self.config_file, config, self.token)

    async def stop(self) -> int:
        """Ask it to end and wait until it has; one that does not end in time is killed and fails the test."""
        if self.process.returncode is None:
            self.process.terminate()
        try:
            return await asyncio.wait_for(self.process.wait(), STOP_S)
        except TimeoutError:
            raise AssertionError(f"the service did not end:\n{self.stderr}") from None


@asynccontextmanager
async def search_api_process(
    folder: Path,
    config: Mapping[str, Any],
    *,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> AsyncIterator[SearchApiProcess]:
    """Start a service in `folder`, wait for its ready line, and end it with the block."""
    config_file = folder / "pointsman.yaml"
    token = "ptm_" + secrets.token_urlsafe(32)
    write_config(config_file, config, token)
    async with started(folder, ["--config", str(config_file), *args], env, prefix) as (process, lines, url):
        service = SearchApiProcess(process, config_file, token, url, lines)
        yield service
        assert await service.stop() == 0, service.stderr


@asynccontextmanager
async def started(
    folder: Path, args: Sequence[str], env: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[str], str]]:
    """The process, what it says on stderr, and its URL."""
    process = await asyncio.create_subprocess_exec(
        *(*prefix, sys.executable, "-P", "-m", "pointsman", "search-api", "serve", "--port", "0", *args),
        cwd=folder,
        env=own_environment(folder) | dict(env or {}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    lines: list[str] = []
    ready = asyncio.Event()
    reader = asyncio.create_task(_read(process, lines, ready))
    try:
        await asyncio.wait_for(ready.wait(), START_S)
        urls = [found[1] for line in lines if (found := READY.match(line))]
        assert urls, "the service did not get ready:\n" + "\n".join(lines)
        yield process, lines, urls[0]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await asyncio.wait_for(reader, STOP_S)


async def _read(process: asyncio.subprocess.Process, lines: list[str], ready: asyncio.Event) -> None:
    assert process.stderr is not None
    async for raw in process.stderr:
        lines.append(raw.decode(errors="replace").rstrip("\n"))
        if READY.match(lines[-1]):
            ready.set()
    ready.set()  # it ended, ready or not
