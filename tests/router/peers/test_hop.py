"""What a stranger can do with the hop between replicas: nothing. A signature counts once, for one receiver, briefly."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pointsman.router.peers.signing import WINDOW_S, ForgedError, Signing, has_digest, target_of
from tests.gateway_process import GatewayProcess
from tests.router.cli.commands import run
from tests.router.conftest import audit_rows
from tests.router.peers.cluster import Cluster, cluster
from tests.router.peers.test_scenarios import FORMS, execute
from tests.router.raw_client import Speaker, speaker

KEY, OTHER_KEY = "k" * 64, "o" * 64
HEADERS = [(b"authorization", b"Bearer t"), (b"mcp-session-id", b"s"), (b"user-agent", b"u")]
NEVER = "is not from a replica of this gateway"


@pytest.fixture(scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path_factory.mktemp("two"), count=2) as replicas:
        yield replicas


async def replica_id(gateway: GatewayProcess) -> str:
    async with httpx2.AsyncClient(headers=gateway.headers) as http:
        replicas = (await http.get(f"{gateway.base_url}/health")).json()["replicas"]
    assert replicas["living"] == 2
    this: str = replicas["this"]
    return this


class Peer:
    """Somebody who has the request key and sends a ping to a replica."""

    def __init__(self, one: Speaker, key: str, to: str, clock: Callable[[], float] = time.time) -> None:
        self._one = one
        self._signing = Signing([key], "00000000", clock)
        self._to = to
        self.body = json.dumps(one._body("ping", {})).encode()
        self.head = one._head("ping", {}) | {"Host": "pointsman"}

    def signed(self, verb: str = "POST", path: str = "/mcp") -> dict[str, str]:
        lines = [(name.lower().encode(), value.encode()) for name, value in self.head.items()]
        mark = self._signing.sign(self._to, verb, target_of(path, b""), lines, self.body)
        return {**self.head, "X-Pointsman-Peer": mark.decode()}

    async def send(self, head: dict[str, str], body: bytes | None = None) -> httpx2.Response:
        return await self._one.http.post(self._one.url, content=body or self.body, headers=head)


@pytest.fixture
async def peer(two: Cluster) -> AsyncIterator[Callable[..., Peer]]:
    key = (two.state_dir / "request.key").read_text()
    to = await replica_id(two.gateways[0])
    async with asyncio.timeout(30), speaker(two.gateways[0], "legacy") as one:
        yield lambda key=key, to=to, clock=time.time: Peer(one, key, to, clock)


async def refused(response: httpx2.Response) -> bool:
    return response.status_code == 403 and NEVER in response.text


async def test_a_signed_message_is_served_once(peer: Callable[..., Peer]) -> None:
    sender = peer()
    head = sender.signed()
    assert (await sender.send(head)).json()["result"] == {}
    assert await refused(await sender.send(head))  # a replay
    assert (await sender.send(sender.signed())).status_code == 200


async def test_a_stranger_with_a_header_of_its_own_is_refused(peer: Callable[..., Peer]) -> None:
    sender = peer()
    marks = ("1", "a.b.c", f"{time.time() * 1e6:.0f}.{'0' * 64}.{'0' * 64}", "." * 100, "9" * 5000)
    for mark in marks:
        assert await refused(await sender.send({**sender.head, "X-Pointsman-Peer": mark}))
    assert await refused(await peer(key=OTHER_KEY).send(peer(key=OTHER_KEY).signed()))


async def test_doctor_names_a_header_that_is_not_from_a_replica(two: Cluster, peer: Callable[..., Peer]) -> None:
    sender = peer()
    assert await refused(await sender.send({**sender.head, "X-Pointsman-Peer": "1"}))
    rows = [row for row in await audit_rows(two.state_dir) if row["outcome"] == "denied"]
    assert rows[-1]["code"] == "unknown_replica"  # other tests may have left rows before
    examined = (await run(two.folder, "doctor")).stdout
    assert "it sent a header `X-Pointsman-Peer` that is not from a replica of this gateway" in examined
    assert "there is no project of the name" not in examined


async def test_an_old_an_early_and_a_misdirected_message_are_refused(peer: Callable[..., Peer]) -> None:
    for off_s in (-WINDOW_S - 2, WINDOW_S + 2):
        sender = peer(clock=lambda off_s=off_s: time.time() + off_s)
        assert await refused(await sender.send(sender.signed()))
    sender = peer(to="0badf00d")
    assert await refused(await sender.send(sender.signed()))


async def test_what_was_signed_cannot_be_changed(peer: Callable[..., Peer]) -> None:
    sender = peer()
    other = sender.body.replace(b"ping", b"pong")
    assert await refused(await sender.send(sender.signed(), other))
    assert await refused(await sender.send(sender.signed(verb="DELETE")))
    assert await refused(await sender.send(sender.signed(path="/projects/a/mcp")))
    assert await refused(await sender.send({**sender.signed(), "Authorization": "Bearer another"}))
    assert await refused(await sender.send({**sender.signed(), "Last-Event-ID": "1-1-1"}))


async def test_a_signature_gives_no_rights(peer: Callable[..., Peer]) -> None:
    """The receiving replica identifies the caller again."""
    sender = peer()
    sender.head["Authorization"] = "Bearer ptm_" + "n" * 40
    assert (await sender.send(sender.signed())).status_code == 401
    sender.head["Authorization"] = ""
    assert (await sender.send(sender.signed())).status_code == 401


async def test_the_header_does_not_help_without_a_hop_either(peer: Callable[..., Peer]) -> None:
    sender = peer()
    assert (await sender.send(sender.head)).status_code == 421  # the Host of carried messages is nobody else's


@pytest.mark.parametrize("shape", ["{address}.1", "unix:{path}.1", "{path}", "tcp:{address}"])
async def test_an_address_in_an_id_leads_nowhere(two: Cluster, tmp_path: Path, shape: str) -> None:
    connected: list[object] = []
    tcp = await asyncio.start_server(lambda reader, writer: connected.append(writer), "127.0.0.1", 0)
    unix = await asyncio.start_unix_server(lambda reader, writer: connected.append(writer), tmp_path / "0badf00d.sock")
    address = f"127.0.0.1:{tcp.sockets[0].getsockname()[1]}"
    named = shape.format(address=address, path=tmp_path / "0badf00d.sock")
    async with tcp, unix, asyncio.timeout(30), speaker(two.gateways[0], "legacy", capabilities=FORMS) as one:
        reply = {"jsonrpc": "2.0", "id": named, "result": {}}
        sent = await one.http.post(one.url, content=json.dumps(reply), headers=one._head("", {}))
        assert sent.status_code == 202  # as for any answer that fits no question
        stream = {**one.headers, "Accept": "text/event-stream", "Last-Event-ID": f"{named}-1-1"}
        async with one.http.stream("GET", one.url, headers=stream) as response:
            assert response.status_code in (
                200,
                400,
            )  # its own stream, or none; 200: it does not look like an event's id
        for session_id in (named, "0badf00d.aa"):
            foreign = {**one._head("ping", {}), "Mcp-Session-Id": session_id}
            body = json.dumps(one._body("ping", {}))
            assert (await one.http.post(one.url, content=body, headers=foreign)).status_code == 404
            assert (await one.http.delete(one.url, headers=foreign)).status_code == 404
        line = f"{two.gateways[0].base_url}/messages/?session_id={named}"
        assert (await one.http.post(line, content=body, headers=one._head("ping", {}))).status_code == 404
        assert connected == []


async def test_a_line_break_in_a_path_stays_in_the_path(two: Cluster) -> None:
    """The path is decoded when it arrives: sent on as it is, it could smuggle a request."""
    at = await replica_id(two.gateways[1])
    async with asyncio.timeout(30), speaker(two.gateways[0], "legacy") as one:
        smuggled = "a%20HTTP/1.1%0d%0aHost:%20pointsman%0d%0a%0d%0aGET%20/"
        url = one.url.replace("/mcp", f"/projects/{smuggled}/mcp")
        head = {**one._head("ping", {}), "Mcp-Session-Id": f"{at}.aa"}
        response = await one.http.post(url, content=json.dumps(one._body("ping", {})), headers=head)
        assert response.status_code in (403, 404)
        assert (await one.result("ping")) == {}


async def test_another_token_cannot_answer_over_the_hop(two: Cluster) -> None:
    """A question's id says where its call runs, and nothing more."""
    async with asyncio.timeout(30), speaker(two.gateways[0], "legacy", capabilities=FORMS) as one:
        params = execute("legacy:name", "mine")
        body, head = json.dumps(one._body("tools/call", params)), one._head("tools/call", params)
        async with one.http.stream("POST", one.url, content=body, headers=head) as response:
            lines = response.aiter_lines()
            question = await _message(lines)
            reply: dict[str, Any] = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
            elsewhere = two.gateways[1].url
            stranger = {**one._head("", {}), "Authorization": "Bearer ptm_" + "n" * 40}
            assert (await one.http.post(elsewhere, content=json.dumps(reply), headers=stranger)).status_code == 401
            async with speaker(two.gateways[1], "legacy") as other:  # the same token, another session
                sent = await other.http.post(elsewhere, content=json.dumps(reply), headers=other._head("", {}))
                assert sent.status_code == 202
            reply["result"] = {"action": "accept", "content": {"name": "ada"}}
            sent = await one.http.post(elsewhere, content=json.dumps(reply), headers=one._head("", {}))
            assert sent.status_code == 202
            assert (await _message(lines))["result"]["content"][0]["text"] == "ada"


async def _message(lines: AsyncIterator[str]) -> dict[str, Any]:
    async for line in lines:
        if line.startswith("data:") and line[5:].strip():
            message: dict[str, Any] = json.loads(line[5:])
            return message
    raise AssertionError("the stream ended")


def test_a_signature_covers_what_is_sent_on_and_nothing_else() -> None:
    signing, receiver = Signing([KEY], "aaaaaaaa"), Signing([OTHER_KEY, KEY], "bbbbbbbb")
    mark = signing.sign("bbbbbbbb", "POST", "/mcp", HEADERS, b"{}")
    other_agent = [*HEADERS[:2], (b"user-agent", b"w"), (b"x-pointsman-peer", mark)]
    assert has_digest(b"{}", receiver.verified(mark, "POST", "/mcp", other_agent))
    with pytest.raises(ForgedError):
        Signing([OTHER_KEY], "bbbbbbbb").verified(mark, "POST", "/mcp", HEADERS)
    with pytest.raises(ForgedError):
        receiver.verified(signing.sign("bbbbbbbb", "POST", "/mcp", HEADERS[:1], b""), "POST", "/mcp", HEADERS)
