"""A gateway that runs and does not answer: commands notice it in time, and change no other gateway's configuration."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pointsman.config.loader import load
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.cli.commands import run

OTHER = "# of another gateway\nservers: {}\n"


@asynccontextmanager
async def _stopped(folder: Path) -> AsyncIterator[GatewayProcess]:
    """A gateway that was stopped as with Ctrl-Z, and a usual configuration that it does not use."""
    (folder / "pointsman.yaml").write_text(OTHER)
    (folder / "own").mkdir()
    async with gateway_process(folder / "own", {"servers": {}}) as gateway:
        gateway.send_signal(signal.SIGSTOP)
        try:
            yield gateway
        finally:
            gateway.send_signal(signal.SIGCONT)


async def test_commands_refuse_to_guess_its_configuration_and_take_the_one_that_is_named(tmp_path: Path) -> None:
    other = tmp_path / "pointsman.yaml"
    async with _stopped(tmp_path) as gateway:
        before, folder = gateway.config_file.read_text(), ("--state-dir", str(gateway.state_dir))
        added = await run(tmp_path, "server", "add", "y", *folder, "uvx", "x")
        assert (added.code, added.stdout) == (3, "")
        [line] = added.stderr.splitlines()
        assert f"(process {gateway.pid}) does not answer, and nothing was changed." in line
        assert f"pass --config {gateway.config_file}, which is its configuration." in line
        for args in (("server", "list"), ("server", "test", "y"), ("status",), ("token", "list")):
            ran = await run(tmp_path, *args, *folder)
            assert (ran.code, "No gateway runs" in ran.stderr) == (3, False), ran.stderr
            assert f"The gateway with the state folder {gateway.state_dir}" in ran.stderr
        assert (other.read_text(), gateway.config_file.read_text()) == (OTHER, before)

        named = await run(tmp_path, "server", "add", "y", "--config", str(gateway.config_file), *folder, "uvx", "x")
        assert named.code == 0, named.stderr
        [line] = named.stderr.splitlines()
        assert line.endswith(f"does not answer; it reads {gateway.config_file} when it does again.")
        assert list(load(gateway.config_file, {}).servers) == ["y"]
        elsewhere = await run(tmp_path, "server", "add", "y", "--config", str(other), *folder, "uvx", "x")
        assert elsewhere.code == 0
        [line] = elsewhere.stderr.splitlines()
        assert f"The running gateway uses another configuration, {gateway.config_file}" in line


async def test_doctor_checks_its_configuration_and_names_it_without_a_python_object(tmp_path: Path) -> None:
    async with _stopped(tmp_path) as gateway:
        told = await run(tmp_path, "doctor", "--state-dir", str(gateway.state_dir))
    assert told.code == 1
    assert f"{gateway.config_file} is in order." in told.stdout
    assert str(tmp_path / "pointsman.yaml") not in told.stdout
    assert f"(process {gateway.pid}) does not answer: no answer within 5 s. `pointsman log` may say why" in told.stdout
    assert "('" not in told.stdout


@pytest.mark.parametrize("command", ["validate", "show"])
async def test_the_configuration_of_the_running_gateway_is_the_one_in_effect(tmp_path: Path, command: str) -> None:
    (tmp_path / "pointsman.yaml").write_text(OTHER)
    (tmp_path / "own").mkdir()
    async with gateway_process(tmp_path / "own", {"servers": {}, "projects": {"red": {}}}) as gateway:
        shown = await run(tmp_path, "config", command, "--state-dir", str(gateway.state_dir))
        assert (shown.code, str(gateway.config_file) in shown.stdout) == (0, True), shown.stderr
        named = await run(tmp_path, "config", command, "--config", "pointsman.yaml")
        assert (named.code, str(gateway.config_file) in named.stdout + named.stderr) == (0, False)
