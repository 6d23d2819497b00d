"""Real coding agents with their default settings find, run and use a tool behind the gateway; the model is scripted."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.agents.model import CLIENT_SEARCHES, Model, Searches, serving
from tests.e2e.agents.programs import AGENTS, SEARCHING_CODEX, Places, needs_agents, run
from tests.e2e.foreign_servers import (
    a_repository,
    everything_server,
    filesystem_server,
    git_server,
    needs_npm,
    needs_pypi,
    time_server,
)
from tests.gateway_process import GatewayProcess, gateway_process

pytestmark = [*needs_agents, *needs_pypi, *needs_npm]

TASKS = {
    "convert the time 21:00 from one timezone to another": (
        "time:convert_time",
        {"source_timezone": "UTC", "time": "21:00", "target_timezone": "Asia/Tokyo"},
        "06:00",
    ),
    "read the text of the file notes.txt": ("files:read_text_file", {"path": "notes.txt"}, "remember the milk"),
    "show the commit log of the git repository": ("git:git_log", {"repo_path": "repository"}, "Forty-two commits"),
    "echo a message back": ("everything:echo", {"message": "ahoy"}, "ahoy"),
}
EVERYDAY = Path(__file__).parent / "everyday_server.py"
REQUESTS = [  # what people ask for; one of the tools of the everyday servers fits each
    "weather forecast",
    "stripe refund customer",
    "take browser screenshot",
    "send a slack message",
    "query the postgres database",
    "create a jira ticket",
    "read my calendar for tomorrow",
    "search the company wiki",
    "list open pull requests",
    "translate a document",
    "resize an image",
    "book a meeting room",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agents")
    (folder / "gateway").mkdir()
    (folder / "notes.txt").write_text("remember the milk")
    a_repository(folder / "repository", "Forty-two commits")
    return folder


@pytest.fixture(scope="module")
async def gateway(folder: Path) -> AsyncIterator[GatewayProcess]:
    servers = {
        "time": time_server(),
        "files": filesystem_server(folder),
        "git": git_server(folder / "repository"),
        "everything": everything_server(),
    }
    for service in ("office", "shop", "web"):
        servers[service] = {"command": sys.executable, "args": [str(EVERYDAY), service]}
    async with gateway_process(folder / "gateway", {"servers": servers}) as running:
        for server in servers:
            await running.until_logged(f"server {server} is running")
        yield running


def places(gateway: GatewayProcess, model: Model, home: Path) -> Places:
    return Places(gateway.url, gateway.token, model.url, home / "home", home / "work")


@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_discovers_executes_and_answers(
    name: str, gateway: GatewayProcess, folder: Path, tmp_path: Path
) -> None:
    keys = {key: _absolute(arguments, folder) for key, arguments, _ in TASKS.values()}
    task = list(TASKS)[list(AGENTS).index(name) % len(TASKS)]
    with serving(Model(keys)) as model:
        answer = await run(AGENTS[name], places(gateway, model, tmp_path), f"Do this. TASK: {task}")
    assert TASKS[task][2] in answer
    assert answer.lstrip().startswith("DONE") or "DONE: " in answer


@pytest.mark.parametrize("name", [name for name in AGENTS if name != SEARCHING_CODEX])
async def test_the_model_has_both_tools_from_its_first_turn(name: str, gateway: GatewayProcess, tmp_path: Path) -> None:
    with serving(Model({})) as model:
        await run(AGENTS[name], places(gateway, model, tmp_path), "Do this. TASK: weather forecast")
    first = next(turn for turn in model.turns if turn.task and turn.tools)
    assert first.named("tool_discovery")
    assert first.named("tool_execute")


async def test_the_search_of_a_client_leads_to_the_two_tools(gateway: GatewayProcess, tmp_path: Path) -> None:
    with serving(Searches(REQUESTS)) as model:
        await run(AGENTS[SEARCHING_CODEX], places(gateway, model, tmp_path), "Do this. TASK: all requests")
    last = model.turns[-1]
    assert any(search in last.tools for search in CLIENT_SEARCHES)
    found = [request for request, (_, result) in zip(REQUESTS, last.results, strict=True) if "tool_discovery" in result]
    assert found == REQUESTS


def _absolute(arguments: dict[str, str], folder: Path) -> dict[str, str]:
    return {name: str(folder / value) if name in ("path", "repo_path") else value for name, value in arguments.items()}
