"""`pointsman service`: systemd accepts the file, its command starts a gateway, and nothing is overwritten."""

from __future__ import annotations

import asyncio
import os
import plistlib
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pointsman.router.cli.common.service_file import Service, service_file
from tests.gateway_process import write_config
from tests.router.cli.commands import run

LIMIT_S = 60.0  # a bound against hanging
TOKEN = "ptm_" + "t" * 43

needs_systemd_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (Debian: apt install systemd)"
)


def unit_of(home: Path, name: str = "pointsman") -> Path:
    return home / ".config" / "systemd" / "user" / f"{name}.service"


def values(unit: str, key: str) -> list[str]:
    return [line.partition("=")[2] for line in unit.splitlines() if line.startswith(f"{key}=")]


def words(line: str) -> list[str]:
    """Split a line as systemd does."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)]


@needs_systemd_analyze
@pytest.mark.parametrize("hardened", [False, True])
def test_systemd_accepts_the_unit_and_reads_the_same_words(tmp_path: Path, hardened: bool) -> None:
    program = tmp_path / "a folder, 100% $HOME" / "pointsman"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    command = (str(program), "serve", "--state-dir", f"{tmp_path}/s t%a$te\\")
    made = Service(
        "pointsman", command, {"PATH": f"/usr/bin:{tmp_path}/$x y"}, tmp_path / "50% env", tmp_path, hardened
    )
    file = service_file(made, "systemd", {"HOME": str(tmp_path)})
    (tmp_path / "pointsman.service").write_text(file.text)
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(tmp_path / "pointsman.service")],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert tuple(words(values(file.text, "ExecStart")[0])) == command


@contextmanager
def notify_socket(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.setblocking(False)
        yield listener


async def until(listener: socket.socket, wanted: str) -> str:
    """The next message that has this line."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            message = (await asyncio.get_running_loop().sock_recv(listener, 65_536)).decode()
            if wanted in message.splitlines():
                return message


