"""Who may use what, seen by clients of a whole gateway with real servers behind it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import httpx2

from tests.e2e.client import assistant
from tests.e2e.foreign_servers import a_repository, git_server, needs_pypi, time_server
from tests.gateway_process import gateway_process

pytestmark = needs_pypi

CLOCK = "what time is it"
COMMITS = "show the history of commits"


def token(secret: str, **rights: list[str]) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(secret.encode()).hexdigest(), **rights}


async def test_a_tool_that_is_switched_off_looks_like_one_that_does_not_exist(tmp_path: Path) -> None:
    servers = {"clock": time_server() | {"tool_permissions": {"convert_time": False}}}
    async with gateway_process(tmp_path, {"servers": servers}) as gateway, assistant(gateway) as model:
        assert await model.found("convert a time between zones") == ["clock:get_current_time"]
        hidden = await model.execute("clock:convert_time")
        invented = await model.execute("clock:no_such_tool")
    assert (hidden.structured_content or {})["error"]["code"] == "unknown_tool"
    assert str(hidden.content).replace("convert_time", "no_such_tool") == str(invented.content)


async def test_a_caller_sees_the_servers_of_its_project_and_of_its_token_only(tmp_path: Path) -> None:
    config = {
        "projects": {"research": {}, "other": {}},
        "servers": {
            "clock": time_server() | {"projects": ["research"]},
            "git": git_server(a_repository(tmp_path / "repository")) | {"projects": ["research"]},
            "spare": time_server(),
        },
        "tokens": {
            "all": token("ptm_all", projects=["*"], servers=["*"]),
            "clock": token("ptm_clock", projects=["research"], servers=["clock"]),
        },
    }
    async with gateway_process(tmp_path, config, token="ptm_all") as gateway:
        async with assistant(gateway, project="research") as model:
            servers = {key.split(":")[0] for key in await model.found(CLOCK, COMMITS, max_results=100)}
            assert servers == {"clock", "git"}
            assert await model.refusal("spare:get_current_time", timezone="UTC") == "unknown_tool"
        async with assistant(gateway) as model:
            servers = {key.split(":")[0] for key in await model.found(CLOCK, COMMITS, max_results=100)}
            assert servers == {"spare"}
        async with assistant(gateway, token="ptm_clock", project="research") as model:
            servers = {key.split(":")[0] for key in await model.found(CLOCK, COMMITS, max_results=100)}
            assert servers == {"clock"}
            assert await model.refusal("git:git_log", repo_path=str(tmp_path)) == "unknown_tool"
        for secret, project, status in (("ptm_clock", "other", 403), ("ptm_clock", "", 403), ("ptm_wrong", "", 401)):
            assert await status_of_a_ping(gateway.url, secret, project) == status


async def status_of_a_ping(url: str, secret: str, project: str) -> int:
    headers = {
        "Authorization": f"Bearer {secret}",
        "X-Pointsman-Project": project,
        "Accept": "application/json, text/event-stream",
    }
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    async with httpx2.AsyncClient() as http:
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        return (await http.post(url, headers=headers, json=message)).status_code
