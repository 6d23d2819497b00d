"""Each client lists the two tools, discovers one and executes it, set up as docs/guide/clients.md says."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.e2e.clients.installed import (
    LANGCHAIN,
    NODE_BIN,
    NODE_FOLDER,
    PYTHON,
    ROOT,
    environment,
    needs_langchain,
    needs_node,
    needs_python,
)
from tests.e2e.clients.snippets import blocks, snippet
from tests.gateway_process import GatewayProcess, gateway_process

CLIENT_S = 60.0  # a bound against hanging
CLOCK = Path(__file__).parent / "clock_server.py"
DRIVERS = Path(__file__).parent / "drivers"  # what a test does with the client that a block has set up
FOUND = "time:get_current_time"
ANSWER = "It is 21:00 in Asia/Tokyo"
TOOLS = ["tool_discovery", "tool_execute"]


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    config = {"servers": {"time": {"command": sys.executable, "args": [str(CLOCK)]}}}
    async with gateway_process(tmp_path_factory.mktemp("gateway"), config) as running:
        yield running


async def output(*command: str | Path, cwd: Path, env: dict[str, str], stdin: str = "") -> str:
    """What a program prints, which must succeed."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), CLIENT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"{err.decode()}\n{out.decode()}"
    return out.decode()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_a_program_without_a_library(gateway: GatewayProcess, tmp_path: Path) -> None:
    env = environment(tmp_path, POINTSMAN_TOKEN=gateway.token)
    said = await output("sh", "-c", snippet("curl", gateway.base_url), cwd=tmp_path, env=env)
    result = json.loads(said)["result"]
    assert ANSWER in json.dumps(result["structuredContent"]["result"])


class TestTypeScript:
    pytestmark = needs_node

    async def visit(self, gateway: GatewayProcess, home: Path, code: str) -> dict[str, Any]:
        env = environment(home, POINTSMAN_TOKEN=gateway.token)
        # A program on stdin finds its imports from the working directory, where the clients are installed.
        node = (NODE_BIN / "node", "--input-type=module", "-")
        said = await output(*node, cwd=NODE_FOLDER, env=env, stdin=code + (DRIVERS / "use_typescript.mjs").read_text())
        report: dict[str, Any] = json.loads(said)
        assert (report["tools"], report["found"], report["answer"]) == (TOOLS, FOUND, ANSWER)
        return report

    async def test_version_1_over_http(self, gateway: GatewayProcess, tmp_path: Path) -> None:
        report = await self.visit(gateway, tmp_path, snippet("typescript-v1", gateway.base_url))
        assert report["version"] == "2025-11-25"

    async def test_version_1_over_sse(self, gateway: GatewayProcess, tmp_path: Path) -> None:
        await self.visit(gateway, tmp_path, snippet("typescript-v1-sse", gateway.base_url))

    @pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
    async def test_version_2_in_both_eras(
        self, mode: str, version: str, gateway: GatewayProcess, tmp_path: Path
    ) -> None:
        code = snippet("typescript-v2", gateway.base_url).replace('mode: "auto"', f'mode: "{mode}"')
        report = await self.visit(gateway, tmp_path, code)
        assert report["version"] == version


class TestPython:
    async def visit(self, gateway: GatewayProcess, home: Path, python: Path, client: str) -> None:
        (home / "setup_block.py").write_text(snippet(client, gateway.base_url))
        env = environment(home, POINTSMAN_TOKEN=gateway.token, PYTHONPATH=str(home), PYTHONDONTWRITEBYTECODE="1")
        program = DRIVERS / f"use_{client.replace('-', '_')}.py"
        report = json.loads(await output(python, program, cwd=home, env=env))
        assert sorted(report["tools"]) == TOOLS
        assert report["found"] == FOUND
        assert ANSWER in report["answer"]

    @pytest.mark.parametrize("client", ["fastmcp", "pydantic-ai", "openai-agents"])
    @needs_python[0]
    @needs_python[1]
    async def test_clients_on_the_sdk_of_today(self, client: str, gateway: GatewayProcess, tmp_path: Path) -> None:
        await self.visit(gateway, tmp_path, PYTHON, client)

    @needs_langchain[0]
    @needs_langchain[1]
    async def test_langchain_on_the_sdk_of_before(self, gateway: GatewayProcess, tmp_path: Path) -> None:
        await self.visit(gateway, tmp_path, LANGCHAIN, "langchain")


