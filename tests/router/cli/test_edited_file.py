"""Which configuration a command edits: the one that was named, that of the running gateway, or the usual one."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx2
import pytest

from pointsman.config.loader import load
from pointsman.router.owner.client import ask
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.cli.commands import Ran, run

OTHER = "# of another gateway\nservers: {}\n"
Elsewhere = Callable[..., Awaitable[Ran]]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    async with gateway_process(tmp_path / "gateway", {"servers": {}, "projects": {"red": {}}}) as running:
        yield running


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name in ("gateway", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "elsewhere/pointsman.yaml").write_text(OTHER)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    """Run a command in a folder with a `pointsman.yaml` that the running gateway does not use."""

    async def run_there(*args: str) -> Ran:
        return await run(tmp_path / "elsewhere", *args, POINTSMAN_STATE_DIR=str(tmp_path / "gateway/state"))

    return run_there


async def _status(gateway: GatewayProcess, token: str) -> int:
    request = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
        return (await http.post(gateway.url, json=request, headers=headers)).status_code


async def test_every_command_edits_the_file_of_the_running_gateway(
    gateway: GatewayProcess, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    """A token is valid when the command that creates it has ended, and refused when it is revoked."""
    other = tmp_path / "elsewhere/pointsman.yaml"
    created = await elsewhere("token", "create", "zz", "--project", "*", "--server", "*")
    assert created.code == 0, created.stderr
    assert f"The running gateway uses {gateway.config_file}, and so does this command" in created.stderr
    assert str(other) in created.stderr
    assert await _status(gateway, created.stdout.strip()) != 401
    assert {row["name"] for row in (await elsewhere("token", "list", "--json")).json} == {"test", "zz"}
    assert (await elsewhere("token", "revoke", "zz")).code == 0
    assert await _status(gateway, created.stdout.strip()) == 401

    added = await elsewhere("client", "add", "cursor", "--yes")
    assert added.code == 0, added.stderr
    assert f"A token `cursor` is created in {gateway.config_file}." in added.stderr
    client_file = tmp_path / "elsewhere/.cursor/mcp.json"
    [entry] = json.loads(client_file.read_text())["mcpServers"].values()
    assert entry["url"] == gateway.url
    secret = entry["headers"]["Authorization"].removeprefix("Bearer ")
    assert await _status(gateway, secret) != 401
    assert (await elsewhere("client", "undo", "cursor")).code == 0
    assert await _status(gateway, secret) == 401

    client_file.write_text(json.dumps({"mcpServers": {"later": {"command": "no-such-program-here"}}}))
    imported = await elsewhere("import", "--from", "cursor", "--yes")
    assert imported.code == 0, imported.stderr
    assert "No gateway runs" not in imported.stderr
    assert [one["id"] for one in (await elsewhere("server", "list", "--json")).json["servers"]] == ["later"]
    assert (await elsewhere("import", "--undo")).code == 0
    assert (await elsewhere("server", "list", "--json")).json["servers"] == []
    assert other.read_text() == OTHER


async def test_a_file_that_is_named_is_edited_and_the_difference_is_said_once(
    gateway: GatewayProcess, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere/pointsman.yaml"
    for args in (("project", "set", "new", "--create"), ("token", "create", "zz"), ("server", "add", "x", "uvx")):
        ran = (
            await elsewhere(*args, "--config", str(other))
            if args[0] != "server"
            else await elsewhere("server", "add", "--config", str(other), "x", "uvx")
        )
        assert ran.code == 0, ran.stderr
        assert f"The running gateway uses another configuration, {gateway.config_file}" in ran.stderr
        assert "No gateway runs" not in ran.stderr
    config = load(other, {})
    assert (list(config.projects), list(config.tokens), list(config.servers)) == (["new"], ["zz"], ["x"])
    shown = await elsewhere("client", "add", "cursor", "--dry-run", "--config", str(other))
    assert "http://127.0.0.1:3282/mcp" in shown.stderr  # its own address, not that of the other gateway


async def test_a_token_for_a_file_that_the_gateway_rejects_is_printed_with_the_reason(
    gateway: GatewayProcess, elsewhere: Elsewhere
) -> None:
    broken = gateway.config_file.read_text().replace('"tokens"', '"limits": {"nonsense": 1}, "tokens"')
    gateway.config_file.write_text(broken)
    await gateway.until_logged("limits.nonsense")
    created = await elsewhere("token", "create", "zz", "--project", "*", "--server", "*")
    assert (created.code, created.stdout.startswith("ptm_")) == (1, True)
    assert "the running gateway keeps the previous configuration" in created.stderr
    revoked = await elsewhere("token", "revoke", "test")
    assert (revoked.code, "keeps the previous configuration" in revoked.stderr) == (0, True)
    assert "The running gateway rejects the token from now on." in revoked.stderr


async def test_without_a_gateway_the_usual_file_is_edited(elsewhere: Elsewhere, tmp_path: Path) -> None:
    ran = await elsewhere("token", "create", "zz", "--project", "*")
    assert ran.code == 0, ran.stderr
    assert list(load(tmp_path / "elsewhere/pointsman.yaml", {}).tokens) == ["zz"]


async def test_a_project_that_does_not_exist_is_named_before_anything_changes(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    for args in (
        ("token", "create", "zz", "--project", "nope"),
        ("client", "add", "cursor", "--project", "nope", "--yes"),
        ("client", "add", "cursor", "--project", "nope", "--dry-run"),
        ("server", "add", "x", "--project", "nope", "uvx"),
        ("project", "set", "nope", "--exposure", "flat"),
    ):
        ran = await elsewhere(*args)
        assert ran.code in (1, 2)
        assert "No project `nope` in" in ran.stderr
        assert "`pointsman project set nope --create` creates it" in ran.stderr
        assert "is created in" not in ran.stderr
    assert (tmp_path / "elsewhere/pointsman.yaml").read_text() == OTHER
    assert not (tmp_path / "elsewhere/.cursor").exists()


@pytest.mark.parametrize("length", [1100, 70_000])
async def test_a_name_that_is_too_long_is_refused_with_the_limit(elsewhere: Elsewhere, length: int) -> None:
    for args in (("token", "create"), ("server", "add"), ("project", "set", "--create")):
        ran = await elsewhere(*args, "a" * length, *(("uvx",) if args[0] == "server" else ()))
        assert (ran.code, "must have at most 64 characters" in ran.stderr) == (2, True)
        assert len(ran.stderr) < 2000


async def test_a_test_of_a_server_says_that_the_last_edit_was_rejected(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": ["-S", "-c", "raise SystemExit(3)"]}
    async with gateway_process(tmp_path, {"servers": {"bad": server}}) as gateway:
        good = gateway.config_file.read_text()
        gateway.config_file.write_text("servers: {bad: {command: 7, commandd: x}}\n")
        await asyncio.to_thread(ask, gateway.state_dir, "reload")
        tested = await run(tmp_path, "server", "test", "bad")
        assert "It was tried as the gateway runs it now. The last edit was rejected" in " ".join(tested.stderr.split())
        gateway.config_file.write_text(good)
        await asyncio.to_thread(ask, gateway.state_dir, "reload")
        assert "rejected" not in (await run(tmp_path, "server", "test", "bad")).stderr
