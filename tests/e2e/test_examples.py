"""Every setup under examples/ starts as its README says, and an assistant uses what it promises."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.client import Assistant
from tests.e2e.foreign_servers import NPM, PYPI, everything_over, needs_npm, needs_pypi
from tests.gateway_process import own_environment

EXAMPLES = Path(__file__).parents[2] / "examples"
READY = re.compile(r"ready on (http://\S+)")
BOUND_S = 90.0

pytestmark = [*needs_pypi, *needs_npm]


@dataclass(frozen=True)
class Running:
    url: str
    secrets: tuple[str, ...]  # of the tokens that the README's commands made, in order


@asynccontextmanager
async def following(folder: Path, block: int, given: Mapping[str, str]) -> AsyncIterator[Running]:
    """Type the README's n-th shell block: its last line serves, `export` lines get the test's values."""
    *before, serve = _commands(folder, block)
    environment = _environment(folder) | dict(given)
    secrets: list[str] = []
    for line in before:
        if line.startswith("export "):
            assert {word.partition("=")[0] for word in shlex.split(line)[1:]} <= set(given)
            continue
        done = await asyncio.to_thread(
            subprocess.run, ["bash", "-ec", line], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        secrets += re.findall(r"ptm_[\w-]{43}", done.stdout)
    process = await asyncio.create_subprocess_exec(
        *shlex.split(serve), cwd=folder, env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    drain = None
    try:
        async with asyncio.timeout(BOUND_S):
            said = ""
            while not (ready := READY.search(said)):
                line = (await process.stderr.readline()).decode()
                assert line, said
                said += line
        drain = asyncio.create_task(process.stderr.read())
        yield Running(ready[1], tuple(secrets))
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        if drain is not None:
            await drain


def _commands(folder: Path, block: int) -> list[str]:
    found = re.findall(r"```sh\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    return [line for line in found[block].splitlines() if line]


def _environment(folder: Path) -> dict[str, str]:
    """An empty home, and `uvx` and `npx` that start what `make foreign` installed instead of fetching it."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    _script(programs / "uvx", f'program=$1; shift; exec "{PYPI}/$program" "$@"')
    _script(programs / "npx", f'shift; program=mcp-${{1##*/}}; shift; exec "{NPM}/$program" "$@"')
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    return own_environment(folder) | {"PATH": path, "POINTSMAN_PORT": "0", "POINTSMAN_STATE_DIR": str(folder / "state")}


def _script(file: Path, body: str) -> None:
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)


@asynccontextmanager
async def assistant(url: str, secret: str) -> AsyncIterator[Assistant]:
    async with (
        asyncio.timeout(BOUND_S),
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {secret}"}, timeout=BOUND_S) as http,
        Client(streamable_http_client(url, http_client=http), mode="auto") as client,
    ):
        yield Assistant(client)


async def until_found(model: Assistant, query: str, tool_key: str) -> None:
    """Servers may still be starting."""
    while tool_key not in await model.found(query):
        await asyncio.sleep(0.1)


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / request.param, tmp_path / request.param))


@pytest.mark.parametrize("example", ["one-person"], indirect=True)
async def test_one_person_has_a_clock_notes_and_an_archive(example: Path) -> None:
    async with following(example, 0, {}) as running, assistant(running.url, *running.secrets) as model:
        await until_found(model, "what time is it in Tokyo", "time:get_current_time")
        await until_found(model, "write a file", "notes:write_file")
        await until_found(model, "search my documents", "archive:documents_search")
        note = example / "notes/today.txt"
        await model.text("notes:write_file", path=str(note), content="hello")
        assert note.read_text() == "hello"
        assert await model.refusal("notes:move_file", source=str(note), destination="x") == "unknown_tool"


@pytest.mark.parametrize("example", ["team"], indirect=True)
async def test_a_team_sees_by_project_what_its_tokens_open(example: Path) -> None:
    async with AsyncExitStack() as stack:
        entry = await stack.enter_async_context(everything_over("streamableHttp"))
        given = {"TRACKER_URL": entry["url"], "TRACKER_TOKEN": "a-secret"}
        running = await stack.enter_async_context(following(example, 0, given))
        anna, ben = running.secrets
        base = running.url.removesuffix("/mcp")
        async with assistant(f"{base}/projects/research/mcp", anna) as model:
            await until_found(model, "echo a message", "tracker:echo")
            assert "hello" in await model.text("tracker:echo", message="hello")
        async with assistant(f"{base}/projects/support/mcp", ben) as model:
            await until_found(model, "what time is it in Tokyo", "time:get_current_time")
            assert await model.refusal("tracker:echo", message="hello") == "unknown_tool"
        refused = httpx2.get(f"{base}/projects/research/mcp", headers={"Authorization": f"Bearer {ben}"})
        assert refused.status_code == 403


@pytest.mark.parametrize("example", ["cloud-search"], indirect=True)
async def test_a_gateway_asks_the_shared_search_service(example: Path) -> None:
    async with following(example, 0, {}) as service:
        given = {"SEARCH_URL": service.url, "SEARCH_TOKEN": service.secrets[0]}
        async with following(example, 1, given) as running:
            base = running.url.removesuffix("/mcp")
            async with assistant(f"{base}/projects/research/mcp", running.secrets[0]) as model:
                await until_found(model, "what time is it in Tokyo", "time:get_current_time")
                assert "notice" not in await model.discover("what time is it in Tokyo")


@pytest.mark.parametrize("example", ["code-archive"], indirect=True)
async def test_an_archive_of_a_code_base_finds_code_and_documents(example: Path) -> None:
    project = example / "app"
    (project / "docs").mkdir(parents=True)
    (project / "main.py").write_text("def plan_route():\n    return 1\n")
    (project / "docs/queues.md").write_text("# Queues\n\nWe chose the durable queue because messages must survive.\n")
    async with (
        following(example, 0, {"PROJECT_DIR": str(project)}) as running,
        assistant(running.url, *running.secrets) as model,
    ):
        await until_found(model, "search the code for a pattern", "archive:grep_codebase")
        assert "main.py" in await model.text("archive:grep_codebase", pattern="plan_route")
        assert "durable queue" in await model.text("archive:documents_search", query="why the durable queue")
