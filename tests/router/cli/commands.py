"""Runs `pointsman` commands as a person or a script does."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
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
