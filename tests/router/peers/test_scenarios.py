"""What a client does over several requests works behind round robin, whichever replica each request arrives at."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from tests.e2e.client import BOTH_ERAS, Mode
from tests.e2e.people import person
from tests.router.conftest import audit_rows
from tests.router.peers.cluster import NEWS, Cluster, cluster
from tests.router.raw_client import ACCEPT, ERAS, Era, Speaker, speaker

pytestmark = pytest.mark.replicas

Json = dict[str, Any]
FORMS: Json = {"elicitation": {"form": {}}}
LARGE: Json = {"elicitation": {"form": {}}, "experimental": {"padding": {"text": "x" * 2000}}}
UPDATED = "notifications/resources/updated"
TIMES = 4  # more than there are replicas
LONG_S = 30.0


@pytest.fixture(scope="module", params=["files", "postgresql"])
async def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """On one machine, with unix sockets; and as on several, with a database and their ports."""
    database = None
    if request.param == "postgresql":
        database = request.getfixturevalue("postgres").new_database()
    async with cluster(tmp_path_factory.mktemp("three"), database=database) as replicas:
        yield replicas


@pytest.fixture(scope="module", params=["forwarder", pytest.param("haproxy", marks=pytest.mark.proxies)])
async def replicas(request: pytest.FixtureRequest, three: Cluster) -> AsyncIterator[Cluster]:
    """Three replicas behind a round-robin proxy, for all tests of this file."""
    async with three.proxy(request.param):
        yield three


@asynccontextmanager
async def client(replicas: Cluster, era: Era, capabilities: Json | None = None) -> AsyncIterator[Speaker]:
    async with asyncio.timeout(LONG_S), speaker(replicas.through, era, capabilities=capabilities) as one:
        yield one


def execute(key: str, tag: str) -> Json:
    return {"name": "tool_execute", "arguments": {"toolKey": key, "arguments": {"tag": tag}}}


async def answered(one: Speaker, key: str, tag: str) -> str:
    """Call a tool that asks for a name, and answer; a modern client does so with a retry."""
    params, answer = execute(key, tag), {"action": "accept", "content": {"name": f"ada-{tag}"}}
    if one.era == "legacy":
        result = await one.answering("tools/call", params, answer)
    else:
        asked = await one.result("tools/call", params)
        assert asked["resultType"] == "input_required"
        retry = {"inputResponses": dict.fromkeys(asked["inputRequests"], answer), "requestState": asked["requestState"]}
        result = await one.result("tools/call", params | retry)
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.parametrize("era", ERAS)
async def test_discovery_and_calls(replicas: Cluster, era: Era) -> None:
    async with client(replicas, era) as one:
        for number in range(TIMES):
            found = await one.call("tool_discovery", {"query": ["plain"]})
            assert "legacy:plain" in json.dumps(found)
            done = await one.result("tools/call", execute("modern:plain", str(number)))
            assert done["content"][0]["text"] == f"plain {number}"


@pytest.mark.parametrize("server", ["legacy", "modern"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_question_reaches_the_client_and_its_answer_the_call(replicas: Cluster, era: Era, server: str) -> None:
    async with client(replicas, era, FORMS) as one:
        for number in range(TIMES):
            assert await answered(one, f"{server}:name", f"{number}") == f"ada-{number}"


async def test_a_session_that_was_deleted_is_gone_at_all_replicas(replicas: Cluster) -> None:
    for _ in range(TIMES):
        async with client(replicas, "legacy") as one:
            gone = await one.http.delete(one.url, headers=one.headers)
            assert gone.status_code == 200
            for _ in replicas.gateways:
                body = json.dumps(one._body("ping", {}))
                assert (await one.http.post(one.url, content=body, headers=one._head("ping", {}))).status_code == 404


async def test_a_cancellation_reaches_the_call(replicas: Cluster) -> None:
    for number in range(TIMES):
        tag = f"cancelled-{number}-{secrets.token_hex(4)}"  # the servers' notes are those of all proxies
        async with client(replicas, "legacy") as one:
            calling = asyncio.ensure_future(one.message("tools/call", execute("modern:stay", tag)))
            await replicas.until_noted("began", tag)
            notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            sent = await one.http.post(one.url, content=json.dumps(notice), headers=one._head("", {}))
            assert sent.status_code == 202
            assert (await calling)["error"]["code"] == -32800
            await replicas.until_noted("cancelled", tag)


async def test_a_session_whose_capabilities_are_too_large_for_its_id(replicas: Cluster) -> None:
    for number in range(TIMES):
        async with client(replicas, "legacy", LARGE) as one:
            assert len(one.headers["Mcp-Session-Id"]) < 64
            for _ in replicas.gateways:
                assert (await one.result("ping")) == {}
            assert await answered(one, "legacy:name", f"{number}") == f"ada-{number}"
            assert (await one.http.delete(one.url, headers=one.headers)).status_code == 200
            assert "Session not found" in (await one.error("ping"))["message"]


async def test_the_old_sse_transport(replicas: Cluster) -> None:
    base, auth = replicas.through.base_url, replicas.through.headers
    accept = {"Accept": "text/event-stream"}
    for number in range(TIMES):
        async with (
            asyncio.timeout(LONG_S),
            httpx2.AsyncClient(headers=auth, timeout=LONG_S) as http,
            http.stream("GET", f"{base}/sse", headers=accept) as stream,
        ):
            lines = stream.aiter_lines()
            endpoint = await _data(lines)
            params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "a"}}
            for asked in (
                {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
                {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": execute("modern:plain", "x")},
            ):
                sent = await http.post(base + endpoint, json=asked, headers={"Accept": ACCEPT})
                assert sent.status_code == 202, (number, sent.text)
                assert json.loads(await _data(lines))["id"] == asked["id"]


async def _data(lines: AsyncIterator[str]) -> str:
    async for line in lines:
        if line.startswith("data:"):
            return line[5:].strip()
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("era", ERAS)
async def test_a_subscriber_hears_of_a_change(replicas: Cluster, era: Era) -> None:
    for _ in range(TIMES):
        async with client(replicas, era) as one, one.stream(NEWS) as changes:
            await _touch(replicas)
            assert (await changes.next(UPDATED))["uri"] == NEWS


async def test_who_has_unsubscribed_hears_of_nothing_more(replicas: Cluster) -> None:
    other = NEWS.replace("note://a", "note://b")
    async with client(replicas, "legacy") as one, one.stream(NEWS, other) as changes:
        await one.result("resources/unsubscribe", {"uri": NEWS})
        await _touch(replicas)
        replicas.news.push({"method": UPDATED, "params": {"uri": "note://b"}})
        assert (await changes.next(UPDATED))["uri"] == other


async def _touch(replicas: Cluster) -> None:
    """Change the resource once the replica that has subscribed also listens to the server's stream."""
    async with asyncio.timeout(LONG_S):
        while len(replicas.news.streams) < len(replicas.gateways):
            await asyncio.sleep(0.02)
    replicas.news.push({"method": UPDATED, "params": {"uri": "note://a"}})


