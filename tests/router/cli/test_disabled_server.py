"""A disabled server with a missing secret stops nothing, until it is enabled."""

from __future__ import annotations

from pathlib import Path

from tests.gateway_process import gateway_process
from tests.router.cli.commands import run


async def test_a_gateway_starts_without_the_secrets_of_a_disabled_server(tmp_path: Path) -> None:
    entry = {"command": "no-such-program", "env": {"KEY": "${KEY_NOT_SET}"}, "enabled": False}
    async with gateway_process(tmp_path, {"servers": {"off": entry}}) as gateway:
        before = gateway.config_file.read_text()
        listed = await run(tmp_path, "server", "list")
        enabled = await run(tmp_path, "server", "enable", "off")
        after = gateway.config_file.read_text()
    assert "disabled" in listed.stdout
    assert (enabled.code, "KEY_NOT_SET is not set" in enabled.stderr) == (2, True), enabled.stderr
    assert before == after
    tried = await run(tmp_path, "server", "test", "off", "--config", "pointsman.yaml")
    assert (tried.code, "KEY_NOT_SET is not set" in tried.stderr) == (2, True), tried.stderr
    tried = await run(tmp_path, "server", "test", "off", "--config", "pointsman.yaml", KEY_NOT_SET="k")
    assert (tried.code, "there is no such program" in tried.stderr) == (1, True), tried.stderr
