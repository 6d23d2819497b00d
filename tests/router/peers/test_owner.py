"""The owner among replicas: commands speak of all of them, and the page works at whichever one a request lands."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from pointsman.router.owner.client import ask
from pointsman.router.owner.replicas import MAX_REQUEST_BYTES, PATH
from pointsman.router.peers.signing import Signing
from tests.gateway_process import gateway_process
from tests.postgres import Postgres
from tests.router.cli.commands import Ran, run
from tests.router.conftest import workshop
from tests.router.page.owner import csrf_of
from tests.router.peers.cluster import Cluster, cluster
from tests.router.peers.test_life import replica_id

pytestmark = pytest.mark.replicas

LINES = [(b"accept", b"*/*")]  # what the client below sends of the headers that are signed


@asynccontextmanager
async def two_replicas(folder: Path, database: str | None = None) -> AsyncIterator[Cluster]:
    servers = {"shop": workshop(folder / "trace"), "gone": {"command": "no-such-program-anywhere"}}
    async with cluster(folder, count=2, database=database, servers=servers) as replicas:
        yield replicas


@pytest.fixture(scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with two_replicas(tmp_path_factory.mktemp("two")) as replicas:
        yield replicas


@pytest.fixture(scope="module")
async def two_on_a_database(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> AsyncIterator[Cluster]:
    async with two_replicas(tmp_path_factory.mktemp("both"), postgres.new_database()) as replicas:
        yield replicas


@pytest.fixture(params=["two", "two_on_a_database"])
def replicas(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


async def ids(replicas: Cluster) -> list[str]:
    return [await replica_id(gateway) for gateway in replicas.gateways]


async def command(replicas: Cluster, *words: str) -> Ran:
    return await run(replicas.folder, *words, POINTSMAN_STATE_DIR=str(replicas.state_dir))


async def test_status_shows_every_replica_with_its_servers(replicas: Cluster) -> None:
    told = (await command(replicas, "status", "--json")).json["replicas"]
    assert {one["replica"] for one in told} == {*await ids(replicas)}
    assert [one["this"] for one in told] == [True, False]
    assert {one["status"]["process"] for one in told} == {gateway.pid for gateway in replicas.gateways}
    for one in told:
        states = {server["id"]: server["state"] for server in one["status"]["servers"]["list"]}
        assert states == {"shop": "running", "gone": "failed"}
    shown = (await command(replicas, "status")).stdout
    assert "Replicas: 2." in shown
    for one, gateway in zip(await ids(replicas), replicas.gateways, strict=True):
        address = gateway.url if "replicas" in replicas.settings["state"] else gateway.base_url.removeprefix("http://")
        (line,) = (line for line in shown.splitlines() if one in line.split() and " ready " in line)
        assert ("replica " in line) == ("replicas" in replicas.settings["state"])  # the number of its folder
        assert f" {address} " in line
        assert "1 of 2 running" in line
        assert "`gone` is failed" in line


async def test_restart_and_stop_concern_all_replicas_unless_one_is_meant(replicas: Cluster) -> None:
    before = processes(replicas)
    assert len(before) == 2
    ran = await command(replicas, "server", "restart", "shop")
    assert (ran.code, ran.stdout.count("is running with")) == (0, 2), ran.stdout + ran.stderr
    async with asyncio.timeout(30):
        while len(after := processes(replicas)) != 2 or after & before:  # the old ones end when the new ones run
            await asyncio.sleep(0.05)
    stopped = await command(replicas, "server", "stop", "shop", "--here", "--json")
    assert (stopped.code, stopped.json["state"], "replicas" in stopped.json) == (0, "stopped", False)
    assert await states(replicas) == ["running", "stopped"]
    again = await command(replicas, "server", "restart", "shop", "--json")
    assert [one["server"]["state"] for one in again.json["replicas"]] == ["running"]
    assert await states(replicas) == ["running", "running"]
    failed = await command(replicas, "server", "restart", "gone")
    assert failed.code == 1
    assert failed.stderr.count("no-such-program-anywhere") == 2
    unknown = await command(replicas, "server", "restart", "shopp")
    assert (unknown.code, unknown.stderr) == (2, "There is no server `shopp`. Did you mean `shop`?\n")


async def states(replicas: Cluster) -> list[str]:
    """Of the workshop at each replica."""
    told = (await command(replicas, "status", "--json")).json["replicas"]
    servers = [server for one in told for server in one["status"]["servers"]["list"]]
    return sorted(server["state"] for server in servers if server["id"] == "shop")


def processes(replicas: Cluster) -> set[str]:
    """Of the workshops."""
    found, trace = set(), str(replicas.trace).encode()
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdecimal() and trace in (folder / "cmdline").read_bytes().split(b"\0"):
                found.add(folder.name)
    return found


async def test_doctor_looks_at_each_replica_and_at_what_differs(two: Cluster) -> None:
    ran = await command(two, "doctor", "--json")
    told = [finding["message"] for finding in ran.json["findings"] if finding["check"] == "gateway"]
    assert told[0].startswith("The gateway on ")
    assert sum(message.endswith("is ready.") for message in told) == 2
    servers = [finding["message"] for finding in ran.json["findings"] if finding["check"] == "servers"]
    assert len(servers) == 1  # the same at both, so it is said once
    assert servers[0].startswith("Server `gone` does not run")
    first = json.loads((two.state_dir / "replicas" / "1" / "gateway.json").read_text())["pid"]
    (hung,) = (gateway for gateway in two.gateways if gateway.pid == first)
    hung.send_signal(signal.SIGSTOP)  # it would be asked, and the other one is instead
    try:
        ran = await command(two, "doctor", "--json")
        (silent,) = (one["message"] for one in ran.json["findings"] if "gave no answer" in one["message"])
        assert silent.startswith(f"Replica 1 (process {hung.pid}) does not answer. ")
        assert ".sock" not in ran.stdout
    finally:
        hung.send_signal(signal.SIGCONT)


async def test_a_sign_in_to_the_page_holds_at_every_replica(two: Cluster) -> None:
    """Through a proxy, each request lands on another replica; a browser does not separate ports."""
    link = (await asyncio.to_thread(ask, two.state_dir, "page_link"))["url"]
    through = f"http://127.0.0.1:{two.port}"
    async with two.proxy("forwarder"), httpx2.AsyncClient() as http:
        entered = [await http.get(f"{through}/page/enter?code={link.partition('code=')[2]}") for _ in range(2)]
        assert [one.status_code for one in entered] == [303, 403]  # the second is at the other replica
        pages = [await http.get(f"{through}/page/servers") for _ in range(4)]
        assert [page.status_code for page in pages] == [200] * 4
        form = {"csrf": csrf_of(pages[0].text)}
        for _ in range(2):  # a form of one replica is accepted by the other, and the message is shown there
            sent = await http.post(f"{through}/page/servers/shop/restart", data=form, headers={"Origin": through})
            assert sent.status_code == 303
            shown = (await http.get(f"{through}/page/servers/shop")).text
            assert "Restarted: <code>shop</code> runs" in shown


async def test_gateways_of_their_own_on_one_host_keep_their_cookies_apart(two: Cluster, tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {}) as other, httpx2.AsyncClient() as http:
        for folder in (two.state_dir, other.state_dir):
            assert (await http.get((await asyncio.to_thread(ask, folder, "page_link"))["url"])).status_code == 303
        for base in (two.gateways[0].base_url, two.gateways[1].base_url, other.base_url):
            assert (await http.get(f"{base}/page/servers")).status_code == 200


async def test_nobody_else_can_ask_a_replica_for_the_owner(two: Cluster) -> None:
    at, key = two.gateways[0], (two.state_dir / "request.key").read_text()
    to = await replica_id(at)
    body = json.dumps({"operation": "status", "parameters": {}}).encode()

    def signed(body: bytes, key: str = key) -> dict[str, str]:
        return {"X-Pointsman-Peer": Signing([key], "00000000").sign(to, "POST", PATH, LINES, body).decode()}

    async with httpx2.AsyncClient() as http:
        url = at.base_url + PATH
        for head in ({}, {"X-Pointsman-Peer": "1.2.3"}, signed(body, "o" * 64), signed(b"{}")):
            assert (await http.post(url, content=body, headers=head)).status_code == 403
        head = signed(body)
        assert (await http.post(url, content=body, headers=head)).json()["result"]["process"] == at.pid
        assert (await http.post(url, content=body, headers=head)).status_code == 403  # a replay
        large = b" " * (MAX_REQUEST_BYTES + 1)
        assert (await http.post(url, content=large, headers=signed(large))).status_code == 413
        for odd in (b"[]", b"no", b'{"operation": "page_link", "parameters": {}}', b'{"operation": []}'):
            assert (await http.post(url, content=odd, headers=signed(odd))).status_code == 404
        wrong = b'{"operation": "restart_server", "parameters": {"server": 1}}'
        assert "must be a string" in (await http.post(url, content=wrong, headers=signed(wrong))).text


async def test_a_gateway_without_replicas_has_no_such_path(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, {}) as gateway, httpx2.AsyncClient() as http:
        assert (await http.post(gateway.base_url + PATH, content=b"{}")).status_code == 404
