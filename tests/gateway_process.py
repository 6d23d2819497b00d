"""A whole gateway as a process of its own, for tests that must see it from outside."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY = re.compile(r"^pointsman ready on (http://(\S+?):(\d+)/mcp)$")
START_S = 60.0  # bounds against hanging, never reached when all is well
STOP_S = 30.0
SERVERS_S = 60.0


@dataclass(eq=False)
class GatewayProcess:
    """One run of `pointsman serve`. `token` is a secret that may use everything, unless the config named its own."""

    process: asyncio.subprocess.Process
    config_file: Path
    state_dir: Path
    token: str
    url: str = ""  # of /mcp
    lines: list[str] = field(default_factory=list)  # all of stderr so far

    @property
    def base_url(self) -> str:
        return self.url.removesuffix("/mcp")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def stderr(self) -> str:
        return "\n".join(self.lines)

    async def until_logged(self, text: str) -> None:
        async with asyncio.timeout(SERVERS_S):
            while text not in self.stderr:
                await asyncio.sleep(0.02)

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replace the config in one step, as an editor does; the test's token stays in it."""
        write_config(self.config_file, config, self.token)

    def send_signal(self, which: signal.Signals) -> None:
        """Unlike asyncio's own, this never loses the exit code of a process that has just ended."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, which)

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end and wait until it has; a gateway that does not end in time is killed and fails the test."""
        self.send_signal(how)
        try:
            return await asyncio.wait_for(self.process.wait(), STOP_S)
        except TimeoutError:
            self.send_signal(signal.SIGKILL)
            await self.process.wait()
            raise AssertionError(f"the gateway did not end after {how.name}:\n{self.stderr}") from None


@asynccontextmanager
async def gateway_process(
    folder: Path,
    config: Mapping[str, Any],
    *,
    token: str | None = None,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    without: Collection[str] = (),
    prefix: Sequence[str] = (),
) -> AsyncIterator[GatewayProcess]:
    """Start a gateway in `folder`, wait for its ready line and for its servers, and end it with the block.

    It gets ready without servers that are slow to start, as all are on a busy machine; `without` names those that
    never answer. A second block on the same folder is a second run on the same state. `prefix` is a command that
    executes the one behind it (`unshare`, `env`).
    """
    secret = token or "ptm_" + secrets.token_urlsafe(32)
    config_file = folder / "pointsman.yaml"
    state_dir = folder / "state"
    write_config(config_file, config, secret)
    process = await asyncio.create_subprocess_exec(
        *(*prefix, sys.executable, "-P", "-m", "pointsman", "serve", "--port", "0"),
        *("--config", str(config_file), "--state-dir", str(state_dir), *args),
        cwd=folder,
        env=own_environment(folder) | dict(env or {}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    gateway = GatewayProcess(process, config_file, state_dir, secret)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    reader = asyncio.create_task(_read_stderr(gateway, ready))
    try:
        gateway.url = await _ready(gateway, ready)
        await _all_tried(gateway, config, without)
        yield gateway
        await gateway.stop()
    finally:
        gateway.send_signal(signal.SIGKILL)
        await process.wait()
        await asyncio.wait_for(reader, STOP_S)


def write_config(file: Path, config: Mapping[str, Any], secret: str) -> None:
    """Write a config (JSON is YAML) that knows `secret`, where it does not bring tokens of its own."""
    digest = hashlib.sha256(secret.encode()).hexdigest()
    everything = {"test": {"sha256": digest, "projects": ["*"], "servers": ["*"]}}
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"tokens": everything, **config}, indent=2))
    new.replace(file)


def own_environment(home: Path) -> dict[str, str]:
    """Nothing of the developer's own Pointsman may reach a test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("POINTSMAN_", "XDG_"))}
    return kept | {"HOME": str(home)}


async def _read_stderr(gateway: GatewayProcess, ready: asyncio.Future[str]) -> None:
    assert gateway.process.stderr is not None
    async for raw in gateway.process.stderr:
        line = raw.decode(errors="replace").rstrip("\n")
        gateway.lines.append(line)
        found = READY.match(line)
        if found and not ready.done():
            ready.set_result(found[1])
    if not ready.done():
        ready.cancel()  # it ended before it was ready


async def _ready(gateway: GatewayProcess, ready: asyncio.Future[str]) -> str:
    await asyncio.wait([ready], timeout=START_S)
    if ready.done() and not ready.cancelled():
        return ready.result()
    raise AssertionError(f"the gateway did not get ready (exit code {gateway.process.returncode}):\n{gateway.stderr}")


async def _all_tried(gateway: GatewayProcess, config: Mapping[str, Any], without: Collection[str]) -> None:
    """Wait until every server runs or has failed once, as the log says."""
    servers = config.get("servers", {})
    waiting = {one for one, entry in servers.items() if entry.get("enabled", True) and one not in without}
    with suppress(TimeoutError):
        async with asyncio.timeout(SERVERS_S):
            while waiting := {
                one for one in waiting if not re.search(rf"server {one}( is running|:) ", gateway.stderr)
            }:
                if gateway.process.returncode is not None:
                    return
                await asyncio.sleep(0.02)
