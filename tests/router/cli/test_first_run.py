"""The first five minutes: no configuration, one command, a token that is shown once, and a clean end."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from tests.gateway_process import own_environment

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@asynccontextmanager
async def bare_start(home: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """`pointsman serve` for a person who has nothing; yields the process and what it said until it was ready."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", "serve", "--port", "0"),
        cwd=home,
        env=own_environment(home),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    said = ""
    try:
        async with asyncio.timeout(30):
            while "pointsman ready on" not in said:
                line = (await process.stderr.readline()).decode()
                assert line, said
                said += line
        yield process, said
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_first_start_makes_all_that_is_needed_and_shows_the_token_once(tmp_path: Path) -> None:
    async with bare_start(tmp_path) as (process, said):
        [url] = set(re.findall(r"http://127\.0\.0\.1:\d+/mcp", said))
        [token] = set(re.findall(r"ptm_[\w-]{43}", said))
        assert (
            f'claude mcp add --scope user --transport http pointsman {url} --header "Authorization: Bearer {token}"'
            in said
        )
        config = tmp_path / ".config/pointsman/pointsman.yaml"
        assert stat.S_IMODE(config.stat().st_mode) == 0o600
        assert token not in config.read_text()
        async with httpx2.AsyncClient() as http:
            headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
            hello = await http.post(url, json=HELLO, headers=headers)
            assert hello.json()["result"]["serverInfo"]["name"] == "pointsman"
            health = (await http.get(url.replace("/mcp", "/health"), headers=headers)).json()
        assert health["servers"]["archive"]["state"] in ("starting", "running")
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 0

    async with bare_start(tmp_path) as (_, said):
        assert "ptm_" not in said
        assert "Welcome" not in said


async def test_a_second_daemon_on_the_same_state_is_told_who_is_there(tmp_path: Path) -> None:
    async with bare_start(tmp_path) as (first, _):
        second = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "pointsman", "serve", "--port", "0"),
            cwd=tmp_path,
            env=own_environment(tmp_path),
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await asyncio.wait_for(second.communicate(), 30)
        assert second.returncode == 1
        assert f"process {first.pid}" in said.decode()
        assert "--state-dir" in said.decode()
        note = json.loads((tmp_path / ".local/state/pointsman/gateway.json").read_text())
        assert note["pid"] == first.pid


async def test_a_broken_configuration_ends_with_2_and_every_problem(tmp_path: Path) -> None:
    (tmp_path / "pointsman.yaml").write_text("lisen: {port: 1}\nservers:\n  clock: {comand: x}\n")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", "serve"),
        cwd=tmp_path,
        env=own_environment(tmp_path),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 2
    lines = said.decode().splitlines()
    assert any("pointsman.yaml:1:1: lisen:" in line and "did you mean `listen`?" in line for line in lines)
    assert any("pointsman.yaml:3:11: servers.clock.comand:" in line for line in lines)
