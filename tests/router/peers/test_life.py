"""Replicas that end under load: a drained one loses no call, a killed one only those in flight, and none runs twice."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import audit_rows
from tests.router.peers.cluster import NEWS, TOKEN, Cluster, cluster
from tests.router.peers.test_scenarios import FORMS, UPDATED, execute
from tests.router.raw_client import Speaker, speaker

pytestmark = pytest.mark.replicas

CLIENTS = 12
LONG_S = 60.0
DRAIN_S = 3


@dataclass
class Load:
    """Clients that call one after the other, and what became of each call."""

    done: list[str] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)  # tag -> what the client saw
    stopping: bool = False

    async def until_done(self, more: int) -> None:
        goal = len(self.done) + more
        async with asyncio.timeout(LONG_S):
            while len(self.done) < goal:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def load(replicas: Cluster) -> AsyncIterator[Load]:
    """Twelve modern clients, each on connections of its own."""
    loaded, tags = Load(), count()

    async def call() -> None:
        async with httpx2.AsyncClient(timeout=LONG_S) as http:
            one = Speaker("modern", http, replicas.through.url, dict(replicas.through.headers))
            while not loaded.stopping:
                tag = f"load-{next(tags)}"
                try:
                    params = execute("modern:plain", tag)
                    body, head = json.dumps(one._body("tools/call", params)), one._head("tools/call", params)
                    response = await http.post(one.url, content=body, headers=head)
                    if response.status_code == 200 and f"plain {tag}" in response.text:
                        loaded.done.append(tag)
                    else:
                        loaded.lost[tag] = f"{response.status_code} {response.text}"
                except httpx2.HTTPError as error:
                    loaded.lost[tag] = repr(error)

    clients = [asyncio.ensure_future(call()) for _ in range(CLIENTS)]
    try:
        yield loaded
    finally:
        loaded.stopping = True
        await asyncio.gather(*clients)


@pytest.mark.proxies
@pytest.mark.parametrize("kind", ["haproxy", "caddy"])
async def test_a_replica_that_is_told_to_stop_loses_no_call(kind: str, tmp_path: Path) -> None:
    async with cluster(tmp_path, listen={"drain_s": DRAIN_S}) as replicas, replicas.proxy(kind):
        async with load(replicas) as loaded:
            await loaded.until_done(100)
            replicas.gateways[0].send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(replicas.gateways[0].process.wait(), LONG_S) == 0
            await loaded.until_done(50)
        assert loaded.lost == {}
        assert sorted(replicas.noted("began")) == sorted(loaded.done)


@pytest.mark.proxies
@pytest.mark.parametrize("kind", ["haproxy", "caddy"])
async def test_a_replica_that_is_killed_loses_only_what_was_in_flight(kind: str, tmp_path: Path) -> None:
    async with cluster(tmp_path, audit={"arguments": True}) as replicas, replicas.proxy(kind):
        async with load(replicas) as loaded:
            await loaded.until_done(50)
            killed = replicas.gateways[0]
            killed.send_signal(signal.SIGKILL)
            await killed.process.wait()
            await loaded.until_done(50)
        began = replicas.noted("began")
        assert len(began) == len(set(began))  # no tool ran twice
        assert set(loaded.done) <= set(began)
        await _dead_run_moved(replicas)
        outcomes = {row["arguments"]["tag"]: row["outcome"] for row in await audit_rows(replicas.state_dir)}
        assert [tag for tag in loaded.done if outcomes[tag] != "ok"] == []
        reached = [tag for tag in loaded.lost if tag in outcomes]  # the rest no replica has read, so it had no effect
        assert len(reached) <= CLIENTS
        assert {outcomes[tag] for tag in reached} <= {"interrupted", "ok"}  # ok: killed before the answer was written
        assert [tag for tag in loaded.lost if tag in began and tag not in outcomes] == []
        unfinished = {tag for tag, outcome in outcomes.items() if outcome not in ("ok", "interrupted")}
        assert unfinished == set()


async def _dead_run_moved(replicas: Cluster) -> None:
    """Wait until another replica has moved what the dead one left in the journal, and recorded its end."""
    journal = replicas.state_dir / "journal"
    async with asyncio.timeout(LONG_S):
        while len(list(journal.glob("*.run"))) >= len(replicas.gateways):
            await asyncio.sleep(0.1)
        while True:
            with closing(sqlite3.connect(replicas.state_dir / "state.db")) as database:
                runs = {run for (run,) in database.execute("SELECT DISTINCT run FROM audit WHERE outcome IS NULL")}
            if runs <= {file.stem for file in journal.glob("*.run")}:
                return
            await asyncio.sleep(0.1)


@pytest.mark.proxies
@pytest.mark.parametrize("kind", ["haproxy", "caddy"])
async def test_a_modern_client_that_closes_its_connection_cancels_the_call(kind: str, tmp_path: Path) -> None:
    async with cluster(tmp_path) as replicas, replicas.proxy(kind):
        async with httpx2.AsyncClient(timeout=LONG_S) as http:
            one = Speaker("modern", http, replicas.through.url, dict(replicas.through.headers))
            calling = asyncio.ensure_future(one.message("tools/call", execute("modern:stay", "closed")))
            await replicas.until_noted("began", "closed")
            calling.cancel()
        await replicas.until_noted("cancelled", "closed")


@pytest.mark.proxies
@pytest.mark.parametrize("kind", ["haproxy", "caddy"])
async def test_events_pass_a_proxy_at_once(kind: str, tmp_path: Path) -> None:
    async with cluster(tmp_path) as replicas, replicas.proxy(kind):
        async with asyncio.timeout(LONG_S), speaker(replicas.through, "legacy", capabilities=FORMS) as one:
            asked = await one.answering("tools/call", execute("legacy:name", "t"), {"action": "decline"})
        assert "content" in asked  # the question was an event of the stream, before its end


@asynccontextmanager
async def speaking(replicas: Cluster, number: int, era: Any) -> AsyncIterator[Speaker]:
    async with asyncio.timeout(LONG_S), speaker(replicas.gateways[number], era, capabilities=FORMS) as one:
        yield one


async def test_a_session_goes_on_when_its_home_was_killed(tmp_path: Path) -> None:
    """Its stream and subscriptions are at one of the others, the same one for all."""
    async with cluster(tmp_path) as replicas, speaking(replicas, 0, "legacy") as one:
        await one.result("resources/subscribe", {"uri": NEWS})
        replicas.gateways[0].send_signal(signal.SIGKILL)
        await replicas.gateways[0].process.wait()
        for first, second in ((1, 2), (2, 1)):
            one.url = replicas.gateways[first].url
            assert (await one.result("tools/call", execute("modern:plain", "on")))["content"][0]["text"] == "plain on"
            await one.result("resources/subscribe", {"uri": NEWS})
            one.url = replicas.gateways[second].url
            async with one.stream() as changes:
                replicas.news.push({"method": UPDATED, "params": {"uri": "note://a"}})
                assert (await changes.next(UPDATED))["uri"] == NEWS


@pytest.mark.parametrize("ending", [0, 1], ids=["the home", "the replica in between"])
async def test_a_stream_ends_in_an_orderly_way_with_either_replica(ending: int, tmp_path: Path) -> None:
    """And the replica that ends does not wait for it."""
    async with cluster(tmp_path, count=2) as replicas, speaking(replicas, 0, "legacy") as one:
        one.url = replicas.gateways[1].url
        head = {**one.headers, "Accept": "text/event-stream"}
        async with one.http.stream("GET", one.url, headers=head) as response:
            assert response.status_code == 200
            replicas.gateways[ending].send_signal(signal.SIGTERM)
            async for _ in response.aiter_lines():
                pass  # a broken stream raises
        assert await asyncio.wait_for(replicas.gateways[ending].process.wait(), LONG_S) == 0
        assert "timeout graceful shutdown exceeded" not in replicas.gateways[ending].stderr
        one.url = replicas.gateways[1 - ending].url
        async with one.stream(NEWS) as changes:
            replicas.news.push({"method": UPDATED, "params": {"uri": "note://a"}})
            assert (await changes.next(UPDATED))["uri"] == NEWS


async def test_a_home_that_hangs_keeps_no_stream_and_no_answer_waiting(tmp_path: Path) -> None:
    async with cluster(tmp_path, count=2) as replicas, speaking(replicas, 0, "legacy") as one:
        at = replicas.gateways[0]
        reply_to = f"{await replica_id(at)}.1"
        at.send_signal(signal.SIGSTOP)
        try:
            one.url = replicas.gateways[1].url
            async with one.http.stream(
                "GET", one.url, headers={**one.headers, "Accept": "text/event-stream"}
            ) as stream:
                assert stream.status_code == 200  # at the other one
            reply = {"jsonrpc": "2.0", "id": reply_to, "result": {"action": "cancel"}}
            lost = await one.http.post(one.url, content=json.dumps(reply), headers=one._head("", {}))
            assert lost.status_code == 502
            assert (await one.result("ping")) == {}
        finally:
            at.send_signal(signal.SIGCONT)


async def replica_id(gateway: GatewayProcess) -> str:
    async with httpx2.AsyncClient(headers=gateway.headers) as http:
        this: str = (await http.get(f"{gateway.base_url}/health")).json()["replicas"]["this"]
        return this


async def test_a_call_parked_at_a_replica_that_was_killed_is_refused_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as replicas, speaking(replicas, 0, "modern") as one:
        params = execute("legacy:name", "parked")
        parked = await one.result("tools/call", params)
        replicas.gateways[0].send_signal(signal.SIGKILL)
        await replicas.gateways[0].process.wait()
        one.url = replicas.gateways[1].url
        answer = {"action": "accept", "content": {"name": "ada"}}
        retry = {"inputResponses": {"q1": answer}, "requestState": parked["requestState"]}
        async with asyncio.timeout(10):  # `parked_s` is minutes
            refused = await one.error("tools/call", params | retry)
        assert (refused["code"], refused["data"]) == (-32602, {"reason": "invalid_request_state"})
        await replicas.until_noted("cancelled", "parked")  # the tool is not blocked by it
        again = await one.result("tools/call", execute("legacy:name", "again"))
        assert again["resultType"] == "input_required"


async def test_the_answer_to_a_question_of_an_unknown_replica_is_not_acknowledged(tmp_path: Path) -> None:
    """It may live, and its call waits: the client is told to send the answer again."""
    async with cluster(tmp_path) as replicas, speaking(replicas, 1, "legacy") as one:
        reply = {"jsonrpc": "2.0", "id": "0badf00d.1", "result": {"action": "cancel"}}
        sent = await one.http.post(one.url, content=json.dumps(reply), headers=one._head("", {}))
        assert (sent.status_code, sent.headers["retry-after"]) == (503, "5")
        assert "was not delivered. Send it again" in sent.json()["error"]["message"]
        assert (await one.result("ping")) == {}  # the session goes on


async def test_an_ended_session_does_not_come_back_at_a_replica_that_hung_or_starts_later(tmp_path: Path) -> None:
    async with cluster(tmp_path, count=2) as replicas, speaking(replicas, 0, "legacy") as one:
        hung = replicas.gateways[1]
        one.url = hung.url
        assert (await one.result("ping")) == {}
        hung.send_signal(signal.SIGSTOP)
        try:
            one.url = replicas.gateways[0].url
            assert (await one.http.delete(one.url, headers=one.headers)).status_code == 200
        finally:
            hung.send_signal(signal.SIGCONT)
        body, head = json.dumps(one._body("ping", {})), one._head("ping", {})
        while (await one.http.post(hung.url, content=body, headers=head)).status_code != 404:
            await asyncio.sleep(0.1)
        async with gateway_process(tmp_path, {"state": {"replicas": True}}, token=TOKEN) as later:
            assert (await one.http.post(later.url, content=body, headers=head)).status_code == 404


async def test_replicas_and_a_gateway_of_its_own_do_not_share_a_folder(tmp_path: Path) -> None:
    """And the next replica takes the place of one that has ended."""
    async with cluster(tmp_path, count=2) as replicas:
        assert _places(replicas.state_dir) == ["1", "2"]
        lines = await _refused(tmp_path, {})
        assert "already uses the state folder" in lines
        await replicas.gateways[0].stop()
        await replicas.gateways[1].stop()


def _places(state_dir: Path) -> list[str]:
    return sorted(folder.parent.name for folder in (state_dir / "replicas").glob("*/gateway.json"))


async def _refused(folder: Path, config: dict[str, Any]) -> str:
    with pytest.raises(AssertionError, match="did not get ready") as caught:
        async with gateway_process(folder, config):
            pass
    return str(caught.value)
