"""Runs `pointsman` commands as a person or a script does."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_process import own_environment
from tests.program import run_program

COMMAND_S = 120.0  # a bound against hanging
CONFIG = "# mine\nservers:\n  time: {command: uvx}   # the clock\n"


@dataclass(frozen=True)
class Ran:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


MODULE = (sys.executable, "-P", "-m", "pointsman")
SCRIPT = (str(Path(sys.executable).with_name("pointsman")),)  # whose name the shell's completion knows


async def run(
    folder: Path, *args: str, stdin: str | None = None, program: Sequence[str] = MODULE, **environ: str
) -> Ran:
    """Run a command in `folder`, with the configuration and the state folder that `gateway_process` has there."""
    own = {"POINTSMAN_STATE_DIR": str(folder / "state"), **environ}
    env = own_environment(folder) | own
    ended = await run_program(*program, *args, cwd=folder, limit_s=COMMAND_S, env=env, stdin=stdin)
    return Ran(ended.code, ended.out, ended.err)


def move_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands in this process find a configuration, and nothing else, in `home`."""
    for name in ("POINTSMAN_CONFIG", "POINTSMAN_TOKEN", "POINTSMAN_STATE_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    config_of(home).parent.mkdir(parents=True)
    config_of(home).write_text(CONFIG)


def config_of(home: Path) -> Path:
    return home / ".config/pointsman/pointsman.yaml"


async def run_on_terminal(folder: Path, *args: str, **environ: str) -> str:
    """Run a command as `run` does, with a terminal as its stdin, stdout and stderr. Return what the terminal got."""
    own = {"POINTSMAN_STATE_DIR": str(folder / "state"), "TERM": "xterm", **environ}
    ours, its = os.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *MODULE, *args, cwd=folder, env=own_environment(folder) | own, stdin=its, stdout=its, stderr=its
        )
    finally:
        os.close(its)
    try:
        shown = await asyncio.wait_for(asyncio.to_thread(_read_to_end, ours), COMMAND_S)
        await asyncio.wait_for(process.wait(), COMMAND_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
    return shown.decode(errors="replace")


def _read_to_end(terminal: int) -> bytes:
    read = b""
    with suppress(OSError):  # EIO: the last process has closed its side
        while chunk := os.read(terminal, 65_536):
            read += chunk
    return read
