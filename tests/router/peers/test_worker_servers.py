"""Servers with a `command` among workers: one process for all of them, which moves when its worker ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.e2e.client import BOTH_ERAS, Mode
from tests.e2e.people import person
from tests.gateway_process import GatewayProcess
from tests.router.conftest import audit_rows
from tests.router.peers.cluster import Cluster
from tests.router.peers.test_scenarios import FORMS, answered, execute
from tests.router.peers.test_workers import (
    CONNECTIONS,
    LONG_S,
    command,
    counted,
    counter,
    numbered_processes_of,
    processes_of,
    pytestmark,
    replicas_of,
    spread,
    waiting,
    workers,
)
from tests.router.raw_client import ERAS, Era

__all__ = ["pytestmark"]

ASKER = str(Path(servers.__file__).with_name("asker.py"))


def asker(folder: Path, era: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-S", ASKER, era, str(folder / "trace")], "era": era}


def talker(folder: Path, **entry: Any) -> dict[str, Any]:
    """A counter that says on stderr which process it is."""
    own = counter(folder, **entry)
    return own | {
        "command": "sh",
        "args": ["-c", 'echo "words of $$" >&2; exec "$@"', "sh", own["command"], *own["args"]],
    }


@pytest.fixture(scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("placed")
    entries = {
        "counter": counter(folder),
        "apart": counter(folder, placement="each"),
        "old": asker(folder, "legacy"),
        "new": asker(folder, "modern"),
        "talker": talker(folder),
        "talkers": talker(folder, placement="each"),
    }
    async with workers(folder, servers=entries) as cluster:
        yield cluster


async def count(gateway: GatewayProcess, server: str = "counter", era: Era = "modern") -> tuple[int, int]:
    """Process and number of a call on a connection of its own."""
    async with spread(gateway, era) as one:
        result = await one.result("tools/call", execute(f"{server}:count", "x"))
        text = result["content"][0]["text"]
        assert "isError" not in result, text
        pid, number = text.split()
        return int(pid), int(number)


@pytest.mark.parametrize("era", ERAS)
async def test_a_stateful_server_is_one_process(two: Cluster, era: Era) -> None:
    found = [await count(two.gateways[0], era=era) for _ in range(CONNECTIONS)]
    assert len({pid for pid, _ in found}) == 1
    numbers = [number for _, number in found]
    assert numbers == [*range(numbers[0], numbers[0] + CONNECTIONS)]


async def test_each_worker_has_its_own_process_if_the_entry_says_so(two: Cluster) -> None:
    assert len({(await count(two.gateways[0], "apart"))[0] for _ in range(CONNECTIONS)}) == 2


@pytest.mark.parametrize("server", ["old", "new"])
@pytest.mark.parametrize("era", ERAS)
async def test_questions_of_it_reach_the_client_over_any_connection(two: Cluster, era: Era, server: str) -> None:
    async with spread(two.gateways[0], era, FORMS) as one:
        for number in range(CONNECTIONS // 4):
            assert await answered(one, f"{server}:name", f"{number}") == f"ada-{number}"


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_people_at_different_workers_are_asked_their_own_questions(two: Cluster, mode: Mode) -> None:
    """Each has a session of its own; the wire of the server does not say whose question it is."""

    async def talk(name: str) -> None:
        async with person(two.gateways[0], mode, name) as (who, model):
            for tag in ("a", "b"):
                assert await model.text("old:name", tag=f"{name}-{tag}") == f"{name}:{name}-{tag}"
            assert all(name in str(question) for question in who.asked)

    await asyncio.gather(*(talk(f"person{number}") for number in range(6)))


async def test_the_owner_s_commands_concern_the_one_process(two: Cluster) -> None:
    gateway = two.gateways[0]
    (before, _) = await count(gateway)
    restarted = await command(two, "server", "restart", "counter", "--json")
    assert restarted.code == 0, restarted.stderr
    assert restarted.json["state"] == "running"
    found = {(await count(gateway))[0] for _ in range(CONNECTIONS)}
    assert len(found) == 1
    assert before not in found
    stopped = await command(two, "server", "stop", "counter", "--json")
    assert stopped.code == 0, stopped.stderr
    async with asyncio.timeout(LONG_S):
        while Path(f"/proc/{next(iter(found))}").exists():
            await asyncio.sleep(0.05)
    await command(two, "server", "restart", "counter", "--json")
    assert len({(await count(gateway))[0] for _ in range(CONNECTIONS)}) == 1


async def test_restart_here_reaches_the_worker_that_runs_the_process(two: Cluster) -> None:
    gateway, processes, said = two.gateways[0], [(await count(two.gateways[0]))[0]], []
    for number in ("1", "2"):
        folder = str(two.state_dir / "replicas" / number)
        restarted = await command(two, "server", "restart", "counter", "--here", "--state-dir", folder)
        assert restarted.code == 0, restarted.stderr
        said.append("runs it for all, and restarted it." in restarted.stdout)
        processes.append((await count(gateway))[0])
    assert len(set(processes)) == 3
    assert sorted(said) == [False, True]


async def test_stop_here_of_a_server_that_one_worker_runs_for_all_says_what_to_type(two: Cluster) -> None:
    (before, _) = await count(two.gateways[0])
    refused = await command(two, "server", "stop", "counter", "--here")
    assert refused.code == 1
    assert "Leave `--here` out" in refused.stderr
    assert (await count(two.gateways[0]))[0] == before


async def test_server_list_shows_where_workers_differ(two: Cluster) -> None:
    second = str(two.state_dir / "replicas" / "2")
    stopped = await command(two, "server", "stop", "apart", "--here", "--state-dir", second)
    assert stopped.code == 0, stopped.stderr
    try:
        shown = (await command(two, "server", "list")).stdout.splitlines()
        listed = (await command(two, "server", "list", "--json")).json["servers"]
    finally:
        await command(two, "server", "restart", "apart", "--here", "--state-dir", second)
    (line,) = [line for line in shown if line.startswith("At ")]
    assert line.startswith("At worker 2, `apart` is stopped")
    assert all("run by worker " in line for line in shown if line.startswith("counter "))
    assert "running" in next(line for line in shown if line.startswith("apart "))
    assert [(one["id"], one["replicas"][0]["state"]) for one in listed if "replicas" in one] == [("apart", "stopped")]
    owners = {one["id"]: one.get("runsAt") for one in listed}
    assert owners["apart"] is None
    (pid, _) = await count(two.gateways[0])
    assert (await numbered_processes_of(two))[int(owners["counter"]) - 1] == await _worker_of(pid, two)
    assert all("replicas" not in one for one in (await command(two, "server", "list", "--json")).json["servers"])


async def test_server_list_names_a_worker_that_does_not_answer(two: Cluster) -> None:
    pid = (await numbered_processes_of(two))[1]
    os.kill(pid, signal.SIGSTOP)
    try:
        listed = await command(two, "server", "list")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "Worker 2 did not say how its servers are" in listed.stderr
    assert "counter" in listed.stdout


@pytest.mark.parametrize("place", [".", "replicas/1", "replicas/2"])
async def test_server_log_finds_the_worker_that_runs_the_server(two: Cluster, place: str) -> None:
    folder = ("--state-dir", str(two.state_dir / place))
    pid = await _until_talker_wrote(two)
    assert (await command(two, "server", "log", "talker", *folder)).stdout.splitlines()[-1] == f"words of {pid}"
    pids = {(await count(two.gateways[0], "talkers"))[0] for _ in range(CONNECTIONS)}
    both = (await command(two, "server", "log", "talkers", *folder)).stdout.splitlines()
    each = [f"words of {pid}" for pid in pids]
    if place == ".":
        assert set(both) == {"==> worker 1 <==", "==> worker 2 <==", *each}
        told = (await command(two, "server", "log", "talkers", "--json", *folder)).json
        assert [one["replica"] for one in told["replicas"]] == ["1", "2"]
        assert set(told["lines"]) == set(each)
    else:
        assert len(both) == 1
        assert set(both) < set(each)


@pytest.mark.parametrize("place", [".", "replicas/1", "replicas/2"])
async def test_server_log_says_that_a_server_has_written_nothing(two: Cluster, place: str) -> None:
    folder = ("--state-dir", str(two.state_dir / place))
    await _until_talker_wrote(two)
    silent = await command(two, "server", "log", "counter", *folder)
    assert silent.code == 1
    assert "No log for `counter`: it has written nothing to stderr" in silent.stderr
    assert ("looks at all of them" in silent.stderr) == (place != ".")
    assert re.search(r"Logs exist for: .*\btalker\b", silent.stderr)
    unknown = await command(two, "server", "log", "nothing", *folder)
    assert unknown.code == 2
    assert "there is no such server" in unknown.stderr


async def test_an_entry_that_changes_changes_the_process_of_all_workers(two: Cluster) -> None:
    gateway, entries = two.gateways[0], two.settings["servers"]
    (before, _) = await count(gateway)
    changed = {**entries, "counter": {**entries["counter"], "env": {"CHANGED": "1"}}}
    gateway.write_config({**two.settings, "servers": changed})
    found = {before}
    async with asyncio.timeout(LONG_S):
        while before in found or len(found) > 1:
            found = {(await count(gateway))[0] for _ in range(CONNECTIONS)}


async def test_a_worker_that_is_told_to_stop_lets_the_calls_of_others_end(tmp_path: Path) -> None:
    """And its parent starts it again."""
    async with workers(tmp_path, servers={"counter": counter(tmp_path)}) as cluster:
        gateway, released = cluster.gateways[0], tmp_path / "released"
        (server, _) = await count(gateway)
        owner = await _worker_of(server, cluster)
        names = [f"last-{number}" for number in range(CONNECTIONS)]
        calls = [asyncio.ensure_future(waiting(gateway, name, released)) for name in names]
        await _until_counted(tmp_path, names)
        os.kill(owner, signal.SIGTERM)
        await gateway.until_logged("waiting for")
        released.touch()
        assert {text.split()[0] for text in await asyncio.gather(*calls)} == {str(server)}
        async with asyncio.timeout(LONG_S):
            while len(pids := await processes_of(cluster)) < 2 or owner in pids:
                await asyncio.sleep(0.1)
        found = {(await count(gateway))[0] for _ in range(CONNECTIONS)}
        assert len(found) == 1
        assert server not in found


async def test_the_server_moves_when_its_worker_is_killed(tmp_path: Path) -> None:
    entries = {"counter": counter(tmp_path)}
    async with workers(tmp_path, servers=entries, audit={"arguments": True}) as cluster:
        gateway, released = cluster.gateways[0], tmp_path / "released"
        (server, _) = await count(gateway)
        owner = await _worker_of(server, cluster)
        names = [f"flight-{number}" for number in range(CONNECTIONS)]
        calls = [asyncio.ensure_future(waiting(gateway, name, released)) for name in names]
        await _until_counted(tmp_path, names)
        os.kill(owner, signal.SIGKILL)
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert not [one for one in ended if isinstance(one, str) and str(server) in one]  # none was answered
        async with asyncio.timeout(LONG_S):
            while len(await replicas_of(gateway)) < 2 or owner in await processes_of(cluster):
                await asyncio.sleep(0.1)
        found = {(await count(gateway))[0] for _ in range(CONNECTIONS)}
        assert len(found) == 1
        assert server not in found
        assert not _runs(server)
        ran = [tag for tool, tag, _ in counted(tmp_path) if tool == "wait"]
        assert sorted(ran) == sorted(names)  # none ran twice
        outcomes = await _outcomes(cluster, names)
        assert set(outcomes.values()) == {"interrupted", "error"}  # at the worker that was killed, and at the other


async def test_a_worker_that_is_started_again_keeps_to_the_number_of_workers(tmp_path: Path) -> None:
    """A change of `workers` takes effect at the next start of all of them."""
    async with workers(tmp_path, servers={"counter": counter(tmp_path)}) as cluster:
        gateway, before = cluster.gateways[0], await processes_of(cluster)
        gateway.write_config({**cluster.settings, "workers": 1})
        await gateway.until_logged("`workers` has changed; that takes effect at the next start")
        for pid in before:
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(LONG_S):
                while len(after := await processes_of(cluster)) < 2 or pid in after:
                    await asyncio.sleep(0.1)
        assert len({(await count(gateway))[0] for _ in range(CONNECTIONS)}) == 1


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for the system to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def _worker_of(server: int, cluster: Cluster) -> int:
    parent = int(Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1])
    assert parent in await processes_of(cluster)
    return parent


async def _until_counted(folder: Path, names: list[str]) -> None:
    async with asyncio.timeout(LONG_S):
        while not {*names} <= {tag for _, tag, _ in counted(folder)}:
            await asyncio.sleep(0.02)


async def _outcomes(cluster: Cluster, names: list[str]) -> dict[str, str]:
    async with asyncio.timeout(LONG_S):
        while True:
            rows = {row["arguments"]["tag"]: row["outcome"] for row in await audit_rows(cluster.state_dir)}
            found = {tag: outcome for tag, outcome in rows.items() if tag in names}
            if len(found) == len(names) and None not in found.values():
                return found
            await asyncio.sleep(0.2)


async def _until_talker_wrote(cluster: Cluster) -> int:
    """Wait until the gateway has written the log of the process, which it does after a moment; its pid."""
    (pid, _) = await count(cluster.gateways[0], "talker")
    log = cluster.state_dir / "logs" / "talker.log"
    async with asyncio.timeout(LONG_S):
        while not log.exists() or f"words of {pid}" not in log.read_text():
            await asyncio.sleep(0.05)
    return pid
