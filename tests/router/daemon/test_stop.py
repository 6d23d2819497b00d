"""A gateway that is stopped while a call is under way."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.gateway_process import gateway_process
from tests.router.front.raw_http import Connection, call, initialize, request

WORKSHOP = Path(__file__).parents[2] / "servers" / "workshop.py"


async def test_the_call_of_a_client_that_has_gone_away_ends_in_peace(tmp_path: Path) -> None:
    trace, allowed = tmp_path / "trace", tmp_path / "allowed"
    servers = {"workshop": {"command": sys.executable, "args": [str(WORKSHOP), str(trace)]}}
    async with gateway_process(tmp_path, {"servers": servers}) as gateway:
        port = urlsplit(gateway.url).port
        assert port is not None
        connection = await Connection.open(port)
        connection.send(request(port, initialize(), token=gateway.token))
        session = ("Mcp-Session-Id", (await connection.answer()).headers["mcp-session-id"])
        wait = call("tool_execute", {"toolKey": "workshop:wait", "arguments": {"object": str(allowed)}})
        connection.send(request(port, wait, token=gateway.token, headers=[session]))
        async with asyncio.timeout(20):
            while not trace.exists():
                await asyncio.sleep(0.02)
        await connection.close()
        gateway.send_signal(signal.SIGTERM)
        await gateway.until_logged("waiting for 1 call to end")
        async with asyncio.timeout(20):
            while await _listens(port):
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)  # the HTTP server ends, with nobody connected
        allowed.touch()
        assert await asyncio.wait_for(gateway.process.wait(), 20) == 0
    assert "essential task" not in gateway.stderr


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
