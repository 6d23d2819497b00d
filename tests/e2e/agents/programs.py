"""Coding agents from npm: how each is pointed at the gateway and at the scripted model, and run once unattended."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.program import run_program

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / ".foreign" / "agents"
NODE_BIN = FOLDER / "node_modules" / "node" / "bin"  # of its own: Claude Code needs Node 22
BIN = FOLDER / "node_modules" / ".bin"
RUN_S = 240.0  # a bound against hanging

needs_agents = [
    pytest.mark.clients,
    pytest.mark.skipif(
        not (FOLDER / ".installed").exists(),
        reason="the agents in .foreign/agents are not installed (run `make clients`)",
    ),
]

Json = dict[str, Any]


@dataclass(frozen=True)
class Places:
    """What a setup is made of: the gateway, the model, and folders of the agent's own."""

    gateway_url: str | None  # None: `pointsman client add` writes the entry
    token: str
    model_url: str
    home: Path
    work: Path

    def servers(self, **more: Any) -> dict[str, Any]:
        """The agent's MCP servers; `more` is what its entry has besides the token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return {} if self.gateway_url is None else {"pointsman": {"headers": headers, **more}}


@dataclass(frozen=True)
class Run:
    """One run of an agent: its command line and what it has in its environment."""

    command: list[str]
    environment: dict[str, str]


Setup = Callable[[Places, str], Run]


async def run(setup: Setup, places: Places, prompt: str) -> str:
    """What the agent prints. It must succeed."""
    places.home.mkdir(parents=True, exist_ok=True)
    places.work.mkdir(parents=True, exist_ok=True)
    one = setup(places, prompt)
    env = agent_environment(places.home) | one.environment
    ended = await run_program(*one.command, cwd=places.work, limit_s=RUN_S, env=env)
    assert ended.code == 0, f"{ended.err}\n{ended.out}"
    return ended.out


def agent_environment(home: Path) -> dict[str, str]:
    path = f"{NODE_BIN}:{BIN}:{os.environ.get('PATH', '')}"
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8"}


def claude_code(places: Places, prompt: str) -> Run:
    servers = places.servers(type="http", url=places.gateway_url)
    allowed = "mcp__pointsman__tool_discovery,mcp__pointsman__tool_execute"
    command = ["claude", "-p", prompt]
    command += ["--mcp-config", json.dumps({"mcpServers": servers})] if servers else []
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    model = {"ANTHROPIC_BASE_URL": places.model_url, "ANTHROPIC_API_KEY": "x"}
    return Run([*command, "--allowedTools", allowed], quiet | model)


def codex(model: str) -> Setup:
    """`model` decides whether Codex shows MCP tools or hides them behind its own search."""

    def setup(places: Places, prompt: str) -> Run:
        folder = places.home / ".codex"
        folder.mkdir(exist_ok=True)
        url = places.gateway_url
        entry = f'[mcp_servers.pointsman]\nurl = "{url}"\nbearer_token_env_var = "POINTSMAN_TOKEN"\n' if url else ""
        (folder / "config.toml").write_text(
            f'model = "{model}"\nmodel_provider = "scripted"\napproval_policy = "never"\n'
            f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{places.model_url}/v1"\n'
            f'env_key = "SCRIPTED_KEY"\nwire_api = "responses"\n{entry}'
        )
        command = ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt]
        return Run(command, {"SCRIPTED_KEY": "x", "POINTSMAN_TOKEN": places.token})

    return setup


def opencode(places: Places, prompt: str) -> Run:
    model = {"name": "scripted", "tool_call": True}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "scripted", "models": {"m": model}}
    provider["options"] = {"baseURL": f"{places.model_url}/v1", "apiKey": "x"}
    servers = places.servers(type="remote", url=places.gateway_url, enabled=True)
    settings = {"model": "scripted/m", "small_model": "scripted/m", "autoupdate": False, "share": "disabled"}
    settings |= {"provider": {"scripted": provider}, "mcp": servers}
    (places.work / "opencode.json").write_text(json.dumps(settings))
    switches = ("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD")
    return Run(["opencode", "run", prompt], {f"OPENCODE_DISABLE_{switch}": "1" for switch in switches})


def gemini(places: Places, prompt: str) -> Run:
    folder = places.home / ".gemini"
    folder.mkdir(exist_ok=True)
    servers = places.servers(httpUrl=places.gateway_url, trust=True)
    settings: Json = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": False}}
    settings |= {"general": {"disableAutoUpdate": True}, "mcpServers": servers}
    (folder / "settings.json").write_text(json.dumps(settings))
    model = {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": places.model_url}
    command = ["gemini", "-p", prompt, "-m", "gemini-2.5-pro", "--yolo"]
    return Run(command, model | {"GEMINI_CLI_TRUST_WORKSPACE": "true"})


def copilot(places: Places, prompt: str) -> Run:
    folder = places.home / ".copilot"
    folder.mkdir(exist_ok=True)
    servers = places.servers(type="http", url=places.gateway_url, tools=["*"], deferTools="never")
    (folder / "mcp-config.json").write_text(json.dumps({"mcpServers": servers}))
    provider = {"BASE_URL": f"{places.model_url}/v1", "TYPE": "openai", "WIRE_API": "completions", "API_KEY": "x"}
    environment = {f"COPILOT_PROVIDER_{key}": value for key, value in provider.items()}
    environment |= {"COPILOT_OFFLINE": "true", "COPILOT_MODEL": "gpt-5.4"}
    return Run(["copilot", "-p", prompt, "--allow-all-tools", "--no-auto-update"], environment)


SEARCHING_CODEX = "codex, a model that searches"  # Codex hides MCP tools from models that can search
AGENTS: dict[str, Setup] = {
    "claude code": claude_code,
    SEARCHING_CODEX: codex("gpt-5.5"),
    "codex": codex("gpt-5.2"),
    "opencode": opencode,
    "gemini": gemini,
    "copilot": copilot,
}
