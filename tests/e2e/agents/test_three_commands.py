"""The three commands of the README, typed in an unpacked sdist with an empty home, lead agents to a first tool call."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.agents.model import Model, serving
from tests.e2e.agents.programs import ROOT, Places, Setup, claude_code, codex, gemini, needs_agents, opencode, run
from tests.e2e.foreign_servers import PYPI, needs_pypi
from tests.e2e.test_package import build
from tests.gateway_process import own_environment
from tests.program import Ended, run_program

pytestmark = [*needs_agents, *needs_pypi]

INSTALL_S = 600.0  # bounds against hanging
COMMAND_S = 180.0
TASK = "what is the current time in Tokyo"
ARGUMENTS = {"time:get_current_time": {"timezone": "Asia/Tokyo"}}
AGENTS: dict[str, Setup] = {  # by the name that `client add` takes
    "claude-code": claude_code,
    "codex": codex("gpt-5.2"),
    "opencode": opencode,
    "gemini": gemini,
}
PARENT = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VIRTUAL_ENV", "PYTHONPATH")  # of `make clients`, not of a person


def commands() -> list[str]:
    """What the README tells people to type before its first heading."""
    opening = (ROOT / "README.md").read_text().partition("\n## ")[0]
    return [
        line
        for block in re.findall(r"^```sh\n(.*?)^```", opening, re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
    ]


def environment(home: Path) -> dict[str, str]:
    """A home with nothing in it, and a port that no other test has. Packages come from the caches of this machine."""
    caches = {"UV_CACHE_DIR": Path.home() / ".cache/uv", "PIP_CACHE_DIR": Path.home() / ".cache/pip"}
    kept = {name: value for name, value in own_environment(home).items() if name not in PARENT}
    return {name: str(folder) for name, folder in caches.items()} | kept | {"POINTSMAN_PORT": "0"}


@asynccontextmanager
async def first_terminal(line: str, copy: Path, home: Path) -> AsyncIterator[str]:
    """Type the command that starts the gateway, and Ctrl-C at the end; yields what it said until it was ready."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", line),
        cwd=copy,
        env=environment(home),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    said, drain = "", None
    try:
        async with asyncio.timeout(INSTALL_S):
            while "pointsman ready on" not in said:
                read = await process.stdout.readline()
                assert read, said
                said += read.decode()
        drain = asyncio.create_task(process.stdout.read())
        yield said
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGINT)
        await asyncio.wait_for(process.wait(), COMMAND_S)
        if drain is not None:
            await drain


async def second_terminal(line: str, copy: Path, home: Path) -> Ended:
    """Type a command, and yes to what it asks."""
    if shutil.which("uvx") is None:
        line = line.replace("uvx mcp-server-time", str(PYPI / "mcp-server-time"))
    typed = ("script", "-qec", line, "/dev/null")
    return await run_program(*typed, cwd=copy, limit_s=COMMAND_S, env=environment(home), stdin="y\n" * 3)


async def test_three_commands_lead_to_the_first_tool_call_of_each_agent(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    start, add_server, add_client = commands()
    assert add_client.split()[:4] == [".venv/bin/pointsman", "client", "add", "claude-code"]
    with tarfile.open(build(ROOT, "sdist", tmp_path)) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    [copy], home = (tmp_path / "unpacked").iterdir(), tmp_path / "home"
    home.mkdir()
    async with first_terminal(start, copy, home):
        added = await second_terminal(add_server, copy, home)
        assert added.code == 0, added.out
        assert "with 2 tools" in added.out
        for name, setup in AGENTS.items():
            with subtests.test(name):
                assert name in add_client, "the README names the agents that are tried here"
                with serving(Model(ARGUMENTS)) as model:
                    places = Places(None, "", model.url, home, tmp_path / name)
                    places.work.mkdir()
                    prepared = setup(places, f"Do this. TASK: {TASK}")  # the agent is there before the gateway
                    connected = await second_terminal(add_client.replace("claude-code", name), copy, home)
                    assert connected.code == 0, connected.out
                    answer = await run(lambda _, __, prepared=prepared: prepared, places, "")  # type: ignore[misc]
                assert "DONE: " in answer
                assert "Asia/Tokyo" in answer
                assert "datetime" in answer
