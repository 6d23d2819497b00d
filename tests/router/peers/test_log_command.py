"""`pointsman log` with replicas or workers: the logs of all that run, and of an earlier run only where it says so."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pointsman.router.cli.common.log_folders import gateway_logs
from pointsman.router.serving.log_file import log_path
from pointsman.router.serving.state_folder import locked, workers_folder
from tests.gateway_process import gateway_process, own_environment
from tests.router.cli.commands import Ran, run

LONG_S = 60.0


def sections(shown: Ran) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"": []}
    for line in shown.stdout.splitlines():
        if line.startswith("==> "):
            found[line] = []
        else:
            found[[*found][-1]].append(line)
    return found


async def of_one_gateway(folder: Path) -> None:
    """Leave the log of one process in the state folder."""
    async with gateway_process(folder, {"servers": {}}) as gateway:
        await gateway.until_logged("pointsman has ")


@pytest.mark.replicas
@pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")
async def test_the_logs_of_all_workers_are_shown_where_one_process_ran_before(tmp_path: Path) -> None:
    await of_one_gateway(tmp_path)
    async with gateway_process(tmp_path, {"servers": {}, "workers": 2}) as gateway:
        found = sections(await run(tmp_path, "log"))
        told = [json.loads(line) for line in (await run(tmp_path, "log", "--json")).stdout.splitlines()]
        second = await run(tmp_path, "log", "--state-dir", str(gateway.state_dir / "replicas" / "2"))
    assert [*found][-2:] == ["==> worker 1 <==", "==> worker 2 <=="]
    for number in (1, 2):
        assert sum("ready on" in line for line in found[f"==> worker {number} <=="]) == 1
        assert any(one.get("worker") == number and "ready on" in one["message"] for one in told)
    assert second.stdout.splitlines() == found["==> worker 2 <=="]
    assert second.stderr == ""


@pytest.mark.replicas
async def test_following_shows_what_each_replica_writes(tmp_path: Path) -> None:
    config: dict[str, Any] = {"servers": {}, "state": {"replicas": True}}
    await of_one_gateway(tmp_path)
    async with gateway_process(tmp_path, config) as one, gateway_process(tmp_path, config) as other:
        assert [*sections(await run(tmp_path, "log"))] == ["", "==> replica 1 <==", "==> replica 2 <=="]
        following = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "pointsman", "log", "-f", "--json", "--state-dir", str(one.state_dir)),
            cwd=tmp_path,
            env=own_environment(tmp_path),
            stdout=asyncio.subprocess.PIPE,
        )
        assert following.stdout is not None
        try:
            async with asyncio.timeout(LONG_S):
                ready: list[Any] = []
                while len({said["replica"] for said in ready}) < 2:
                    said = json.loads(await following.stdout.readline())
                    ready += [said] if "ready on" in said["message"] else []
                one.write_config(config | {"projects": {"demo": {}}})
                reloaded = set[int]()
                while reloaded != {1, 2}:
                    said = json.loads(await following.stdout.readline())
                    if "configuration reloaded" in said["message"]:
                        reloaded.add(said["replica"])
        finally:
            following.send_signal(signal.SIGINT)
            await following.communicate()
        await other.until_logged("configuration reloaded")
    ended = await run(tmp_path, "log", "-n", "1")
    assert ended.stderr == "No gateway runs now; what follows was written before.\n"
    assert [*sections(ended)][1:] == [
        "==> one gateway, which does not run <==",
        "==> replica 1, which does not run <==",
        "==> replica 2, which does not run <==",
    ]


def write_log(folder: Path, *, at: float | None = None) -> None:
    file = log_path(folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("2026-01-01T00:00:00+00:00 INFO    x\n")
    if at is not None:
        os.utime(file, (at, at))


def test_a_worker_that_is_started_again_is_shown_and_one_of_an_earlier_run_is_not(tmp_path: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(workers_folder(tmp_path))
        for number in (1, 2, 3):
            write_log(tmp_path / "replicas" / str(number), at=1.0 if number == 3 else None)
        write_log(tmp_path, at=1.0)
        stack.enter_context(locked(tmp_path / "replicas" / "1"))
        found = [one.heading for one in gateway_logs(tmp_path)]
        assert found == ["==> worker 1 <==", "==> worker 2, which does not run <=="]
        write_log(tmp_path)  # by the parent
        assert gateway_logs(tmp_path)[0].heading == "==> parent of the workers <=="
