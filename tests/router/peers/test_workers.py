"""`workers: 2`: two processes on one port serve as one gateway, and their parent keeps them running."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import servers
from tests.e2e.client import BOTH_ERAS, Mode
from tests.e2e.people import person
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.cli.commands import run
from tests.router.conftest import audit_rows
from tests.router.peers.cluster import NEWS, TOKEN, Cluster
from tests.router.peers.test_life import load
from tests.router.peers.test_scenarios import FORMS, UPDATED, answered, execute
from tests.router.raw_client import ERAS, Era, Speaker, speaker
from tests.servers.asker_http import asker_http
from tests.servers.http_mcp import serving

pytestmark = [pytest.mark.replicas, pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")]

COUNTER = str(Path(servers.__file__).with_name("counter.py"))
LONG_S = 60.0
CONNECTIONS = 24  # enough for both workers to get some: one of 8 million runs would give all to one


@asynccontextmanager
async def workers(folder: Path, **config: Any) -> AsyncIterator[Cluster]:
    """Two workers, and servers of both eras over HTTP."""
    trace = folder / "trace"
    async with (
        asker_http("legacy", trace) as legacy,
        asker_http("modern", trace) as modern,
        serving("legacy") as news,
    ):
        entries = {
            "legacy": {"url": legacy.url, "era": "legacy"},
            "modern": {"url": modern.url, "era": "modern"},
            "news": {"url": news.url, "era": "legacy"},
        }
        settings = {"workers": 2, "servers": entries | config.pop("servers", {}), **config}
        async with gateway_process(folder, settings, token=TOKEN) as gateway:
            port = int(gateway.base_url.rpartition(":")[2])
            async with asyncio.timeout(LONG_S):
                while any(gateway.stderr.count(f"server {one} is running") < 2 for one in settings["servers"]):
                    await asyncio.sleep(0.02)
            yield Cluster([gateway], legacy, modern, news, trace, folder, port, settings)


@pytest.fixture(scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with workers(tmp_path_factory.mktemp("workers")) as cluster:
        yield cluster


@asynccontextmanager
async def spread(
    gateway: GatewayProcess, era: Era, capabilities: dict[str, Any] | None = None
) -> AsyncIterator[Speaker]:
    """A client that opens a connection for each request, so that the kernel chooses the worker anew."""
    async with asyncio.timeout(LONG_S), speaker(gateway, era, capabilities=capabilities) as one:
        limits = httpx2.Limits(max_keepalive_connections=0)
        async with httpx2.AsyncClient(timeout=LONG_S, limits=limits) as http:
            one.http = http
            yield one


async def replicas_of(gateway: GatewayProcess) -> set[str]:
    """The ids of the workers that answer."""
    found = set()
    for _ in range(CONNECTIONS):
        async with httpx2.AsyncClient(headers=gateway.headers) as http:
            found.add((await http.get(f"{gateway.base_url}/health")).json()["replicas"]["this"])
    return found


async def processes_of(cluster: Cluster) -> list[int]:
    """The workers that `pointsman status` shows."""
    told = (await command(cluster, "status", "--json")).json
    return sorted(one["status"]["process"] for one in told["replicas"] if "status" in one)


async def numbered_processes_of(cluster: Cluster) -> list[int]:
    """The processes of workers 1, 2, ..."""
    told = (await command(cluster, "status", "--json")).json["replicas"]
    return [one["process"] for one in sorted(told, key=lambda one: int(one["folder"]))]


async def command(cluster: Cluster, *words: str) -> Any:
    return await run(cluster.folder, *words, POINTSMAN_STATE_DIR=str(cluster.state_dir))


async def test_the_kernel_spreads_connections_over_the_workers(two: Cluster) -> None:
    assert len(await replicas_of(two.gateways[0])) == 2


@pytest.mark.parametrize("server", ["legacy", "modern"])
@pytest.mark.parametrize("era", ERAS)
async def test_calls_and_questions_work_over_any_connection(two: Cluster, era: Era, server: str) -> None:
    async with spread(two.gateways[0], era, FORMS) as one:
        for number in range(CONNECTIONS // 3):
            done = await one.result("tools/call", execute("modern:plain", str(number)))
            assert done["content"][0]["text"] == f"plain {number}"
            assert await answered(one, f"{server}:name", f"{number}") == f"ada-{number}"


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_the_sdk_s_client_calls_and_is_asked(two: Cluster, mode: Mode) -> None:
    async with person(two.gateways[0], mode) as (_, model):
        for server in ("legacy", "modern"):
            for tag in ("a", "b", "c"):
                assert await model.text(f"{server}:name", tag=tag) == f"ada:{tag}"


async def test_a_session_has_its_subscriptions_at_both_workers(two: Cluster) -> None:
    async with spread(two.gateways[0], "legacy") as one:
        for _ in range(4):
            async with one.stream(NEWS) as changes:
                two.news.push({"method": UPDATED, "params": {"uri": "note://a"}})
                assert (await changes.next(UPDATED))["uri"] == NEWS


async def test_status_and_doctor_show_both_workers(two: Cluster) -> None:
    parent = two.gateways[0].pid
    pids = await processes_of(two)
    assert len(pids) == 2
    assert parent not in pids
    assert [_parent_of(pid) for pid in pids] == [parent, parent]
    shown = (await command(two, "status")).stdout
    assert "Workers: 2. " in shown
    assert f"(process {parent}, with workers)" in shown
    rows = [line.split() for line in shown.splitlines() if line.split()[:1] == ["worker"]]
    assert [[*row[:2], row[3]] for row in rows] == [
        ["worker", str(number), str(pid)] for number, pid in enumerate(await numbered_processes_of(two), 1)
    ]
    examined = await command(two, "doctor", "--config", str(two.gateways[0].config_file))
    assert [line.split()[0] for line in examined.stdout.splitlines() if " is ready." in line] == ["ok", "ok"]
    restarted = await command(two, "server", "restart", "news", "--json")
    assert [one["server"]["state"] for one in restarted.json["replicas"]] == ["running"]


async def test_a_link_to_the_page_is_printed_once_at_every_start(tmp_path: Path) -> None:
    for _ in range(3):
        async with gateway_process(tmp_path, {"workers": 2}, token=TOKEN) as gateway:
            await gateway.until_logged("open the page (once, within 10 minutes): http")
            cluster = Cluster([gateway], None, None, None, tmp_path, tmp_path, 0, {})  # type: ignore[arg-type]
            before = await processes_of(cluster)
            os.kill(before[0], signal.SIGKILL)
            async with asyncio.timeout(LONG_S):
                while len(after := await processes_of(cluster)) < 2 or before[0] in after:
                    await asyncio.sleep(0.1)
            link = next(line for line in gateway.lines if "open the page" in line).split()[-1]
            async with httpx2.AsyncClient() as http:
                entered = await http.get(link)
        assert entered.status_code == 303  # signed in, and on to the page
        assert gateway.stderr.count("open the page") == 1
        assert gateway.stderr.index("pointsman ready on") < gateway.stderr.index("open the page")


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_a_reload_reaches_both_workers(two: Cluster) -> None:
    """By the file, and by a SIGHUP of the parent."""
    gateway = two.gateways[0]
    for name in ("first", "second"):
        gateway.write_config({**two.settings, "projects": {name: {}}})
        if name == "second":
            gateway.send_signal(signal.SIGHUP)
        async with asyncio.timeout(LONG_S):
            statuses = [0]
            while {200} != set(statuses):
                statuses = [await _ping_project(gateway, name) for _ in range(CONNECTIONS)]


async def _ping_project(gateway: GatewayProcess, project: str) -> int:
    async with httpx2.AsyncClient() as http:
        one = Speaker("modern", http, gateway.url, {**gateway.headers, "X-Pointsman-Project": project})
        head = one._head("tools/list", {})
        return (await http.post(one.url, content=json.dumps(one._body("tools/list", {})), headers=head)).status_code


async def test_a_killed_worker_is_started_again_and_loses_only_what_was_in_flight(tmp_path: Path) -> None:
    async with workers(tmp_path, audit={"arguments": True}) as cluster:
        before = await processes_of(cluster)
        async with load(cluster) as loaded:
            await loaded.until_done(50)
            os.kill(before[0], signal.SIGKILL)
            await loaded.until_done(50)
            async with asyncio.timeout(LONG_S):
                while len(after := await processes_of(cluster)) < 2 or before[0] in after:
                    await asyncio.sleep(0.1)
        assert before[1] in after
        assert len(await replicas_of(cluster.gateways[0])) == 2
        began = cluster.noted("began")
        assert len(began) == len(set(began))  # no tool ran twice
        assert set(loaded.done) <= set(began)
        outcomes = await _settled_outcomes(cluster)
        assert [tag for tag in loaded.done if outcomes[tag] != "ok"] == []
        assert {outcomes[tag] for tag in loaded.lost if tag in outcomes} <= {"interrupted", "ok"}
        assert [tag for tag in loaded.lost if tag in began and tag not in outcomes] == []
        assert f"(process {before[0]}) was ended by SIGKILL; it is started again" in cluster.gateways[0].stderr


async def _settled_outcomes(cluster: Cluster) -> dict[str, str]:
    """Outcome of each call by its tag, once the rows of the killed worker have been moved."""
    began = set(cluster.noted("began"))
    async with asyncio.timeout(LONG_S):
        while True:
            outcomes = {row["arguments"]["tag"]: row["outcome"] for row in await audit_rows(cluster.state_dir)}
            if began <= outcomes.keys() and None not in outcomes.values():
                return outcomes
            await asyncio.sleep(0.2)


async def test_a_stop_lets_the_calls_of_both_workers_end(tmp_path: Path) -> None:
    async with workers(tmp_path, servers={"counter": counter(tmp_path)}) as cluster:
        gateway, released = cluster.gateways[0], tmp_path / "released"
        names = [f"last-{number}" for number in range(CONNECTIONS)]
        calls = [asyncio.ensure_future(waiting(gateway, name, released)) for name in names]
        async with asyncio.timeout(LONG_S):
            while not {*names} <= {tag for _, tag, _ in counted(tmp_path)}:
                await asyncio.sleep(0.02)
        gateway.send_signal(signal.SIGTERM)
        await gateway.until_logged("waiting for")
        released.touch()
        assert all(text.split()[0].isdecimal() for text in await asyncio.gather(*calls))
        assert await asyncio.wait_for(gateway.process.wait(), LONG_S) == 0


def counter(folder: Path, **entry: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-S", COUNTER, str(folder / "counted")], **entry}


def counted(folder: Path) -> list[list[str]]:
    """Tool, tag and process of each call that the counters got."""
    file = folder / "counted"
    return [line.split(" ") for line in file.read_text().splitlines()] if file.exists() else []


async def waiting(gateway: GatewayProcess, tag: str, path: Path) -> str:
    """Call on a connection of its own a tool that answers once the file exists."""
    async with spread(gateway, "modern") as one:
        arguments = {"toolKey": "counter:wait", "arguments": {"tag": tag, "path": str(path)}}
        text: str = (await one.call("tool_execute", arguments))["content"][0]["text"]
        return text


async def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    async with workers(tmp_path) as cluster:
        pids = await processes_of(cluster)
        cluster.gateways[0].send_signal(signal.SIGKILL)
        async with asyncio.timeout(LONG_S):
            while any(Path(f"/proc/{pid}").exists() for pid in pids):
                await asyncio.sleep(0.05)


async def test_a_port_that_another_program_shares_is_named(tmp_path: Path) -> None:
    """Although the kernel would let both listen there."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = await _refused(tmp_path, {"workers": 2}, "--port", str(port))
        assert f"Port {port} on 127.0.0.1 is taken by another program" in said