class TestCommands:
    pytestmark = needs_node

    async def test_the_inspector_on_the_command_line(self, gateway: GatewayProcess, tmp_path: Path) -> None:
        env = environment(tmp_path, POINTSMAN_TOKEN=gateway.token)
        said = await output("bash", "-e", cwd=NODE_FOLDER, env=env, stdin=snippet("inspector", gateway.base_url))
        assert all(f'"{name}"' in said for name in TOOLS)
        assert FOUND in said
        assert ANSWER in said

    async def test_mcp_remote_for_clients_that_start_commands(self, gateway: GatewayProcess, tmp_path: Path) -> None:
        entry = started_by("mcp-remote", gateway)
        await visit_command(entry["command"], entry["args"], environment(tmp_path, **entry["env"]), NODE_FOLDER)


async def test_our_own_bridge_for_clients_that_start_commands(gateway: GatewayProcess, tmp_path: Path) -> None:
    entry = started_by("stdio", gateway)
    own = {"POINTSMAN_CONFIG": str(gateway.config_file), "POINTSMAN_STATE_DIR": str(gateway.state_dir)}
    assert Path(entry["command"]).is_absolute()  # an app on the desktop has no PATH to find it with
    bridge = Path(sys.executable).parent / Path(entry["command"]).name
    await visit_command(str(bridge), entry["args"], environment(tmp_path, **entry["env"], **own), tmp_path)


def test_every_block_of_the_page_is_run_by_a_test() -> None:
    source = Path(__file__).read_text()
    assert not [name for name in blocks() if f'"{name}"' not in source]


SIGN_IN_PAGE = ROOT / "docs" / "guide" / "sign-in-clients.md"
SIGNING_IN = {
    "Claude Code": "@anthropic-ai/claude-code",
    "Codex": "@openai/codex",
    "OpenCode": "opencode-ai",
    "MCP Inspector": "@modelcontextprotocol/inspector",
    "mcp-remote": "mcp-remote",
    "TypeScript SDK": "@modelcontextprotocol/client",
    "FastMCP": "fastmcp-slim[client]",
}


def test_the_page_names_the_versions_that_sign_in() -> None:
    folder = Path(__file__).parent
    versions: dict[str, str] = {}
    for package in (folder / "node/package.json", folder.parent / "agents/node/package.json"):
        versions |= json.loads(package.read_text())["dependencies"]
    versions |= dict(re.findall(r"^(\S+)==(\S+)$", (folder / "python/requirements.txt").read_text(), re.MULTILINE))
    section = SIGN_IN_PAGE.read_text().partition("### Tried with real clients")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|*]+?)(?: \*)? \| ([0-9.]+) \|", section, re.MULTILINE)
    assert dict(rows) == {title: versions[package] for title, package in SIGNING_IN.items()}


def started_by(name: str, gateway: GatewayProcess) -> dict[str, Any]:
    """The entry of a block with `mcpServers`."""
    block = snippet(name, gateway.base_url).replace("ptm_...", gateway.token)
    entry: dict[str, Any] = json.loads(block)["mcpServers"]["pointsman"]
    return entry


async def visit_command(command: str, args: list[str], env: dict[str, str], cwd: Path) -> None:
    start = StdioServerParameters(command=command, args=args, env=env, cwd=cwd)
    async with asyncio.timeout(CLIENT_S), Client(stdio_client(start), mode="legacy") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
        discovery = await client.call_tool("tool_discovery", {"query": ["what is the current time in Tokyo"]})
        assert (discovery.structured_content or {})["results"][0]["toolKey"] == FOUND
        arguments = {"toolKey": FOUND, "arguments": {"timezone": "Asia/Tokyo"}}
        executed = await client.call_tool("tool_execute", arguments)
        assert executed.content[0].type == "text"
        assert executed.content[0].text == ANSWER
