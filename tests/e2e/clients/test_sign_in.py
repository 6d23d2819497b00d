"""Clients that speak OAuth sign in at the gateway's own authorization server; the owner consents in a browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.e2e.clients.installed import NODE_BIN, NODE_FOLDER, environment, needs_node
from tests.router.auth.server.office import Office, Visitor, office

CLIENT_S = 60.0  # a bound against hanging


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    async with office(tmp_path_factory.mktemp("office")) as opened:
        await opened.sign_in()
        yield opened


class TestMcpRemote:
    pytestmark = needs_node

    async def test_it_signs_in_and_calls_a_tool(self, desk: Office, tmp_path: Path) -> None:
        said = tmp_path / "stderr"
        args = ["node_modules/.bin/mcp-remote", f"{desk.base}/mcp", "--transport", "http-only"]
        start = StdioServerParameters(
            command=str(NODE_BIN / "node"), args=args, env=environment(tmp_path), cwd=NODE_FOLDER
        )
        with said.open("w") as errors:
            person = asyncio.create_task(_consent(desk, said))
            async with (
                asyncio.timeout(CLIENT_S),
                Client(stdio_client(start, errlog=errors), mode="legacy") as client,
            ):
                answer = await client.call_tool("tool_execute", {"toolKey": "shop:colour", "arguments": {}})
                assert not answer.is_error, answer
            await person
        assert desk.command("grants")["grants"][0]["answeredAt"].startswith("localhost:")


async def _consent(desk: Office, said: Path) -> None:
    """Open the address that the client prints, allow it, and follow the answer back to the client."""
    wanted = re.compile(re.escape(f"{desk.base}/oauth/authorize?") + r"\S+")
    async with asyncio.timeout(CLIENT_S):
        while (found := wanted.search(said.read_text())) is None:
            await asyncio.sleep(0.1)
        answer = await Visitor(desk, "", "").consent(await desk.http.get(found[0]))
        await desk.http.get(answer.headers["location"])
