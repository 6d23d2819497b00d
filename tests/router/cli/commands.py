"""Runs `pointsman` commands as a person or a script does."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gateway_process import own_environment

COMMAND_S = 120.0  # a bound against hanging


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
    process = await asyncio.create_subprocess_exec(
        *(*program, *args),
        cwd=folder,
        env=own_environment(folder) | own,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(COMMAND_S):
        out, err = await process.communicate(None if stdin is None else stdin.encode())
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())
