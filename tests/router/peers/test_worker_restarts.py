"""Workers that are started again: with what the others have, whatever was written to the file since."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.peers.cluster import KEY, TOKEN, Cluster
from tests.router.peers.test_workers import (
    CONNECTIONS,
    LONG_S,
    command,
    numbered_processes_of,
    processes_of,
    pytestmark,
    replicas_of,
    spread,
)
from tests.router.raw_client import Speaker

__all__ = ["pytestmark"]

OTHER_TOKEN = "ptm_" + "o" * 40


@asynccontextmanager
async def two_workers(folder: Path, **config: Any) -> AsyncIterator[Cluster]:
    """Two workers without servers."""
    settings = {"workers": 2, **config}
    async with gateway_process(folder, settings, token=TOKEN) as gateway:
        yield Cluster([gateway], None, None, None, folder, folder, 0, settings)  # type: ignore[arg-type]


async def kill(cluster: Cluster, *pids: int) -> None:
    """Kill workers, and wait until two others than these answer."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(LONG_S):
        while True:
            if all(not Path(f"/proc/{pid}").exists() for pid in pids) and len(await _ready(cluster)) == 2:
                return
            await asyncio.sleep(0.1)


async def _ready(cluster: Cluster) -> list[int]:
    """The workers that answer; none, while all of them are started."""
    told = await command(cluster, "status", "--json")
    return [one["status"]["process"] for one in told.json["replicas"] if "status" in one] if told.code == 0 else []


async def healths(gateway: GatewayProcess, token: str = TOKEN) -> list[dict[str, Any]]:
    """What connections to all workers get from `/health`."""
    found = []
    for _ in range(CONNECTIONS):
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http:
            found.append((await http.get(f"{gateway.base_url}/health")).json())
    return found


@pytest.mark.parametrize(
    "edit",
    [
        {"state": {"request_keys": [KEY]}},
        {"workers": 1, "state": {"request_keys": [KEY], "database": "postgresql://nobody@127.0.0.1:1/none"}},
        {"listen": {"host": "127.0.0.2"}},
    ],
    ids=["keys", "database", "address"],
)
async def test_keys_that_are_read_at_the_start_are_those_of_all_workers(tmp_path: Path, edit: dict[str, Any]) -> None:
    async with two_workers(tmp_path) as cluster:
        gateway, pids = cluster.gateways[0], await numbered_processes_of(cluster)
        warning = f"`{'listen.host' if 'listen' in edit else 'state'}` has changed; that takes effect at the next start"
        async with spread(gateway, "legacy") as before:
            gateway.write_config({**cluster.settings, **edit})
            await _until_logged_by_both(gateway, warning)
            await kill(cluster, pids[1])
            for _ in range(CONNECTIONS):
                assert "result" in await before.message("tools/list")  # its id is accepted everywhere
        async with spread(gateway, "legacy") as after:
            for _ in range(CONNECTIONS):
                assert "result" in await after.message("tools/list")
        assert {each["replicas"]["living"] for each in await healths(gateway)} == {2}
        assert len(await replicas_of(gateway)) == 2
        assert gateway.stderr.count(warning) == 3  # the one that was started again says it, too


async def test_no_worker_that_is_started_again_signs_clients_in_alone(tmp_path: Path) -> None:
    """The authorization server is built at a start that has `listen.public_url`."""
    async with two_workers(tmp_path) as cluster:
        gateway = cluster.gateways[0]
        gateway.write_config({**cluster.settings, "listen": {"public_url": "http://127.0.0.1:4000"}})
        await _until_logged_by_both(gateway, "configuration reloaded from")
        await kill(cluster, (await numbered_processes_of(cluster))[1])
        async with httpx2.AsyncClient(limits=httpx2.Limits(max_keepalive_connections=0)) as http:
            url = f"{gateway.base_url}/.well-known/oauth-authorization-server"
            assert {(await http.get(url)).status_code for _ in range(CONNECTIONS)} == {404}


