"""The first discovery after the ready line finds servers that are starting, and does not wait for those that hang."""

from __future__ import annotations

import asyncio
import re
import secrets
import signal
import sys
from pathlib import Path
from typing import Any

import httpx2

from tests.gateway_process import GatewayProcess, own_environment, write_config
from tests.router.conftest import Shop

HANGS = {"command": sys.executable, "args": ["-S", "-c", "import sys; sys.stdin.read()"]}
READY_S = 100.0  # bounds against hanging


async def test_it_finds_the_bundled_tools_also_beside_servers_that_never_start(tmp_path: Path) -> None:
    """Asked in the moment of the ready line, unlike `gateway_process`, which waits for all servers."""
    failing = {f"hangs{number}": {**HANGS, "timeouts": {"connect_s": 2}} for number in range(12)}
    servers = failing | {"archive": {"bundled": "archive", "timeouts": {"connect_s": READY_S, "list_s": READY_S}}}
    found = await first_discovery(tmp_path, {"servers": servers, "limits": {"first_list_s": READY_S}})
    assert any(hit["toolKey"].startswith("archive:") for hit in found["results"])
    assert "`hangs0`" in found["notice"]


async def test_it_names_the_servers_that_are_still_starting_after_the_wait(tmp_path: Path) -> None:
    servers = {f"hangs{number}": {**HANGS, "timeouts": {"connect_s": 3600}} for number in range(2)}
    found = await first_discovery(tmp_path, {"servers": servers, "limits": {"first_list_s": 0.1}})
    assert "These servers are still starting, so their tools are missing: `hangs0`, `hangs1`." in found["notice"]


async def test_it_does_not_wait_for_a_server_that_has_failed(tmp_path: Path) -> None:
    servers = {"archive": {"bundled": "archive"}, "gone": {"command": "no-such-program-anywhere"}}
    found = await first_discovery(tmp_path, {"servers": servers, "limits": {"first_list_s": READY_S}})
    assert any(hit["toolKey"].startswith("archive:") for hit in found["results"])
    assert "These servers do not work at the moment, so their tools are missing: `gone`." in found["notice"]


async def first_discovery(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    secret, file, state = "ptm_" + secrets.token_urlsafe(32), folder / "pointsman.yaml", folder / "state"
    write_config(file, config, secret)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", "serve", "--port", "0"),
        *("--config", str(file), "--state-dir", str(state)),
        cwd=folder,
        env=own_environment(folder),
        stderr=asyncio.subprocess.PIPE,
    )
    gateway = GatewayProcess(process, file, state, secret)
    try:
        assert process.stderr is not None
        async with asyncio.timeout(READY_S), httpx2.AsyncClient(timeout=READY_S) as http:
            while not (ready := re.match(rb"pointsman ready on (\S+)", await process.stderr.readline())):
                assert process.returncode is None
            gateway.url = ready[1].decode()
            asked = {"query": ["search documents"], "maxResults": 20}
            answer = await Shop(gateway, http, folder / "trace").call("tool_discovery", asked)
        found: dict[str, Any] = answer.json()["result"]["structuredContent"]
        return found
    finally:
        gateway.send_signal(signal.SIGKILL)
        await process.communicate()
