"""After `pointsman client add NAME`, the client's own list of servers says that the gateway is connected."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.e2e.agents.model import Model, serving
from tests.e2e.agents.programs import Places, agent_environment, codex, copilot, needs_agents, run
from tests.gateway_process import GatewayProcess, gateway_process, own_environment
from tests.program import run_program

pytestmark = needs_agents

RUN_S = 120.0  # a bound against hanging
PAGE = Path(__file__).parents[3] / "docs/guide/clients.md"
CLOCK = Path(__file__).parents[1] / "clients" / "clock_server.py"
LISTS = {  # the command that lists the servers, and what it says of one that answers
    "claude-code": (["claude", "mcp", "list"], r"pointsman: .*Connected"),
    "gemini": (["gemini", "mcp", "list"], r"pointsman: .*Connected"),
    "opencode": (["opencode", "mcp", "list"], r"pointsman.*connected"),
}
SHOWING = {  # these list what is configured without a connection, so they are asked to use it
    "codex": (codex("gpt-5.2"), ["codex", "mcp", "list"], r"pointsman .*enabled"),
    "copilot": (copilot, ["copilot", "mcp", "list"], r"pointsman"),
}
FORMS = {"token": [], "variable": ["--env", "MY_TOKEN"], "stdio": ["--stdio"]}
TASK = "what is the current time in Tokyo"
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "COPILOT_OFFLINE": "true",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
}


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    config = {"servers": {"time": {"command": sys.executable, "args": [str(CLOCK)]}}}
    async with gateway_process(tmp_path_factory.mktemp("gateway"), config) as running:
        yield running


async def said(
    command: list[str], home: Path, more: Mapping[str, str] | None = None, folder: Path | None = None
) -> str:
    """All that a program prints with a home of its own. It must succeed."""
    env = agent_environment(home) | QUIET | dict(more or {})
    ended = await run_program(*command, cwd=folder or home, limit_s=RUN_S, env=env, merged=True)
    assert ended.code == 0, ended.out
    return ended.out


async def client(verb: str, name: str, gateway: GatewayProcess, home: Path, *options: str) -> None:
    files = ("--config", str(gateway.config_file), "--state-dir", str(gateway.state_dir))
    await said([sys.executable, "-P", "-m", "pointsman", "client", verb, name, "--yes", *files, *options], home)


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("form", FORMS)
async def test_the_client_says_connected(name: str, form: str, gateway: GatewayProcess, tmp_path: Path) -> None:
    await client("add", name, gateway, tmp_path, *FORMS[form])
    command, expected = LISTS[name]
    assert re.search(expected, await said(command, tmp_path, {"MY_TOKEN": gateway.token}))


@pytest.mark.parametrize("name", SHOWING)
@pytest.mark.parametrize("form", FORMS)
async def test_the_client_lists_the_gateway_and_calls_a_tool(
    name: str, form: str, gateway: GatewayProcess, tmp_path: Path
) -> None:
    setup, command, expected = SHOWING[name]
    home = tmp_path / "home"
    home.mkdir()
    keys = {"time:get_current_time": {"timezone": "Asia/Tokyo"}}
    with serving(Model(keys)) as model:
        places = Places(None, "", model.url, home, tmp_path / "work")
        prepared = setup(places, f"Do this. TASK: {TASK}")  # writes the model's settings
        await client("add", name, gateway, home, *FORMS[form])
        assert re.search(expected, await said(command, home, {"MY_TOKEN": gateway.token}))
        if name == "codex":  # which otherwise begins without servers that take longer than a second
            with (home / ".codex/config.toml").open("a") as file:
                file.write("required = true\n")
        prepared.environment["MY_TOKEN"] = gateway.token
        answer = await run(lambda _, __: prepared, places, "")
    assert "It is 21:00 in Asia/Tokyo" in answer


TYPED = {  # what shows that the command of the page took effect
    "Claude Code": LISTS["claude-code"],
    "Codex": (["codex", "mcp", "list"], r"pointsman .*POINTSMAN_TOKEN +enabled"),
    "Gemini CLI": LISTS["gemini"],
}


@pytest.mark.parametrize("title", TYPED)
async def test_the_command_of_the_page_holds_in_every_folder(
    title: str, gateway: GatewayProcess, tmp_path: Path
) -> None:
    [line] = re.findall(rf"^\| {title} \| `(\w+ mcp add [^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    await said(["bash", "-c", line.replace("URL", gateway.url).replace('TOKEN"', f'{gateway.token}"')], tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    command, expected = TYPED[title]
    assert re.search(expected, await said(command, tmp_path, {"POINTSMAN_TOKEN": gateway.token}, other))


async def test_the_line_of_the_first_start_holds_in_every_folder(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", "serve", "--port", "0"),
        cwd=tmp_path,
        env=own_environment(tmp_path),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        text = ""
        async with asyncio.timeout(RUN_S):
            while "pointsman ready on" not in text:
                text += (await process.stderr.readline()).decode()
        [line] = re.findall(r"^ *(claude mcp add .*)$", text, re.MULTILINE)
        await said(["bash", "-c", line], tmp_path)
        other = tmp_path / "other"
        other.mkdir()
        command, expected = LISTS["claude-code"]
        assert re.search(expected, await said(command, tmp_path, folder=other))
    finally:
        process.kill()
        await process.wait()


ADDED_BY = {  # how the clients write a server down themselves, which `pointsman import` must read
    "claude-code": "claude mcp add --scope user clock -e REGION=eu -- uvx mcp-server-time --local-timezone UTC",
    "codex": "codex mcp add clock --env REGION=eu -- uvx mcp-server-time --local-timezone UTC",
    "gemini": "gemini mcp add --scope user -e REGION=eu clock uvx mcp-server-time -- --local-timezone UTC",
    "copilot": "copilot mcp add clock --env REGION=eu -- uvx mcp-server-time --local-timezone UTC",
}


@pytest.mark.parametrize("name", ADDED_BY)
async def test_a_server_that_the_client_has_written_is_imported(
    name: str, gateway: GatewayProcess, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    await said(["bash", "-c", ADDED_BY[name]], tmp_path, folder=tmp_path / "work")
    files = ("--config", str(gateway.config_file), "--state-dir", str(gateway.state_dir))
    command = [sys.executable, "-P", "-m", "pointsman", "import", "--from", name, "--dry-run", "--json", *files]
    [server] = json.loads(await said(command, tmp_path))["servers"]
    assert server["server"] == {
        "command": "uvx",
        "args": ["mcp-server-time", "--local-timezone", "UTC"],
        "env": {"REGION": "eu"},
    }
