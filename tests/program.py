"""Runs a program to its end, within a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str  # empty if it went to `out`


async def run_program(
    *command: str | Path,
    cwd: Path,
    limit_s: float,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    merged: bool = False,
) -> Ended:
    """Wait until the program ends; with `merged`, stderr is in `out`.

    Raises:
        TimeoutError: it did not end in time, and was killed.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=env,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT if merged else asyncio.subprocess.PIPE,
    )
    try:
        given = None if stdin is None else stdin.encode()
        out, err = await asyncio.wait_for(process.communicate(given), limit_s)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(errors="replace"), (err or b"").decode(errors="replace"))
