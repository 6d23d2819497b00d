"""A reload outlives what goes wrong around it: a revoked token stops working, and /health and doctor name the fault."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pointsman.config.model import GatewayConfig
from pointsman.config.secrets import digest
from pointsman.router.serving.reload import Reloader
from pointsman.router.serving.tasks import TaskSet
from tests.gateway_process import GatewayProcess, gateway_process, own_environment, write_config
from tests.search_api_process import SearchApiProcess, search_api_process

LONG_S = 60.0  # against hanging
NO_INOTIFY = ("unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"', "sh")


def _may_limit_inotify() -> bool:
    """A user namespace has its own limit of inotify instances, so that the rest of the machine keeps them."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*NO_INOTIFY, "true"], capture_output=True, check=False).returncode == 0


needs_limit = pytest.mark.skipif(not _may_limit_inotify(), reason="user namespaces are not allowed here")


@dataclass(frozen=True)
class Operator:
    """Edits the file of a daemon and looks at it from outside, with the token `stays`."""

    process: GatewayProcess | SearchApiProcess
    http: httpx2.AsyncClient
    secrets: dict[str, str]

    @property
    def file(self) -> Path:
        return self.process.config_file

    def write(self, *names: str, **more: Any) -> None:
        """The configuration with these tokens only."""
        write_config(self.file, config_of({name: self.secrets[name] for name in names}) | more, "")

    async def status(self, name: str) -> int:
        return (await self.http.get("/health", headers={"Authorization": f"Bearer {self.secrets[name]}"})).status_code

    async def health(self) -> dict[str, Any]:
        answer = await self.http.get("/health", headers={"Authorization": f"Bearer {self.secrets['stays']}"})
        report: dict[str, Any] = answer.json()
        return report

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(LONG_S):
            while not await holds():
                await asyncio.sleep(0.02)

    async def until_refused(self, name: str) -> None:
        async def refused() -> bool:
            return await self.status(name) == 401

        await self.until(refused)

    async def until_said(self, words: str) -> None:
        async def said() -> bool:
            return words in self.process.stderr

        await self.until(said)

    async def until_healthy(self) -> None:
        async def healthy() -> bool:
            return "configuration" not in await self.health()

        await self.until(healthy)

    def hang_up(self) -> None:
        os.kill(self.process.process.pid, signal.SIGHUP)


def config_of(secrets: dict[str, str]) -> dict[str, Any]:
    everything = {"projects": ["*"], "servers": ["*"]}
    return {"tokens": {name: {"sha256": digest(secret), **everything} for name, secret in secrets.items()}}


SECRETS = {"stays": "ptm_" + "s" * 43, "goes": "ptm_" + "g" * 43}


@asynccontextmanager
async def gateway(folder: Path, **options: Any) -> AsyncIterator[Operator]:
    async with (
        gateway_process(folder, config_of(SECRETS), **options) as process,
        httpx2.AsyncClient(base_url=process.base_url, timeout=20) as http,
    ):
        yield Operator(process, http, SECRETS)


@asynccontextmanager
async def search_service(folder: Path, **options: Any) -> AsyncIterator[Operator]:
    async with (
        search_api_process(folder, config_of(SECRETS), **options) as process,
        httpx2.AsyncClient(base_url=process.url, timeout=20) as http,
    ):
        yield Operator(process, http, SECRETS)


DAEMONS = pytest.mark.parametrize("daemon", [gateway, search_service])


async def doctor(folder: Path, secret: str) -> tuple[int, list[dict[str, str]]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pointsman", "doctor", "--json"),
        *("--config", str(folder / "pointsman.yaml"), "--state-dir", str(folder / "state")),
        cwd=folder,
        env=own_environment(folder) | {"POINTSMAN_TOKEN": secret},
        stdout=asyncio.subprocess.PIPE,
    )
    stdout, _ = await asyncio.wait_for(process.communicate(), LONG_S)
    assert process.returncode is not None
    return process.returncode, json.loads(stdout)["findings"]


@needs_limit
@DAEMONS
async def test_without_inotify_the_file_is_polled_and_health_says_so(daemon: Any, tmp_path: Path) -> None:
    async with daemon(tmp_path, prefix=NO_INOTIFY) as operator:
        await operator.until_said("polled every second")
        assert "Too many open files" in operator.process.stderr
        assert "polled every second" in (await operator.health())["configuration_watch"]
        operator.write("stays")
        await operator.until_refused("goes")
        assert await operator.status("stays") == 200


@needs_limit
async def test_without_inotify_sighup_and_doctor_work(tmp_path: Path) -> None:
    secret = tmp_path / "digest"
    async with gateway(tmp_path, prefix=NO_INOTIFY) as operator:
        await operator.until_said("polled every second")
        code, findings = await doctor(tmp_path, SECRETS["stays"])
        assert code == 0
        assert [each["message"] for each in findings if each["level"] == "note" and "polled" in each["message"]]
        secret.write_text(digest(SECRETS["goes"]))
        tokens = config_of(SECRETS)["tokens"]
        tokens["goes"]["sha256"] = "${file:" + str(secret) + "}"
        write_config(operator.file, {"tokens": tokens}, "")
        await operator.until_said("configuration reloaded")
        secret.write_text("0" * 64)
        operator.hang_up()
        await operator.until_refused("goes")