async def test_the_command_of_the_unit_runs_in_the_environment_of_systemd(tmp_path: Path) -> None:
    """With the variables of the unit alone, and with the messages that `Type=notify` waits for."""
    config = tmp_path / "conf ig" / "pointsman.yaml"
    config.parent.mkdir()
    write_config(config, {"listen": {"port": 0}, "servers": {}}, TOKEN)
    printed = await run(tmp_path, "service", "print", "--config", str(config), "--state-dir", str(tmp_path / "st ate"))
    assert printed.code == 0, printed.stderr
    given = dict(words(line)[0].partition("=")[::2] for line in values(printed.stdout, "Environment"))
    assert values(printed.stdout, "Type") == ["notify"]
    with notify_socket(tmp_path / "notify") as listener:
        process = await asyncio.create_subprocess_exec(
            *words(values(printed.stdout, "ExecStart")[0]),
            cwd=tmp_path,
            env={"HOME": str(tmp_path), **given, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"},
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            ready = await until(listener, "READY=1")
            assert f"MAINPID={process.pid}" in ready.splitlines()
            assert "STATUS=ready on http://127.0.0.1:" in ready
            await until(listener, "WATCHDOG=1")
            await until(listener, "WATCHDOG=1")
            process.send_signal(signal.SIGHUP)  # as ExecReload does
            assert "MONOTONIC_USEC=" in await until(listener, "RELOADING=1")
            await until(listener, "READY=1")
            config.write_text("nonsense: [")  # a rejected edit ends the reload, too
            await until(listener, "RELOADING=1")
            await until(listener, "READY=1")
            shown = await run(tmp_path, "status", "--json", POINTSMAN_STATE_DIR=str(tmp_path / "st ate"))
            assert shown.json["process"] == process.pid
            assert shown.json["configuration"] == str(config)
            process.terminate()
            await until(listener, "STOPPING=1")
            async with asyncio.timeout(LIMIT_S):
                assert process.stderr is not None
                said = (await process.stderr.read()).decode()
                assert await process.wait() == 0, said
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def test_a_first_start_without_a_configuration_finds_its_folder(tmp_path: Path) -> None:
    """The usual file is found by its folder, so that the unit stays the same once the file exists."""
    folder = tmp_path / "elsewhere"
    before = await run(tmp_path, "service", "print", POINTSMAN_CONFIG_DIR=str(folder))
    assert f"Environment=POINTSMAN_CONFIG_DIR={folder}" in before.stdout
    folder.mkdir()
    write_config(folder / "pointsman.yaml", {}, TOKEN)
    after = await run(tmp_path, "service", "print", POINTSMAN_CONFIG_DIR=str(folder))
    assert before.stdout == after.stdout
    (tmp_path / "pointsman.yaml").write_text("servers: {}\n")  # has precedence in the folder of the service
    other = tmp_path / "other"
    other.mkdir()
    named = await run(other, "service", "print", POINTSMAN_CONFIG_DIR=str(folder), HOME=str(tmp_path))
    assert f"serve --config {folder}/pointsman.yaml" in named.stdout


async def test_install_shows_the_file_and_the_next_commands_and_uninstall_removes_it(tmp_path: Path) -> None:
    asked = await run(tmp_path, "service", "install")
    assert (asked.code, unit_of(tmp_path).exists()) == (2, False)
    assert "add --yes" in asked.stderr
    tried = await run(tmp_path, "service", "install", "--dry-run")
    assert (tried.code, unit_of(tmp_path).exists()) == (0, False)
    assert "ExecStart=/" in tried.stderr
    assert "After the installation:" in tried.stderr
    assert "systemctl --user daemon-reload" in tried.stderr
    done = await run(tmp_path, "service", "install", "--yes")
    assert (done.code, done.stdout) == (0, "")
    for command in ("systemctl --user daemon-reload", "enable --now pointsman", "loginctl enable-linger", "journalctl"):
        assert command in done.stderr
    again = await run(tmp_path, "service", "install", "--json")
    assert (again.code, again.json["changed"]) == (0, False)
    removed = await run(tmp_path, "service", "uninstall", "--yes")
    assert (removed.code, unit_of(tmp_path).exists()) == (0, False)
    absent = await run(tmp_path, "service", "uninstall", "--yes")
    assert absent.code == 1
    assert "nothing to remove" in absent.stderr


async def test_a_file_with_other_content_is_kept(tmp_path: Path) -> None:
    unit = unit_of(tmp_path)
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/my/own\n")
    refused = await run(tmp_path, "service", "install", "--yes")
    assert refused.code == 1
    assert "--replace" in refused.stderr
    assert "-ExecStart=/my/own" in refused.stderr
    assert unit.read_text() == "[Service]\nExecStart=/my/own\n"
    foreign = await run(tmp_path, "service", "uninstall", "--yes")
    assert (foreign.code, unit.exists()) == (1, True)
    replaced = await run(tmp_path, "service", "install", "--yes", "--replace", "--json")
    assert Path(replaced.json["backup"]).read_text() == "[Service]\nExecStart=/my/own\n"
    wanted = unit.parent / "default.target.wants"
    wanted.mkdir()
    (wanted / unit.name).symlink_to(unit)  # as `systemctl enable` does
    enabled = await run(tmp_path, "service", "uninstall", "--yes")
    assert (enabled.code, unit.exists()) == (1, True)
    assert "systemctl --user disable --now pointsman" in enabled.stderr


async def test_status_says_what_is_missing(tmp_path: Path) -> None:
    absent = await run(tmp_path, "service", "status")
    assert absent.code == 1
    assert "not installed: `pointsman service install`" in absent.stdout
    await run(tmp_path, "service", "install", "--yes", "--hardened")
    ran = await run(tmp_path, "service", "status", "--json", PATH=f"{os.environ['PATH']}:{tmp_path}")
    assert ran.code == 1
    found = {key: ran.json[key] for key in ("installed", "current", "enabled", "gateway")}
    assert found == {"installed": True, "current": True, "enabled": False, "gateway": None}


async def test_variables_that_only_the_shell_has_are_named(tmp_path: Path) -> None:
    config = tmp_path / "pointsman.yaml"
    servers = {"a": {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer ${TRACKER_TOKEN}"}}}
    write_config(config, {"servers": servers}, TOKEN)
    shell = {"TRACKER_TOKEN": "verysecret", "HTTPS_PROXY": "http://proxy.example:3128"}
    ran = await run(tmp_path, "service", "install", "--yes", "--json", **shell)
    assert {"TRACKER_TOKEN", "HTTPS_PROXY"} <= set(ran.json["missingVariables"])
    assert "verysecret" not in ran.stdout + ran.stderr + unit_of(tmp_path).read_text()
    file = tmp_path / ".config" / "pointsman" / "environment"
    assert f"EnvironmentFile=-{file}" in unit_of(tmp_path).read_text()
    file.parent.mkdir(parents=True)
    file.write_text("# ours\nTRACKER_TOKEN=x\nHTTPS_PROXY=y\n")
    ran = await run(tmp_path, "service", "install", "--yes", "--json", **shell)
    assert not {"TRACKER_TOKEN", "HTTPS_PROXY"} & set(ran.json["missingVariables"])


async def test_a_name_cannot_leave_the_folder_of_units(tmp_path: Path) -> None:
    ran = await run(tmp_path, "service", "print", "--name", "../../x")
    assert ran.code == 2
    other = await run(tmp_path, "service", "print", "--name", "second", "--json")
    assert other.json["file"] == str(unit_of(tmp_path, "second"))


async def test_launchd_gets_an_agent_that_starts_the_same_command(tmp_path: Path) -> None:
    agent = plistlib.loads((await run(tmp_path, "service", "print", "--manager", "launchd")).stdout.encode())
    unit = (await run(tmp_path, "service", "print", "--manager", "systemd")).stdout
    assert agent["ProgramArguments"] == words(values(unit, "ExecStart")[0])
    assert all(Path(word).is_absolute() for word in (agent["ProgramArguments"][0], agent["WorkingDirectory"]))
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
