"""Servers that others wrote, as `make foreign` installs them, and what a test says where they are missing."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

ROOT = Path(__file__).parents[2]
PYPI = ROOT / ".foreign" / "python" / "bin"
NPM = ROOT / ".foreign" / "node" / "node_modules" / ".bin"
PRELOAD = Path(__file__).parent / "foreign" / "loopback.cjs"
LISTENING = re.compile(rb"loopback port (\d+)")
START_S = 60.0


def _missing(*programs: Path) -> str | None:
    if any(program.parent == NPM for program in programs) and shutil.which("node") is None:
        return "Node is not installed"
    absent = [program.name for program in programs if not program.exists()]
    return f"not installed: {', '.join(absent)} (run `make foreign`)" if absent else None


def _needs(*programs: Path) -> list[pytest.MarkDecorator]:
    reason = _missing(*programs)
    return [pytest.mark.foreign, pytest.mark.skipif(reason is not None, reason=reason or "")]


needs_pypi = _needs(PYPI / "mcp-server-time", PYPI / "mcp-server-git")
needs_npm = _needs(NPM / "mcp-server-everything", NPM / "mcp-server-filesystem")


def time_server() -> dict[str, Any]:
    return {"command": str(PYPI / "mcp-server-time"), "args": ["--local-timezone", "UTC"]}


def git_server(repository: Path) -> dict[str, Any]:
    return {"command": str(PYPI / "mcp-server-git"), "args": ["--repository", str(repository)]}


def a_repository(folder: Path, message: str = "First") -> Path:
    """A git repository with one commit."""
    who = ("-c", "user.name=Test", "-c", "user.email=test@localhost")
    subprocess.run(("git", "init", "--quiet", str(folder)), check=True)
    subprocess.run(("git", *who, "commit", "--quiet", "--allow-empty", "-m", message), cwd=folder, check=True)
    return folder


def everything_server() -> dict[str, Any]:
    return {"command": str(NPM / "mcp-server-everything"), "args": ["stdio"]}


def filesystem_server(folder: Path) -> dict[str, Any]:
    return {"command": str(NPM / "mcp-server-filesystem"), "args": [str(folder)]}


def real_servers(folder: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Entries of eight servers of different kinds, and the names of those among them that are not installed."""
    folder.mkdir(exist_ok=True)
    entries = {
        "time": time_server(),
        "git": git_server(folder),
        "fetch": {"command": str(PYPI / "mcp-server-fetch")},
        "everything": everything_server(),
        "filesystem": filesystem_server(folder),
        "memory": {
            "command": str(NPM / "mcp-server-memory"),
            "env": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")},
        },
        "thinking": {"command": str(NPM / "mcp-server-sequential-thinking")},
        "browser": {"command": str(NPM / "playwright-mcp"), "args": ["--headless", "--isolated"]},
    }
    absent = [name for name, entry in entries.items() if _missing(Path(entry["command"]))]
    return {name: entry for name, entry in entries.items() if name not in absent}, absent


@asynccontextmanager
async def everything_over(transport: Literal["streamableHttp", "sse"]) -> AsyncIterator[dict[str, Any]]:
    """Run server-everything as an HTTP server of its own and yield the entry that reaches it."""
    process = await asyncio.create_subprocess_exec(
        *(str(NPM / "mcp-server-everything"), transport),
        env=os.environ | {"NODE_OPTIONS": f"--require {PRELOAD}"},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    drain = None
    try:
        port = await asyncio.wait_for(_port(process.stderr), START_S)
        drain = asyncio.create_task(process.stderr.read())  # it logs every message; a full pipe would stop it
        if transport == "sse":
            yield {"url": f"http://127.0.0.1:{port}/sse", "transport": "sse"}
        else:
            yield {"url": f"http://127.0.0.1:{port}/mcp"}
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if drain is not None:
            await drain


async def _port(stderr: asyncio.StreamReader) -> int:
    async for line in stderr:
        if found := LISTENING.search(line):
            return int(found[1])
    raise AssertionError("server-everything ended before it listened")