@pytest.mark.parametrize("kind", ["deleted", "symbolic link to itself"])
@DAEMONS
async def test_a_file_that_is_gone_is_said_until_it_is_back(daemon: Any, kind: str, tmp_path: Path) -> None:
    async with daemon(tmp_path) as operator:
        operator.file.unlink()
        if kind != "deleted":
            operator.file.symlink_to(operator.file.name)
        assert "missing or not accessible" in (await operator.health())["configuration"]
        assert await operator.status("goes") == 200
        operator.write("stays")
        await operator.until_refused("goes")
        await operator.until_healthy()


@pytest.mark.parametrize("kind", ["FIFO", "directory", "device"])
@DAEMONS
async def test_only_a_regular_file_is_read(daemon: Any, kind: str, tmp_path: Path) -> None:
    async with daemon(tmp_path) as operator:
        operator.file.unlink()
        match kind:
            case "FIFO":
                os.mkfifo(operator.file)
            case "directory":
                operator.file.mkdir()
            case "device":
                operator.file.symlink_to("/dev/zero")
        await operator.until_said(f"is a {kind}")
        assert await operator.status("goes") == 200
        assert "config validate" in (await operator.health())["configuration"]
        before = len(operator.process.lines)
        operator.hang_up()
        async with asyncio.timeout(LONG_S):
            while f"is a {kind}" not in "\n".join(operator.process.lines[before:]):
                await asyncio.sleep(0.02)
        if kind == "directory":
            operator.file.rmdir()
        else:
            operator.file.unlink()
        operator.write("stays")
        await operator.until_refused("goes")
        await operator.until_healthy()


async def test_a_reload_that_fails_half_way_revokes_the_token_and_the_next_edit_works(tmp_path: Path) -> None:
    broken = tmp_path / "packages"
    broken.mkdir()
    (broken / "aiohappyeyeballs.py").write_text("raise ImportError('this installation is broken')")
    async with gateway(tmp_path, env={"PYTHONPATH": str(broken)}) as operator:
        operator.write("stays", servers={"far": {"url": "http://127.0.0.1:1/mcp"}})
        await operator.until_refused("goes")
        await operator.until_said("this installation is broken")
        assert "Traceback" in operator.process.stderr
        await operator.until_said("could not apply the configuration")
        assert "could not apply" in (await operator.health())["configuration"]
        code, findings = await doctor(tmp_path, SECRETS["stays"])
        assert code == 1
        assert [each for each in findings if each["level"] == "problem" and "could not apply" in each["message"]]
        operator.write("stays", "goes")
        await operator.until_healthy()
        assert await operator.status("goes") == 200
        operator.write("stays")
        await operator.until_refused("goes")


async def test_a_failed_attempt_is_repeated_without_another_edit(tmp_path: Path) -> None:
    broken = tmp_path / "packages"
    broken.mkdir()
    (broken / "aiohappyeyeballs.py").write_text("raise ImportError('this installation is broken')")
    async with gateway(tmp_path, env={"PYTHONPATH": str(broken)}) as operator:
        operator.write("stays", "goes", servers={"far": {"url": "http://127.0.0.1:1/mcp"}})
        await operator.until_said("could not apply the configuration")
        (broken / "aiohappyeyeballs.py").unlink()
        shutil.rmtree(broken / "__pycache__", ignore_errors=True)
        await operator.until_healthy()
        assert "far" in (await operator.health())["servers"]


async def test_a_watch_that_fails_later_is_replaced_by_polling_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text("one")
    watches = 0
    applied: asyncio.Queue[str] = asyncio.Queue()

    async def watch(*folders: Path) -> AsyncGenerator[object]:
        """Works, then fails, and works again."""
        nonlocal watches
        watches += 1
        if watches == 1:
            yield None
            raise RuntimeError("the watch broke")
        while True:
            await asyncio.sleep(0.01)
            yield None

    async def apply(_: GatewayConfig) -> None:
        applied.put_nowait(file.read_text())

    reloader = Reloader(file, GatewayConfig, apply, GatewayConfig, watch=watch, poll_s=0.01, polls=50)
    tasks = TaskSet()
    reloader.start(tasks)
    try:
        async with asyncio.timeout(LONG_S):
            while not reloader.report().get("configuration_watch"):
                await asyncio.sleep(0.005)
            assert "the watch broke" in caplog.text
            file.write_text("another")
            assert await applied.get() == "another"
            while watches == 1:
                await asyncio.sleep(0.005)
            while reloader.report():
                await asyncio.sleep(0.005)
            file.write_text("and another")
            assert await applied.get() == "and another"
    finally:
        await tasks.close()


async def test_a_watcher_that_is_down_is_said_and_a_request_is_served_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text("one")
    applied = asyncio.Event()

    async def watch(*folders: Path) -> AsyncGenerator[object]:
        """Is cancelled by something inside."""
        raise asyncio.CancelledError
        yield

    async def apply(_: GatewayConfig) -> None:
        applied.set()

    reloader = Reloader(file, GatewayConfig, apply, GatewayConfig, watch=watch)
    tasks = TaskSet(backoff_s=3600)
    reloader.start(tasks)
    try:
        async with asyncio.timeout(LONG_S):
            while not reloader.report():
                await asyncio.sleep(0.005)
            assert "not watched" in reloader.report()["configuration"]
            assert "configuration watcher" in tasks.report()["tasks"]
            reloader.request()
            await applied.wait()
    finally:
        await tasks.close()
