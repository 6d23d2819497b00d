"""Processes that die: a server's child, and the gateway itself. The bundled archive is the server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.client import assistant
from tests.e2e.processes import alive, descendants, gone
from tests.gateway_process import GatewayProcess, gateway_process

pytestmark = pytest.mark.new_interpreter

ARCHIVE = {"servers": {"archive": {"bundled": "archive"}}}
SEARCH = "archive:search_index"
STUBBORN = """
import json, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    asked = json.loads(line)
    about = {"serverInfo": {"name": "stubborn", "version": "1"}, "capabilities": {"tools": {}}, "tools": []}
    if "id" in asked:
        result = {"protocolVersion": "2025-06-18", **about}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
pathlib.Path(sys.argv[1]).touch()
time.sleep(60)
"""


def archive_child(gateway: GatewayProcess) -> int:
    found = [pid for pid, command in descendants(gateway.pid).items() if "pointsman.archive" in command]
    assert len(found) == 1, found
    return found[0]


async def test_a_killed_server_is_started_again_and_answers(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, ARCHIVE) as gateway, assistant(gateway) as model:
        await model.text_when_back(SEARCH, query="")
        first = archive_child(gateway)
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(20):
            said = json.loads(await model.text_when_back(SEARCH, query="anything"))
        assert said["total_matches"] == 0
        assert archive_child(gateway) != first


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_a_gateway_that_is_asked_to_end_exits_0_and_takes_its_children_along(
    how: signal.Signals, tmp_path: Path
) -> None:
    async with gateway_process(tmp_path, ARCHIVE) as gateway:
        async with assistant(gateway) as model:
            await model.text_when_back(SEARCH, query="")
        children = set(descendants(gateway.pid))
        assert children
        assert await gateway.stop(how) == 0
        await gone(children)


async def test_a_second_signal_ends_the_gateway_at_once_however_far_it_is(tmp_path: Path) -> None:
    script, closed = tmp_path / "stubborn.py", tmp_path / "closed"
    script.write_text(STUBBORN)
    config = {"servers": {"stubborn": {"command": sys.executable, "args": ["-S", str(script), str(closed)]}}}
    async with gateway_process(tmp_path, config) as gateway:
        gateway.send_signal(signal.SIGINT)
        async with asyncio.timeout(20):
            while not closed.exists():  # the gateway has drained, and waits for its servers now
                await asyncio.sleep(0.01)
        assert await gateway.stop(signal.SIGINT) == 128 + signal.SIGINT
    assert "Aborted" not in gateway.stderr


async def test_a_killed_gateway_leaves_no_orphans(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, ARCHIVE) as gateway:
        async with assistant(gateway) as model:
            await model.text_when_back(SEARCH, query="")
        children = set(descendants(gateway.pid))
        assert archive_child(gateway) in children
        await gateway.stop(signal.SIGKILL)
        await gone(children)


async def test_a_second_run_serves_on_the_state_of_a_killed_first_one(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, ARCHIVE) as first:
        async with assistant(first) as model:
            await model.text_when_back(SEARCH, query="")
        await first.stop(signal.SIGKILL)
    async with gateway_process(tmp_path, ARCHIVE) as second:
        note = json.loads((second.state_dir / "gateway.json").read_text())
        assert note == {"url": second.url, "pid": second.pid, "configuration": str(second.config_file)}
        assert alive(second.pid)
        async with assistant(second, "legacy") as model:
            await model.text_when_back(SEARCH, query="")
            assert SEARCH in await model.found("search an index of documents")
