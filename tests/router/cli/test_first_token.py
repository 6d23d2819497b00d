"""The first token is never lost: what fails writes nothing, and what was never used is replaced and shown."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from pointsman.config.loader import load
from pointsman.config.secrets import digest
from tests.gateway_process import own_environment

LIMIT_S = 60.0  # against hanging
SECRET = re.compile(r"ptm_[\w-]{43}")
COMMANDS = {"gateway": ("serve",), "search service": ("search-api", "serve")}
FILES = {"gateway": "pointsman.yaml", "search service": "search-api.yaml"}
programs = pytest.mark.parametrize("program", COMMANDS)


async def start(home: Path, *args: str, command: Sequence[str] = ("serve",)) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", *command, *args),
        cwd=home,
        env=own_environment(home),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )


async def failed(home: Path, *args: str, command: Sequence[str] = ("serve",)) -> str:
    """What a start says that must end by itself, with exit code 1 or 2."""
    process = await start(home, *args, command=command)
    _, said = await asyncio.wait_for(process.communicate(), LIMIT_S)
    assert process.returncode in (1, 2), said
    return said.decode()


@asynccontextmanager
async def ready(home: Path, *args: str, command: Sequence[str] = ("serve",)) -> AsyncIterator[tuple[str, str]]:
    """A start that gets ready: what it said until then, and its base URL."""
    process = await start(home, "--port", "0", *args, command=command)
    assert process.stderr is not None
    said = ""
    try:
        async with asyncio.timeout(LIMIT_S):
            while not (found := re.search(r"ready on (http://[\d.]+:\d+)", said)):
                line = (await process.stderr.readline()).decode()
                assert line, said
                said += line
        yield said, found[1]
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(LIMIT_S):
            await process.communicate()
        assert process.returncode == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def status(url: str, secret: str) -> int:
    """Of a request that only an accepted token may make."""
    async with httpx2.AsyncClient(timeout=LIMIT_S) as http:
        return (await http.get(f"{url}/health", headers={"Authorization": f"Bearer {secret}"})).status_code


def shown(said: str) -> str:
    secrets: set[str] = set(SECRET.findall(said))
    [secret] = secrets
    return secret


def own_files(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())


@programs
async def test_a_start_on_a_taken_port_writes_no_configuration_and_the_next_one_shows_its_token(
    program: str, tmp_path: Path
) -> None:
    command = COMMANDS[program]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = await failed(tmp_path, "--port", str(taken.getsockname()[1]), command=command)
    assert "is taken by another program" in said
    assert "`POINTSMAN_PORT=3290 make run`" in said
    assert not list(tmp_path.rglob("*.yaml"))
    async with ready(tmp_path, command=command) as (said, url):
        assert "This is the first start" in said
        assert await status(url, shown(said)) == 200


async def test_a_start_without_a_usable_state_folder_writes_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = await failed(tmp_path, "--port", "0", "--state-dir", str(tmp_path / "file" / "state"))
    assert "Choose another one with --state-dir" in said
    assert own_files(tmp_path) == ["file"]
    async with ready(tmp_path) as (said, url):
        assert await status(url, shown(said)) == 200


@programs
async def test_a_start_that_is_interrupted_before_the_ready_line_loses_no_token(program: str, tmp_path: Path) -> None:
    command, file = COMMANDS[program], tmp_path / ".config/pointsman" / FILES[program]
    process = await start(tmp_path, "--port", "0", command=command)
    async with asyncio.timeout(LIMIT_S):
        while not file.exists():
            await asyncio.sleep(0.001)
        process.send_signal(signal.SIGINT)
        await process.communicate()
    async with ready(tmp_path, command=command) as (said, url):
        assert "was never used" in said
        assert await status(url, shown(said)) == 200


@programs
async def test_a_token_that_was_never_used_is_replaced_at_the_next_start(program: str, tmp_path: Path) -> None:
    command, file = COMMANDS[program], tmp_path / ".config/pointsman" / FILES[program]
    async with ready(tmp_path, command=command) as (said, url):
        old = shown(said)
        assert await status(url, "ptm_guess") == 401
    before = file.read_text()
    async with ready(tmp_path, command=command) as (said, url):
        new = shown(said)
        assert new != old
        assert "The token of an earlier start was never used" in said
        assert "This is the first start" not in said
        assert file.read_text().replace('"', "") == before.replace(digest(old), digest(new)).replace('"', "")
        assert await status(url, old) == 401
        assert await status(url, new) == 200
    async with ready(tmp_path, command=command) as (said, url):
        assert not SECRET.search(said)
        assert "Welcome" not in said
        assert await status(url, new) == 200


async def test_whoever_has_made_another_token_is_not_shown_a_new_first_one(tmp_path: Path) -> None:
    async with ready(tmp_path) as (said, _):
        assert shown(said)
        process = await start(tmp_path, "cursor", "--yes", command=("client", "add"))
        assert await asyncio.wait_for(process.wait(), LIMIT_S) == 0
        first = shown(said)
    async with ready(tmp_path) as (said, url):
        assert not SECRET.search(said)
        assert "Nothing has used the first token, `first`, yet. It stays valid" in said
        assert "`pointsman token revoke first`" in said
        assert await status(url, first) == 200
    async with ready(tmp_path) as (said, _):
        assert "first token" not in said


async def test_the_marker_is_private_and_goes_with_the_first_use(tmp_path: Path) -> None:
    marker = tmp_path / ".local/state/pointsman/first-token.json"
    async with ready(tmp_path) as (said, url):
        assert stat.S_IMODE(marker.stat().st_mode) == 0o600
        assert shown(said) not in marker.read_text()
        assert await status(url, shown(said)) == 200
        assert not marker.exists()


async def test_a_token_for_a_project_that_does_not_exist_counts_as_used(tmp_path: Path) -> None:
    async with ready(tmp_path) as (said, url), httpx2.AsyncClient(timeout=LIMIT_S) as http:
        secret = shown(said)
        headers = {"Authorization": f"Bearer {secret}", "X-Pointsman-Project": "misspelt"}
        assert (await http.get(f"{url}/health", headers=headers)).status_code == 403
    async with ready(tmp_path) as (said, url):
        assert not SECRET.search(said)
        assert await status(url, secret) == 200


async def test_the_owner_may_rename_narrow_or_remove_the_token(tmp_path: Path) -> None:
    file = tmp_path / ".config/pointsman/pointsman.yaml"
    async with ready(tmp_path) as (said, _):
        shown(said)
    file.write_text(file.read_text().replace("  first:\n", "  mine:  # my own name\n").replace("listen:", "listen :"))
    async with ready(tmp_path) as (said, _):
        hash_now = load(file, {}).tokens["mine"].sha256
        assert hash_now == digest(shown(said))
        assert "# my own name" in file.read_text()
    other = "ptm_" + "x" * 43
    file.write_text(file.read_text().replace(hash_now, digest(other)))
    async with ready(tmp_path) as (said, url):
        assert not SECRET.search(said)
        assert await status(url, other) == 200
        assert not (tmp_path / ".local/state/pointsman/first-token.json").exists()


async def test_another_configuration_on_the_same_state_folder_leaves_the_marker_alone(tmp_path: Path) -> None:
    async with ready(tmp_path) as (said, _):
        shown(said)
    (tmp_path / "other.yaml").write_text("servers: {}\n")
    async with ready(tmp_path, "--config", "other.yaml") as (said, _):
        assert not SECRET.search(said)
    async with ready(tmp_path) as (said, _):
        assert "was never used" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_configuration_that_cannot_be_changed_stays_and_the_log_says_what_to_do(tmp_path: Path) -> None:
    async with ready(tmp_path) as (said, _):
        shown(said)
    folder = tmp_path / ".config/pointsman"
    folder.chmod(0o500)
    try:
        async with ready(tmp_path) as (said, _):
            assert not SECRET.search(said)
            assert "could not be replaced" in said
            assert "pointsman token create NAME" in said
    finally:
        folder.chmod(0o700)


async def test_the_gateway_inside_stdio_leaves_the_first_token_to_a_start_that_can_show_it(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", "stdio"),
        cwd=tmp_path,
        env=own_environment(tmp_path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + "\n"
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line.encode())
    async with asyncio.timeout(LIMIT_S):
        assert b'"serverInfo"' in await process.stdout.readline()
        process.stdin.close()
        said = await process.communicate()
    assert not SECRET.search(said[1].decode())
    async with ready(tmp_path) as (log, url):
        assert await status(url, shown(log)) == 200


async def test_search_service_and_gateway_each_create_their_own_file(tmp_path: Path) -> None:
    folder = tmp_path / ".config/pointsman"
    async with ready(tmp_path, command=("search-api", "serve")) as (said, url):
        assert await status(url, shown(said)) == 200
    assert [path.name for path in folder.iterdir()] == ["search-api.yaml"]
    async with ready(tmp_path) as (said, url):
        assert "This is the first start" in said
        assert await status(url, shown(said)) == 200
    assert load(folder / "pointsman.yaml", {}).servers
    async with ready(tmp_path, command=("search-api", "serve")) as (said, _):
        assert "Welcome" not in said


async def test_a_file_with_the_search_services_section_goes_on_working(tmp_path: Path) -> None:
    secret = "ptm_" + "y" * 43
    tokens = {"first": {"sha256": digest(secret), "projects": ["*"]}}
    (tmp_path / "pointsman.yaml").write_text(json.dumps({"search_api": {"provider": "bm25"}, "tokens": tokens}))
    async with ready(tmp_path, command=("search-api", "serve")) as (said, url):
        assert "Welcome" not in said
        assert await status(url, secret) == 200
    said = await failed(tmp_path, "--port", "0")
    assert "pointsman.yaml configures only the search service" in said
    assert "pointsman search-api serve --config" in said
    (tmp_path / "pointsman.yaml").write_text(json.dumps({"search_api": {}, "servers": {}, "tokens": tokens}))
    async with ready(tmp_path) as (_, url):
        assert await status(url, secret) == 200
