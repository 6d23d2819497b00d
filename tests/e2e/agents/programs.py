"""Coding agents from npm: how each is pointed at the gateway and at the scripted model, and run once unattended."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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

    gateway_url: str
    token: str
    model_url: str
    home: Path
    work: Path

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


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
    path = f"{NODE_BIN}:{BIN}:{os.environ.get('PATH', '')}"
    process = await asyncio.create_subprocess_exec(
        *one.command,
        cwd=places.work,
        env={"PATH": path, "HOME": str(places.home), "LANG": "C.UTF-8", **one.environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), RUN_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"{err.decode()}\n{out.decode()}"
    return out.decode()


def claude_code(places: Places, prompt: str) -> Run:
    server = {"type": "http", "url": places.gateway_url, "headers": places.headers}
    allowed = "mcp__pointsman__tool_discovery,mcp__pointsman__tool_execute"
    command = ["claude", "-p", prompt, "--mcp-config", json.dumps({"mcpServers": {"pointsman": server}})]
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    model = {"ANTHROPIC_BASE_URL": places.model_url, "ANTHROPIC_API_KEY": "x"}
    return Run([*command, "--allowedTools", allowed], quiet | model)


def codex(model: str) -> Setup:
    """`model` decides whether Codex shows MCP tools or hides them behind its own search."""

    def setup(places: Places, prompt: str) -> Run:
        folder = places.home / ".codex"
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(
            f'model = "{model}"\nmodel_provider = "scripted"\napproval_policy = "never"\n'
            f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{places.model_url}/v1"\n'
            'env_key = "SCRIPTED_KEY"\nwire_api = "responses"\n'
            f'[mcp_servers.pointsman]\nurl = "{places.gateway_url}"\nbearer_token_env_var = "POINTSMAN_TOKEN"\n'
        )
        command = ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt]
        return Run(command, {"SCRIPTED_KEY": "x", "POINTSMAN_TOKEN": places.token})

    return setup


def opencode(places: Places, prompt: str) -> Run:
    model = {"name": "scripted", "tool_call": True}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "scripted", "models": {"m": model}}
    provider["options"] = {"baseURL": f"{places.model_url}/v1", "apiKey": "x"}
    server = {"type": "remote", "url": places.gateway_url, "headers": places.headers, "enabled": True}
    settings = {"model": "scripted/m", "small_model": "scripted/m", "autoupdate": False, "share": "disabled"}
    settings |= {"provider": {"scripted": provider}, "mcp": {"pointsman": server}}
    (places.work / "opencode.json").write_text(json.dumps(settings))
    switches = ("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD")
    return Run(["opencode", "run", prompt], {f"OPENCODE_DISABLE_{switch}": "1" for switch in switches})


def gemini(places: Places, prompt: str) -> Run:
    folder = places.home / ".gemini"
    folder.mkdir(exist_ok=True)
    server = {"httpUrl": places.gateway_url, "headers": places.headers, "trust": True}
    settings: Json = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": False}}
    settings |= {"general": {"disableAutoUpdate": True}, "mcpServers": {"pointsman": server}}
    (folder / "settings.json").write_text(json.dumps(settings))
    model = {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": places.model_url}
    command = ["gemini", "-p", prompt, "-m", "gemini-2.5-pro", "--yolo"]
    return Run(command, model | {"GEMINI_CLI_TRUST_WORKSPACE": "true"})


def copilot(places: Places, prompt: str) -> Run:
    folder = places.home / ".copilot"
    folder.mkdir(exist_ok=True)
    server = {"type": "http", "url": places.gateway_url, "headers": places.headers, "tools": ["*"]}
    servers = {"pointsman": server | {"deferTools": "never"}}
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
