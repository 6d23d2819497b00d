"""A server that hangs is shown as not answering, and as running as soon as it answers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.e2e.processes import descendants
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.cli.commands import run
from tests.router.conftest import WORKSHOP, Shop, workshop

LONG_S = 60.0
LIMITS = {"list_max_age_s": 0.1}
TIMEOUTS = {"list_s": 0.5, "call_s": 0.5}


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    entry = {**workshop(tmp_path / "trace"), "timeouts": TIMEOUTS}
    async with (
        gateway_process(tmp_path, {"servers": {"shop": entry}, "limits": LIMITS}) as gateway,
        httpx2.AsyncClient(timeout=LONG_S) as http,
    ):
        yield Shop(gateway, http, tmp_path / "trace")


def child(gateway: GatewayProcess, program: Path = WORKSHOP) -> int:
    [pid] = [pid for pid, command in descendants(gateway.pid).items() if str(program) in command]
    return pid


async def health(shop: Shop) -> dict[str, str]:
    answer = await shop.http.get(f"{shop.gateway.base_url}/health", headers=shop.gateway.headers)
    found: dict[str, str] = answer.json()["servers"]["shop"]
    return found


async def until(shop: Shop, state: str) -> dict[str, str]:
    async with asyncio.timeout(LONG_S):
        while (found := await health(shop))["state"] != state:
            await asyncio.sleep(0.05)
    return found


async def test_a_hung_server_is_shown_everywhere_until_it_answers_again(shop: Shop, tmp_path: Path) -> None:
    assert (await health(shop))["state"] == "running"
    os.kill(child(shop.gateway), signal.SIGSTOP)
    tried = await run(tmp_path, "server", "test", "shop")
    assert tried.code == 1
    assert "is not answering: it has answered nothing since 20" in tried.stderr
    assert "pointsman server restart shop" in tried.stderr
    found = await health(shop)
    assert found["state"] == "not answering"
    assert found["since"] in found["reason"]
    for command in ("status", "server list"):
        shown = await run(tmp_path, *command.split())
        assert "not answering" in shown.stdout, command
        assert found["since"] in shown.stdout
    doctor = await run(tmp_path, "doctor")
    assert (doctor.code, "`pointsman server restart shop`" in doctor.stdout) == (1, True), doctor.stdout
    assert "Server `shop` does not answer" in doctor.stdout
    os.kill(child(shop.gateway), signal.SIGCONT)
    assert "reason" not in await until(shop, "running")
    tried = await run(tmp_path, "server", "test", "shop")
    assert (tried.code, "is running with 8 tools" in tried.stdout) == (0, True), tried.stderr
    assert (await shop.execute("shop:colour")).get("isError") is not True


async def test_calls_without_an_answer_make_a_server_silent_and_a_long_call_does_not(shop: Shop) -> None:
    assert (await shop.execute("shop:hang"))["isError"]  # it answers everything else
    await asyncio.sleep(1)
    assert (await health(shop))["state"] == "running"
    assert (await shop.execute("shop:colour")).get("isError") is not True
    os.kill(child(shop.gateway), signal.SIGSTOP)
    assert (await shop.execute("shop:colour"))["isError"]
    await until(shop, "not answering")
    os.kill(child(shop.gateway), signal.SIGCONT)
    await until(shop, "running")


async def test_after_a_restart_the_new_process_is_asked_and_not_the_hung_one(tmp_path: Path) -> None:
    entry = {**workshop(tmp_path / "trace"), "timeouts": {"list_s": LONG_S}}
    async with (
        gateway_process(tmp_path, {"servers": {"shop": entry}, "limits": LIMITS}) as gateway,
        httpx2.AsyncClient(timeout=2 * LONG_S) as http,
    ):
        shop = Shop(gateway, http, tmp_path / "trace")
        hung = child(gateway)
        os.kill(hung, signal.SIGSTOP)
        asked = asyncio.create_task(shop.call("tool_discovery", {"query": "paint an object"}))
        await asyncio.sleep(0.5)  # its list is being fetched, from the process that hangs
        restarted = await run(tmp_path, "server", "restart", "shop")
        assert (restarted.code, "is running with 8 tools" in restarted.stdout) == (0, True), restarted.stderr
        assert (await health(shop))["state"] == "running"
        found = (await asyncio.wait_for(asked, LONG_S / 2)).json()["result"]["structuredContent"]
        assert found["results"][0]["toolKey"] == "shop:paint"
        async with asyncio.timeout(LONG_S):
            while hung in descendants(gateway.pid):
                await asyncio.sleep(0.05)


async def test_a_server_without_tools_is_asked_with_a_ping(tmp_path: Path) -> None:
    script = tmp_path / "prompts.py"
    script.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    message = json.loads(line)\n"
        "    if message.get('method') == 'initialize':\n"
        "        said = {'result': {'protocolVersion': '2025-11-25', 'capabilities': {'prompts': {}},"
        " 'serverInfo': {'name': 'p', 'version': '1'}}}\n"
        "    else:\n"
        "        said = {'error': {'code': -32601, 'message': 'no'}}\n"
        "    if 'id' in message:\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': message['id'], **said}), flush=True)\n"
    )
    entry = {"command": "python3", "args": ["-S", str(script)], "timeouts": TIMEOUTS}
    async with gateway_process(tmp_path, {"servers": {"words": entry}}) as gateway:
        well = await run(tmp_path, "server", "test", "words")
        assert (well.code, "is running with 0 tools" in well.stdout) == (0, True), well.stderr
        os.kill(child(gateway, script), signal.SIGSTOP)
        hung = await run(tmp_path, "server", "test", "words")
    assert (hung.code, "is not answering" in hung.stderr) == (1, True), hung.stderr
