"""Replicas on one PostgreSQL, with a state folder each: what is with one of them, and what stays when it is killed."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pointsman.router.state.replicas import GONE_S
from tests.gateway_process import gateway_process
from tests.postgres import Postgres
from tests.router.conftest import audit_rows
from tests.router.peers.cluster import NEWS, TOKEN, Cluster, cluster
from tests.router.peers.test_life import CLIENTS, load, replica_id, speaking
from tests.router.peers.test_scenarios import UPDATED, execute
from tests.router.raw_client import Speaker, speaker

pytestmark = pytest.mark.replicas

LONG_S = 90.0


async def test_a_stored_result_is_away_with_its_replica_and_back_with_its_folder(
    postgres: Postgres, tmp_path: Path
) -> None:
    database = postgres.new_database()
    named = {"peer_address": "localhost"}
    async with cluster(tmp_path, count=2, database=database, state=named) as replicas, asyncio.timeout(LONG_S):
        first, second = replicas.gateways
        assert f"at tcp:localhost:{replicas.ports[0]}" in (first.state_dir / "logs" / "pointsman.log").read_text()
        async with speaker(first, "modern") as one:
            large = {"toolKey": "news:echo", "arguments": {"size": 100_000}}
            handle = (await one.call("tool_execute", large))["structuredContent"]["handle"]
            one.url = second.url
            assert (await _read(one, handle))["structuredContent"]["result"].startswith("xxx")
            await _kill(replicas)
            gone = await _read(one, handle)
            assert gone["isError"]
            assert "The gateway that stored it has ended or cannot be reached." in gone["content"][0]["text"]
            async with gateway_process(replicas.folder / "0", replicas.settings, token=TOKEN) as again:
                one.url = again.url
                assert (await _read(one, handle))["structuredContent"]["result"].startswith("xxx")
                one.url = second.url  # it learns who has the folder now
                while (found := await _read(one, handle)).get("isError"):
                    await asyncio.sleep(0.2)
                assert found["structuredContent"]["result"].startswith("xxx")


async def _read(one: Speaker, handle: str) -> dict[str, Any]:
    wanted = {"toolKey": "pointsman:result", "arguments": {"handle": handle}}
    result: dict[str, Any] = await one.call("tool_execute", wanted)
    return result


async def test_a_replica_that_is_killed_loses_only_what_was_in_flight(postgres: Postgres, tmp_path: Path) -> None:
    database = postgres.new_database()
    async with (
        asyncio.timeout(LONG_S),
        cluster(tmp_path, database=database, audit={"arguments": True}) as replicas,
        replicas.proxy("forwarder"),
    ):
        async with load(replicas) as loaded, speaker(replicas.gateways[0], "modern") as one:
            await loaded.until_done(50)
            killed = await replica_id(replicas.gateways[0])
            stays = asyncio.ensure_future(one.message("tools/call", execute("modern:stay", "stays")))
            await replicas.until_noted("began", "stays")
            await _kill(replicas)
            try:
                await stays
                raise AssertionError("a call in flight was answered")
            except httpx2.HTTPError:
                pass
            await loaded.until_done(50)
        began = replicas.noted("began")
        assert len(began) == len(set(began))  # no tool ran twice
        assert set(loaded.done) <= set(began)
        in_flight = [tag for tag in loaded.lost if tag in began]
        assert len(in_flight) <= CLIENTS
        async with gateway_process(replicas.folder / "0", replicas.settings, token=TOKEN):
            rows = await _until_all_have_ended(replicas, {*began})
        assert [tag for tag in loaded.done if rows[tag]["outcome"] != "ok"] == []
        assert rows["stays"]["outcome"] == "interrupted"
        lost = [rows[tag] for tag in loaded.lost if tag in rows]  # the others found no gateway, and nothing ran
        assert {row["outcome"] for row in lost} <= {"interrupted", "ok"}  # ok: killed before it could answer
        assert {row["replica"] for row in [*lost, rows["stays"]]} == {killed}


async def test_what_is_under_way_to_a_replica_that_hangs_ends_when_it_counts_as_gone(
    postgres: Postgres, tmp_path: Path
) -> None:
    async with (
        cluster(tmp_path, count=2, database=postgres.new_database()) as replicas,
        speaking(replicas, 0, "legacy") as session,
        speaking(replicas, 0, "modern") as one,
    ):
        params = execute("legacy:name", "parked")
        parked = await one.result("tools/call", params)
        answer = {"action": "accept", "content": {"name": "ada"}}
        retry = params | {"inputResponses": {"q1": answer}, "requestState": parked["requestState"]}
        one.url = session.url = replicas.gateways[1].url
        replicas.gateways[0].send_signal(signal.SIGSTOP)
        try:
            async with asyncio.timeout(GONE_S + 8):
                lost, subscribed = await asyncio.gather(
                    one.error("tools/call", retry), session.result("resources/subscribe", {"uri": NEWS})
                )
            assert "It may have been carried out all the same" in lost["message"]  # if the replica goes on
            assert subscribed == {}
            async with session.stream(NEWS) as changes:
                replicas.news.push({"method": UPDATED, "params": {"uri": "note://a"}})
                assert (await changes.next(UPDATED))["uri"] == NEWS
        finally:
            replicas.gateways[0].send_signal(signal.SIGCONT)


async def _kill(replicas: Cluster) -> None:
    replicas.gateways[0].send_signal(signal.SIGKILL)
    await replicas.gateways[0].process.wait()


async def _until_all_have_ended(replicas: Cluster, tags: set[str]) -> dict[str, dict[str, Any]]:
    """The rows by tag, as a replica that was not killed reads them."""
    while True:
        rows = await audit_rows(replicas.gateways[1].state_dir, "--limit", "100000")
        by_tag = {row["arguments"]["tag"]: row for row in rows}
        assert len(by_tag) == len(rows)  # no row came twice
        if tags <= by_tag.keys() and all(row["outcome"] is not None for row in rows):
            return by_tag
        await asyncio.sleep(0.2)