async def test_a_first_start_that_fails_ends_all_workers_with_the_reason(tmp_path: Path) -> None:
    places = tmp_path / "state" / "replicas"
    places.mkdir(parents=True)
    (places / "1").write_text("")  # where the first worker wants a folder
    said = await _refused(tmp_path, {"workers": 2})
    assert f"Could not use the state folder {places / '1'}" in said
    assert "Traceback" not in said


async def test_the_parent_tells_the_service_manager_and_kills_a_worker_that_hangs(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.setblocking(False)
        env = {"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "2000000"}
        async with gateway_process(tmp_path, {"workers": 2}, token=TOKEN, env=env) as gateway:
            told = b"".join(_received(manager))
            assert told.count(b"READY=1") == 1
            assert b"MAINPID=%d\n" % gateway.pid in told
            cluster = Cluster([gateway], None, None, None, tmp_path, tmp_path, 0, {})  # type: ignore[arg-type]
            hung = (await processes_of(cluster))[0]
            os.kill(hung, signal.SIGSTOP)
            await gateway.until_logged(f"(process {hung}) was ended by SIGKILL: it has not answered for 2 s")
            async with asyncio.timeout(LONG_S):
                while len(await processes_of(cluster)) < 2:
                    await asyncio.sleep(0.1)
            assert b"WATCHDOG=1" in b"".join(_received(manager))


@pytest.mark.parametrize("frozen", [1, 2])
async def test_doctor_names_the_worker_that_is_frozen(two: Cluster, frozen: int) -> None:
    pids = await numbered_processes_of(two)
    os.kill(pids[frozen - 1], signal.SIGSTOP)
    try:
        examined = await command(two, "doctor", "--config", str(two.gateways[0].config_file))
        shown = (await command(two, "status")).stdout
    finally:
        os.kill(pids[frozen - 1], signal.SIGCONT)
    lines = [line for line in examined.stdout.splitlines() if " gateway " in line]
    assert len(lines) == 2
    for line in lines:
        (number,) = [number for number in (1, 2) if f"Worker {number} (process {pids[number - 1]})" in line]
        assert line.split()[0] == ("problem" if number == frozen else "ok")
        assert ("does not answer" in line) == (number == frozen)
    (silent,) = [line for line in shown.splitlines() if "no answer" in line]
    assert f"worker {frozen} " in silent
    assert str(pids[frozen - 1]) in silent


def _with_little_patience(hang_s: float) -> tuple[str, ...]:
    """Start the same program, whose parent notices a silent worker sooner."""
    code = (
        "import sys; from pointsman.router import workers; from pointsman.router.cli.main import main; "
        f"workers.HANG_S = {hang_s}; main(sys.argv[5:])"
    )
    return (sys.executable, "-P", "-c", code)


async def test_the_parent_replaces_a_worker_that_hangs_without_a_service_manager(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {"workers": 2}, token=TOKEN, prefix=_with_little_patience(3.0)) as gateway:
        cluster = Cluster([gateway], None, None, None, tmp_path, tmp_path, 0, {})  # type: ignore[arg-type]
        before = await numbered_processes_of(cluster)
        os.kill(before[1], signal.SIGSTOP)
        await gateway.until_logged(f"worker 2 (process {before[1]}) is killed: it has not answered for 3 s")
        await gateway.until_logged(f"worker 2 (process {before[1]}) was ended by SIGKILL")
        async with asyncio.timeout(LONG_S):
            while len(after := await processes_of(cluster)) < 2:
                await asyncio.sleep(0.1)
        assert before[0] in after
        os.kill(next(pid for pid in after if pid != before[0]), signal.SIGSTOP)
        assert await gateway.stop() == 0  # although one of them cannot hear of it


@pytest.mark.parametrize("form", ["text", "json"])
async def test_lines_of_the_log_name_the_worker(tmp_path: Path, form: str) -> None:
    config = {"workers": 2, "log": {"format": form}, "servers": {"counter": counter(tmp_path, placement="each")}}
    async with gateway_process(tmp_path, config, token=TOKEN) as gateway:
        async with asyncio.timeout(LONG_S):
            while gateway.stderr.count("server counter is running") < 2:
                await asyncio.sleep(0.02)
    running = [line for line in gateway.lines if "server counter is running" in line]
    together = next(line for line in gateway.lines if "2 workers are ready" in line)
    if form == "json":
        assert {json.loads(line)["worker"] for line in running} == {1, 2}
        assert "worker" not in json.loads(together)
    else:
        assert {line.split(" server ")[0].split("INFO")[1].strip() for line in running} == {"[worker 1]", "[worker 2]"}
        assert "[worker" not in together
        assert "INFO" in together


def _received(manager: socket.socket) -> Iterator[bytes]:
    with suppress(BlockingIOError):
        while True:
            yield manager.recv(4096) + b"\n"


async def test_a_second_gateway_on_the_folder_is_refused(two: Cluster, tmp_path: Path) -> None:
    for config in ({"workers": 2}, {}):
        said = await _refused(tmp_path, config, "--state-dir", str(two.state_dir))
        assert "already uses the state folder" in said
        assert f"(process {two.gateways[0].pid})" in said


async def _refused(folder: Path, config: Mapping[str, Any], *args: str) -> str:
    with pytest.raises(AssertionError, match="did not get ready") as caught:
        async with gateway_process(folder, config, args=args):
            pass
    return str(caught.value)
