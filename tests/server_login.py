"""`pointsman server login` with a person at its end: a program that opens the printed link, and follows redirects."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2

LOGIN_S = 60.0  # a bound against hanging


Browse = Callable[[str], Awaitable[object]]


async def open_link(link: str) -> None:
    async with httpx2.AsyncClient(trust_env=False, follow_redirects=True, timeout=LOGIN_S) as browser:
        await browser.get(link)


async def server_login(
    state_dir: Path, server_id: str, *options: str, browse: Browse = open_link
) -> tuple[int, str, str]:
    """Sign in to a server; return the exit code and what the command printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", "server", "login", server_id, "--no-browser"),
        *("--state-dir", str(state_dir), *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(LOGIN_S):
            link = (await process.stdout.readline()).decode().strip()
            if link.startswith("http"):
                await browse(link)
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, f"{link}\n{out.decode()}", err.decode()
