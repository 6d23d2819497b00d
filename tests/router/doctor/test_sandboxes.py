"""Sandboxes as the operator sees them: in the status of a gateway, in `pointsman doctor`, and from pasted blocks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.errors import ConfigError
from pointsman.config.loader import parse
from pointsman.router.clients.found_servers import of_text
from pointsman.router.downstream.stdio.sandbox import this_host
from pointsman.router.owner.changes import require_literal
from pointsman.router.owner.channel import OwnerError
from tests.gateway_process import gateway_process
from tests.router.cli.commands import run
from tests.router.doctor.test_seeded_faults import configure, doctor, findings, problem

SERVER = Path(__file__).parents[2] / "servers" / "escaping_server.py"


def entry(**more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", str(SERVER)], **more}


def usable() -> None:
    host = this_host()
    if host.bwrap is None and host.abilities["network_namespace"]:
        pytest.skip(f"{host.bwrap_problem}, and {host.abilities['network_namespace']}")


async def test_the_status_and_the_doctor_say_why_a_server_is_not_started(tmp_path: Path) -> None:
    usable()
    (tmp_path / "out").mkdir()
    servers = {
        "good": entry(sandbox={"write": ["out"]}),
        "bad": entry(sandbox={"read": [str(tmp_path)]}),  # holds the state folder
    }
    async with gateway_process(tmp_path, {"servers": servers}, without=["bad"]) as gateway:
        gateway.config_file.chmod(0o600)
        listed = {one["id"]: one for one in (await run(tmp_path, "server", "list", "--json")).json["servers"]}
        ran = await doctor(tmp_path)
        tested = await run(tmp_path, "server", "test", "bad")
    assert f"`{tmp_path}` of `sandbox.read` would let it reach" in listed["bad"]["reason"]
    assert "it is not started before that" in " ".join(tested.stderr.split())
    assert "tries it again" not in tested.stderr
    assert listed["good"]["state"] == "running"
    assert "would let it reach the state folder" in listed["bad"]["reason"]
    assert "would let it reach the state folder" in problem(ran, "servers")
    [found] = findings(ran, "sandbox")  # the other one is reported already
    assert found["level"] == "ok"
    assert found["message"].startswith("Server `good` is confined by ")


async def test_the_doctor_finds_a_sandbox_that_cannot_be_enforced_without_a_gateway(tmp_path: Path) -> None:
    configure(tmp_path, servers={"bad": entry(sandbox={"read": ["nothing"]})})
    message = problem_of_sandbox(await doctor(tmp_path))
    assert (
        message
        == f"Server `bad` does not start: `{tmp_path}/nothing` of `sandbox.read` does not exist. Create it, or correct "
        "the path."
    )
    validated = await run(tmp_path, "config", "validate")
    assert validated.code == 0
    assert f"`{tmp_path}/nothing` of `sandbox.read` does not exist" in " ".join(validated.stderr.split())
    configure(tmp_path, servers={"bad": entry(sandbox={"write": [str(tmp_path)]})})
    validated = await run(tmp_path, "config", "validate", "--json")
    assert any("would let it reach the state folder" in one for one in validated.json["advice"])


async def test_a_script_beside_the_configuration_is_named_with_the_line_to_write(tmp_path: Path) -> None:
    """The sandbox shows the folder of a script, but not the one with the configuration."""
    usable()
    script = tmp_path / "server.py"
    script.write_bytes(SERVER.read_bytes())
    own = {"command": sys.executable, "args": ["-I", "-S", str(script)], "env": {"HOME": "/nobody"}}
    servers: dict[str, dict[str, Any]] = {"own": {**own, "sandbox": {}}}
    line = f"its `sandbox` does not show `{script}` of `args`: write `sandbox: {{read: [{script}]}}`"
    async with gateway_process(tmp_path, {"servers": servers}, without=["own"]) as gateway:
        gateway.config_file.chmod(0o600)
        listed: dict[str, Any] = {"state": "starting"}
        while listed["state"] == "starting":
            [listed] = (await run(tmp_path, "server", "list", "--json")).json["servers"]
        notes = [each for each in findings(await doctor(tmp_path), "sandbox") if each["level"] == "note"]
        validated = await run(tmp_path, "config", "validate", "--json")
    assert listed["reason"].startswith(f"it exited with code 2; {line}")
    assert [each["message"] for each in notes] == [f"Server `own`: {line}."]
    assert f"Server `own`: {line}." in validated.json["advice"]
    servers["own"]["sandbox"] = {"read": [str(script)]}
    async with gateway_process(tmp_path, {"servers": servers}) as gateway:
        [listed] = (await run(tmp_path, "server", "list", "--json")).json["servers"]
    assert listed["state"] == "running"


def problem_of_sandbox(ran: Any) -> str:
    [found] = [each for each in findings(ran, "sandbox") if each["level"] == "problem"]
    return str(found["message"])


# ---------------------------------------------------------------------- blocks from elsewhere


@pytest.mark.parametrize("key", ["sandbox", "limits"])
def test_a_pasted_block_sets_no_sandbox(key: str) -> None:
    block = {"mcpServers": {"time": {"command": "uvx", key: {}}}}
    with pytest.raises(ConfigError) as refused:
        parse(json.dumps(block), "f.yaml", {})
    assert f"mcpServers.time.{key}: is not read from `mcpServers`; move the server to `servers`" in str(refused.value)


def test_an_import_takes_no_sandbox_along() -> None:
    servers = {"time": {"command": "uvx", "args": ["x"], "sandbox": {"read": ["/"], "network": True}, "limits": {}}}
    [found] = of_text(json.dumps({"mcpServers": servers}), "f", {}).servers
    assert found.server == {"command": "uvx", "args": ["x"]}


def test_a_page_sets_no_sandbox() -> None:
    with pytest.raises(OwnerError, match="`sandbox` is not accepted here"):
        require_literal({"url": "https://x.example/mcp", "sandbox": {}})