async def test_a_stream_that_broke_is_resumed_by_its_last_event(replicas: Cluster) -> None:
    for number in range(TIMES):
        tag = f"resumed-{number}"
        async with client(replicas, "legacy", FORMS) as one:
            params = execute("legacy:name", tag)
            body, head = json.dumps(one._body("tools/call", params)), one._head("tools/call", params)
            async with one.http.stream("POST", one.url, content=body, headers=head) as response:
                event_id, question = await _event(response)
            resumed = {**one.headers, "Accept": "text/event-stream", "Last-Event-ID": event_id}
            async with one.http.stream("GET", one.url, headers=resumed) as response:
                assert response.status_code == 200
                answer = {"action": "accept", "content": {"name": tag}}
                reply = {"jsonrpc": "2.0", "id": question["id"], "result": answer}
                sent = await one.http.post(one.url, content=json.dumps(reply), headers=one._head("", {}))
                assert sent.status_code == 202
                assert (await _event(response))[1]["result"]["content"][0]["text"] == tag


async def _event(response: httpx2.Response) -> tuple[str, Json]:
    event_id = ""
    async for line in response.aiter_lines():
        if line.startswith("id:"):
            event_id = line[3:].strip()
        elif line.startswith("data:") and line[5:].strip():
            return event_id, json.loads(line[5:])
    raise AssertionError("the stream ended")


async def test_a_log_level_holds_at_all_replicas(replicas: Cluster) -> None:
    async with client(replicas, "legacy") as one:
        await one.result("logging/setLevel", {"level": "error"})
        params = execute("modern:report", "quiet")
        for _ in range(TIMES):
            body, head = json.dumps(one._body("tools/call", params)), one._head("tools/call", params)
            response = await one.http.post(one.url, content=body, headers=head)
            assert "a warning" not in response.text


async def test_a_token_in_meta_keeps_its_identity_over_the_hop(replicas: Cluster) -> None:
    """The answer to a question comes with the token in its `_meta` alone, if the client sends it there."""
    async with client(replicas, "modern", FORMS) as one:
        token = one.headers.pop("Authorization").removeprefix("Bearer ")
        one.meta = {"token": token}
        for number in range(TIMES):
            assert await answered(one, "legacy:name", f"meta-{number}") == f"ada-meta-{number}"


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_sdk_clients_are_asked_everything(replicas: Cluster, mode: Mode) -> None:
    async with person(replicas.through, mode) as (ada, model):
        for server in ("legacy", "modern"):
            for tag in ("a", "b"):
                assert await model.text(f"{server}:name", tag=tag) == f"ada:{tag}"
                assert await model.text(f"{server}:think", tag=tag) == f"ada:{tag}"
                assert await model.text(f"{server}:places", tag=tag) == "file:///ada"
                assert await model.text(f"{server}:twice", tag=tag) == f"ada:{tag}/1 ada:{tag}/2"
        assert len(ada.asked) == 2 * 2 * 4


@pytest.mark.parametrize("era", ERAS)
async def test_a_large_result_is_read_on_at_any_replica(replicas: Cluster, era: Era) -> None:
    async with client(replicas, era) as one:
        large = {"toolKey": "news:echo", "arguments": {"size": 100_000}}
        preview = (await one.call("tool_execute", large))["structuredContent"]
        for number in range(TIMES):
            wanted = {"handle": preview["handle"], "offset": 50_000 + number}
            slice_ = await one.call("tool_execute", {"toolKey": "pointsman:result", "arguments": wanted})
            assert slice_["structuredContent"]["result"].startswith("xxxxxxxxxx"), slice_


async def test_all_rows_of_all_replicas_are_in_one_audit(replicas: Cluster) -> None:
    async with client(replicas, "modern") as one:
        for number in range(2 * len(replicas.gateways)):
            await one.result("tools/call", execute("modern:plain", f"audited-{number}"))
    calls = 2 * len(replicas.gateways)
    async with asyncio.timeout(LONG_S):
        while True:  # in a database, rows of other replicas come when they are moved
            rows = await audit_rows(replicas.state_dir)
            if sum(row["toolKey"] == "modern:plain" for row in rows) >= calls:
                break
            await asyncio.sleep(0.2)
    seqs = [row["seq"] for row in rows]
    assert seqs == sorted(seqs)
