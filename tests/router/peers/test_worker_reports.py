"""What the owner learns of workers: which do not run and why, who hangs, what waits for a restart, by one name each."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.model import GatewayConfig, Log
from pointsman.router import workers as parent_module
from pointsman.router.launch import Launch
from pointsman.router.serving.log_file import PlainLogFile, log_path
from pointsman.router.serving.workers_file import read_note
from tests.gateway_process import gateway_process
from tests.router.cli.commands import run
from tests.router.peers.cluster import TOKEN, Cluster
from tests.router.peers.test_workers import LONG_S, command, counter, numbered_processes_of, pytestmark

__all__ = ["pytestmark"]

NEVER_S = 600.0  # longer than a test


@asynccontextmanager
async def tuned_workers(folder: Path, config: dict[str, Any], **constants: float) -> AsyncIterator[Cluster]:
    """Two workers whose parent has other constants."""
    code = (
        "import sys; from pointsman.router import workers; from pointsman.router.cli.main import main; "
        f"vars(workers).update({constants!r}); main(sys.argv[5:])"
    )
    settings = {"workers": 2, **config}
    prefix = (sys.executable, "-P", "-c", code)
    async with gateway_process(folder, settings, token=TOKEN, prefix=prefix) as gateway:
        yield Cluster([gateway], None, None, None, folder, folder, 0, settings)  # type: ignore[arg-type]


async def test_workers_that_do_not_run_are_named_with_the_reason_and_the_next_start(tmp_path: Path) -> None:
    async with tuned_workers(tmp_path, {}, FIRST_DELAY_S=NEVER_S) as cluster:
        gateway, pids = cluster.gateways[0], await numbered_processes_of(cluster)
        os.kill(pids[0], signal.SIGKILL)
        said = f"worker 1 (process {pids[0]}) was ended by SIGKILL; it is started again in {NEVER_S:g} s"
        await gateway.until_logged(said)
        assert said in log_path(cluster.state_dir).read_text()
        sentence = f"Worker 1 of 2 does not run: process {pids[0]} was ended by SIGKILL. It is started again in "
        told = await command(cluster, "status", "--json")
        assert [(one["worker"], one["state"]) for one in told.json["workers"]] == [(1, "not running"), (2, "ready")]
        shown = (await command(cluster, "status")).stdout.splitlines()
        assert "Workers: 2. Servers, calls and savings below are those of worker 2." in shown
        rows = [line.split() for line in shown if line.split()[:1] == ["worker"]]
        assert [row[:2] for row in rows] == [["worker", "1"], ["worker", "2"]]
        assert ("not running" in " ".join(rows[0]), sentence in " ".join(rows[0])) == (True, True)
        examined = await command(cluster, "doctor")
        assert examined.code == 1
        assert [line.split()[0] for line in examined.stdout.splitlines() if sentence in line] == ["problem"]
        assert f"Worker 2 (process {pids[1]})" in examined.stdout

        os.kill(pids[1], signal.SIGKILL)
        await gateway.until_logged(f"worker 2 (process {pids[1]}) was ended by SIGKILL")
        for words in (("status",), ("server", "list"), ("tools", "list")):
            refused = await command(cluster, *words)
            assert refused.code == 3
            assert f"The gateway (process {gateway.pid}) runs, but none of its workers answers." in refused.stderr
            assert sentence in refused.stderr
        found = (await command(cluster, "doctor")).stdout
        assert sentence in found
        assert "No gateway runs" not in found
        assert f"{gateway.config_file} is in order" in found  # it was found by the note of the parent

        gateway.send_signal(signal.SIGKILL)
        await gateway.process.wait()
        assert (cluster.state_dir / "replicas" / "workers" / "workers.json").exists()
        assert read_note(cluster.state_dir) is None  # it is not believed
        assert "No gateway runs" in (await command(cluster, "status")).stderr


async def test_status_shows_for_how_long_the_parent_runs(tmp_path: Path) -> None:
    async with tuned_workers(tmp_path, {}) as cluster:
        pids = await numbered_processes_of(cluster)
        await asyncio.sleep(3)  # so that the workers which are started now are younger
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(LONG_S):
            while (told := await command(cluster, "status", "--json")).code:
                await asyncio.sleep(0.1)
        assert told.json["parentUptimeS"] >= told.json["uptimeS"] + 3
        (up,) = [line for line in (await command(cluster, "status")).stdout.splitlines() if line.startswith("  up ")]
        assert int(up.split()[1]) >= told.json["parentUptimeS"]


async def test_status_names_a_worker_whose_end_the_parent_has_not_noticed(tmp_path: Path) -> None:
    async with tuned_workers(tmp_path, {}) as cluster:
        gateway, pids = cluster.gateways[0], await numbered_processes_of(cluster)
        os.kill(gateway.pid, signal.SIGSTOP)
        try:
            os.kill(pids[0], signal.SIGKILL)
            async with asyncio.timeout(LONG_S):
                while "worker 1" not in (shown := (await command(cluster, "status")).stdout) or "no answer" in shown:
                    await asyncio.sleep(0.1)
        finally:
            os.kill(gateway.pid, signal.SIGCONT)
        (row,) = [line for line in shown.splitlines() if line.split()[:2] == ["worker", "1"]]
        assert "not running" in row
        assert f"Worker 1 of 2 does not run: process {pids[0]} has ended, and the parent has not noticed it" in row


async def test_the_note_of_the_parent_ends_with_it_and_others_cannot_read_it(tmp_path: Path) -> None:
    async with tuned_workers(tmp_path, {}) as cluster:
        file = cluster.state_dir / "replicas" / "workers" / "workers.json"
        assert file.stat().st_mode & 0o777 == 0o600
        assert await cluster.gateways[0].stop() == 0
        assert not file.exists()
        assert log_path(cluster.state_dir).read_text().splitlines()[-1].endswith("pointsman has ended")


async def test_a_server_of_a_worker_that_hangs_is_not_restarted_or_stopped_but_explained(tmp_path: Path) -> None:
    config = {"servers": {"counter": counter(tmp_path)}, "timeouts": {"call_s": 1, "list_s": 1}}
    async with tuned_workers(tmp_path, config, HANG_S=NEVER_S) as cluster:
        (listed,) = (await command(cluster, "server", "list", "--json")).json["servers"]
        number = int(listed["runsAt"])
        pid = (await numbered_processes_of(cluster))[number - 1]
        os.kill(pid, signal.SIGSTOP)
        try:
            for verb, done in (("restart", "restarted"), ("stop", "stopped")):
                ran = await command(cluster, "server", verb, "counter")
                assert ran.code == 1
                assert f"Worker {number} runs `counter` for all and does not answer, so it was not {done}" in ran.stderr
                assert f"If it hangs, its parent replaces it within {NEVER_S:g} s." in ran.stderr
            async with asyncio.timeout(LONG_S):
                examined = ""
                while "Server `counter` does not answer" not in examined:
                    await command(cluster, "tools", "call", "counter:count", "tag=x")
                    examined = (await command(cluster, "doctor")).stdout
        finally:
            os.kill(pid, signal.SIGCONT)
        assert "pointsman server restart counter" not in examined
        assert f"Worker {number} runs it for all and does not answer" in examined
        assert f"Worker {number} (process {pid}) does not answer. It gave no answer within 5 s." in examined
        assert ".." not in examined.replace("...", "")


async def test_a_stop_does_not_wait_for_a_worker_that_hangs(tmp_path: Path) -> None:
    async with tuned_workers(tmp_path, {"workers": 3}, HANG_S=NEVER_S) as cluster:
        gateway, pids = cluster.gateways[0], await numbered_processes_of(cluster)
        os.kill(pids[0], signal.SIGSTOP)
        assert await gateway.stop() == 0
        said = f"worker 1 (process {pids[0]}) is killed: it has not drained within 10 s, and has been silent for 2 s"
        assert gateway.stderr.count(said) == 1
        assert gateway.stderr.count(" is killed: ") == 1
        assert said in log_path(cluster.state_dir).read_text()


async def test_a_stop_waits_for_a_worker_that_still_drains(tmp_path: Path) -> None:
    async with tuned_workers(tmp_path, {"listen": {"drain_s": 5}}, GRACE_S=-5.0) as cluster:  # due at once
        gateway = cluster.gateways[0]
        assert await gateway.stop() == 0
        assert gateway.stderr.count("draining: calls are taken for another 5 s") == 2
        assert " is killed: " not in gateway.stderr


def test_the_parent_waits_no_longer_than_until_a_worker_has_been_silent_for_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    file = tmp_path / "pointsman.yaml"
    launch = Launch(GatewayConfig(), file, GatewayConfig, tmp_path, ready=lambda url: None)
    parent = parent_module.Parent(launch, 2, PlainLogFile(tmp_path, Log()))
    first, second = parent._workers
    assert parent._patience_s() == parent_module.HANG_S / 2
    first.pid, first.ready, first.heard = 1, True, now - 59.0
    assert parent._patience_s() == 1.0
    second.due = now + 0.25
    assert parent._patience_s() == 0.25


async def test_each_worker_has_one_name_and_no_path_of_a_socket(tmp_path: Path) -> None:
    servers = {"counter": counter(tmp_path), "apart": counter(tmp_path, placement="each")}
    async with tuned_workers(tmp_path, {"servers": servers}) as cluster:
        said = []
        for words in (("restart", "apart"), ("stop", "apart"), ("list",), ("restart", "counter")):
            ran = await command(cluster, "server", *words)
            said.append(ran.stdout + ran.stderr)
        assert "At worker 2, server `apart` is running with" in said[0]
        assert "At worker 2, server `apart` is stopped." in said[1]
        assert "run by worker " in said[2]
        said += [(await command(cluster, word)).stdout for word in ("status", "doctor")]
        for text in said:
            assert ".sock" not in text
            assert "eplica" not in text


@pytest.mark.parametrize("count", [1, 2])
async def test_doctor_notes_keys_that_wait_for_a_restart(tmp_path: Path, count: int) -> None:
    async with gateway_process(tmp_path, {"workers": count}, token=TOKEN) as gateway:
        assert "next start" not in (await run(tmp_path, "doctor")).stdout
        gateway.write_config({"workers": 3, "telemetry": {"sample": 0.5}})
        await gateway.until_logged("`workers` has changed; that takes effect at the next start")
        gateway.write_config({"workers": 3, "telemetry": {"sample": 0.5}, "projects": {"new": {}}})
        async with asyncio.timeout(LONG_S):
            while gateway.stderr.count("configuration reloaded") < 2 * count:
                await asyncio.sleep(0.02)
        examined = await run(tmp_path, "doctor")
        (line,) = [line for line in examined.stdout.splitlines() if "next start" in line]
        assert line.split()[0] == "note"
        assert "`telemetry`, `workers` have changed since the gateway was started" in line
        assert f"end process {gateway.pid} and run `pointsman serve` again" in line
        assert gateway.stderr.count("`workers` has changed") == count  # said once by each
        gateway.write_config({"workers": count})
        async with asyncio.timeout(LONG_S):
            while "next start" in (await run(tmp_path, "doctor")).stdout:
                await asyncio.sleep(0.1)