async def test_a_rejected_edit_leaves_workers_that_are_started_again_with_the_last_valid_configuration(
    tmp_path: Path,
) -> None:
    """Of a file whose start, last valid edit and rejected edit differ."""
    tokens = {name: _entry(token) for name, token in (("test", TOKEN), ("other", OTHER_TOKEN))}
    async with two_workers(tmp_path, tokens=tokens) as cluster:
        gateway = cluster.gateways[0]
        gateway.write_config({**cluster.settings, "projects": {"later": {}}})
        await _until_logged_by_both(gateway, "configuration reloaded from")
        gateway.config_file.write_text(gateway.config_file.read_text() + "\nservers: [oops\n")
        await _until_logged_by_both(gateway, "rejected the new configuration; the running one stays in effect")
        for count in (1, 2):
            await kill(cluster, *(await processes_of(cluster))[:count])
            for project in ("later", ""):
                assert {await _status(gateway, TOKEN, project) for _ in range(CONNECTIONS)} == {200}
            assert {await _status(gateway, OTHER_TOKEN) for _ in range(CONNECTIONS)} == {200}
            found = [each["configuration"] for each in await healths(gateway)]
            assert all("The last edit was rejected (" in each for each in found)
        examined = (await command(cluster, "doctor")).stdout
        assert examined.count("The last edit was rejected (") == 2
        gateway.write_config({**cluster.settings, "projects": {"mended": {}}})
        async with asyncio.timeout(LONG_S):
            while {await _status(gateway, TOKEN, "mended") for _ in range(CONNECTIONS)} != {200}:
                await asyncio.sleep(0.05)
        assert not [each for each in await healths(gateway) if "configuration" in each]
        assert "ended with code" not in gateway.stderr


async def test_a_worker_that_is_started_again_accepts_no_token_that_the_others_have_withdrawn(tmp_path: Path) -> None:
    """Even if the rejected file has the token again: a rejected file never adds one."""
    tokens = {name: _entry(token) for name, token in (("test", TOKEN), ("other", OTHER_TOKEN))}
    async with two_workers(tmp_path, tokens=tokens) as cluster:
        gateway, wrong = cluster.gateways[0], {"shop": {"comand": "true"}}
        gateway.write_config({**cluster.settings, "tokens": {"test": tokens["test"]}, "servers": wrong})
        await _until_logged_by_both(gateway, "withdrew tokens that the rejected configuration no longer has: `other`")
        for again in ({"test": tokens["test"]}, tokens):
            gateway.write_config({**cluster.settings, "tokens": again, "servers": wrong})
            await kill(cluster, *await processes_of(cluster))
            assert {await _status(gateway, TOKEN) for _ in range(CONNECTIONS)} == {200}
            assert {await _status(gateway, OTHER_TOKEN) for _ in range(CONNECTIONS)} == {401}


async def test_a_command_for_a_secret_does_not_run_again_for_a_worker_that_is_started_again(tmp_path: Path) -> None:
    script, ran = tmp_path / "secret.sh", tmp_path / "ran"
    script.write_text(f"#!/bin/sh\necho x >>{ran}\necho secret\n")
    script.chmod(0o755)
    entry = {"url": "http://127.0.0.1:1/mcp", "headers": {"X-Key": f"${{cmd:{script}}}"}}
    async with two_workers(tmp_path, servers={"shop": entry}) as cluster:
        before = ran.read_text()
        await kill(cluster, *await processes_of(cluster))
        assert ran.read_text() == before


def _entry(token: str) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(token.encode()).hexdigest(), "projects": ["*"], "servers": ["*"]}


async def _until_logged_by_both(gateway: GatewayProcess, text: str) -> None:
    async with asyncio.timeout(LONG_S):
        while gateway.stderr.count(text) < 2:
            await asyncio.sleep(0.02)


async def _status(gateway: GatewayProcess, token: str, project: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} | ({"X-Pointsman-Project": project} if project else {})
    async with httpx2.AsyncClient() as http:
        one = Speaker("modern", http, gateway.url, headers)
        body, head = one._body("tools/list", {}), one._head("tools/list", {})
        return (await http.post(one.url, content=json.dumps(body), headers=head)).status_code
