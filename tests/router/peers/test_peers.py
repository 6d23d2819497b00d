"""Which replica serves what, over any kind of address, and how a reverse proxy between replicas behaves."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import astuple

from pointsman.config.model import GatewayConfig
from pointsman.core.model import Caller
from pointsman.router.front.legacy.sessions import LIFE_S, Record, SessionIds
from pointsman.router.front.methods import initial_client
from pointsman.router.peers.peers import LOOK_S, Peers
from pointsman.router.peers.replica import Replica, new_id, rendezvous, replica_in
from pointsman.router.peers.signing import Signing
from pointsman.router.peers.unix_sockets import UnixDirectory, listen
from pointsman.router.serving.state_folder import locked, replica_folder, replica_folders
from tests.router.front.raw_http import call, request
from tests.router.front.served_front import Served, serving
from tests.router.front.small_gateway import SmallGateway

KEYS = ("k" * 64,)
RECORD = Record(Caller("a", None), None, initial_client("c", "2025-11-25", {"roots": {}}))


@dataclass
class Known:
    """Fits `Directory`: what a database would say."""

    replicas: list[Replica] = field(default_factory=list)

    async def announce(self, replica: Replica) -> None:
        self.replicas.append(replica)

    async def withdraw(self) -> None: ...

    def living(self) -> Sequence[Replica]:
        return tuple(self.replicas)


@asynccontextmanager
async def fronts(count: int = 2) -> AsyncIterator[tuple[list[Served], Known]]:
    """Fronts that reach one another over TCP."""
    known = Known()
    async with AsyncExitStack() as stack:
        served = []
        for _ in range(count):
            own = Replica(new_id(), "")
            peers = Peers(own, known, KEYS)
            one = await stack.enter_async_context(serving(SmallGateway(), peers=peers, request_keys=KEYS))
            peers.own = Replica(own.id, f"tcp:127.0.0.1:{one.port}")
            await known.announce(peers.own)
            served.append(one)
        yield served, known


async def test_replicas_reach_one_another_over_tcp() -> None:
    async with fronts() as ((first, second), _):
        session = await first.open_session()
        stream = await second.start(None, verb="GET", headers=session)
        assert "200 OK" in await stream.head()
        gone = await second.send(None, verb="DELETE", headers=session)
        assert gone.status == 200
        assert (await first.send(call("echo"), headers=session)).status == 404


async def test_a_deletion_that_comes_back_from_another_replica_before_it_is_answered_has_succeeded() -> None:
    async with fronts() as ((first, second), _):
        # What the shared file or the database does, without delay.
        second.front.sessions.on_end = lambda digest: first.front.sessions.end_elsewhere({digest: LIFE_S})
        session = await first.open_session()
        assert (await first.send(None, verb="DELETE", headers=session)).status == 200
        for one in (first, second):
            assert (await one.send(call("echo"), headers=session)).status == 404
            assert (await one.send(None, verb="DELETE", headers=session)).status == 404


async def test_an_answer_that_was_not_delivered_can_be_sent_again() -> None:
    """As when a gateway starts while the database is away, and learns later who the others are."""
    async with fronts() as ((first, second), known):
        session = await first.open_session()
        answer = {"jsonrpc": "2.0", "id": f"{known.replicas[0].id}.1", "result": {}}
        peers = second.front._peers
        assert peers is not None
        peers.directory = Known([peers.own])
        assert (await second.send(answer, headers=session)).status == 503
        gone = Replica(known.replicas[0].id, "tcp:127.0.0.1:1")
        peers.directory = Known([peers.own, gone])
        assert (await second.send(answer, headers=session)).status == 503
        peers.directory = known
        assert (await second.send(answer, headers=session)).status == 202
        assert (await first.send(answer, headers=session)).status == 202  # its own: it fits no open question


async def test_a_peer_that_refuses_our_signature_is_not_the_clients_fault(caplog: pytest.LogCaptureFixture) -> None:
    async with fronts() as ((first, second), known):
        session = await second.open_session()
        assert first.front._peers is not None
        first.front._peers._signing = Signing(("o" * 64,), known.replicas[0].id)
        answer = {"jsonrpc": "2.0", "id": f"{known.replicas[1].id}.1", "result": {}}
        for _ in range(2):
            refused = await first.send(answer, headers=session)
            assert refused.status == 502
            assert "so nothing was carried out. Make the call again" in refused.json["error"]["message"]
        assert (await first.send(_subscribe(), headers=session)).status == 200  # served here
        assert (await first.send(None, verb="DELETE", headers=session)).status == 200
        said = [record for record in caplog.records if "refuses the signature" in record.message]
        assert [record.message.split()[1] for record in said] == [known.replicas[1].id]


async def test_a_peer_that_accepts_and_never_answers_costs_the_client_nothing_else() -> None:
    """The client's own disconnect ends the wait; a plain call never goes there."""
    async with fronts() as ((first, _), known):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            known.replicas.append(Replica("00000001", f"tcp:127.0.0.1:{silent.getsockname()[1]}"))
            session = [("Mcp-Session-Id", "00000001.aa")]
            waiting = await first.start(call("echo"), headers=session)
            connection, _address = await asyncio.to_thread(silent.accept)
            with connection:
                await waiting.close()
                connection.settimeout(10)
                assert await asyncio.to_thread(_read_to_end, connection)
            assert (await first.send(call("echo", {"text": "on"}), headers=await first.open_session())).text == "on"


async def test_a_peer_that_hangs_is_lost_once_it_counts_as_gone() -> None:
    async with fronts() as ((first, _), known):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            known.replicas.append(Replica("00000001", f"tcp:127.0.0.1:{silent.getsockname()[1]}"))
            sending = asyncio.ensure_future(first.send(call("echo"), headers=[("Mcp-Session-Id", "00000001.aa")]))
            connection, _address = await asyncio.to_thread(silent.accept)
            with connection:
                await asyncio.sleep(2 * LOOK_S)
                assert not sending.done()
                del known.replicas[-1]
                lost = await asyncio.wait_for(sending, 10)
        assert lost.status == 502
        assert "check before you repeat it" in lost.json["error"]["message"]


async def test_a_peer_that_answers_keeps_what_is_under_way_although_it_seems_to_be_gone() -> None:
    """As for a moment after an outage of the database."""
    async with fronts() as ((first, second), known):
        session = await first.open_session()
        stream = await second.start(None, verb="GET", headers=session)
        assert "200 OK" in await stream.head()
        peers = second.front._peers
        assert peers is not None
        peers.directory = Known([peers.own])
        await asyncio.sleep(3 * LOOK_S)
        assert [each.id for each in peers._carried.values()] == [known.replicas[0].id]


def _read_to_end(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(65_536):
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\ncontent-le", b"x" * 200_000, b"220 mail.example\r\n\r\n", b"\r\n\r\n"],
    ids=["nothing", "half a head", "an endless head", "another protocol", "no status"],
)
async def test_a_peer_that_ends_before_it_answers_is_502(answer: bytes) -> None:
    async with fronts() as ((first, _), known), _answering(answer) as port:
        known.replicas.append(Replica("00000001", f"tcp:127.0.0.1:{port}"))
        lost = await first.send(call("echo"), headers=[("Mcp-Session-Id", "00000001.aa")])
        assert lost.status == 502
        assert "check before you repeat it" in lost.json["error"]["message"]


async def test_a_peer_that_ends_in_the_middle_of_an_answer_does_not_make_it_look_complete() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    async with fronts() as ((first, _), known), _answering(head) as port:
        known.replicas.append(Replica("00000001", f"tcp:127.0.0.1:{port}"))
        connection = await first.connect()
        connection.send(request(first.port, call("echo"), headers=[("Mcp-Session-Id", "00000001.aa")]))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await connection.answer()


@asynccontextmanager
async def _answering(answer: bytes) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_carried_message_is_not_carried_again() -> None:
    """Each of two replicas believes that the session is at the other one: no circle, one of them serves it."""
    async with fronts() as ((first, second), known):
        here, there = known.replicas
        session = [("Mcp-Session-Id", SessionIds(KEYS, replica="0badf00d").mint(RECORD))]
        for one, other in ((first, there), (second, here)):
            peers = one.front._peers
            assert peers is not None
            peers.directory = Known([other])
        assert (await first.send(_subscribe(), headers=session)).status == 200
        assert [len(one.gateway.requests) for one in (first, second)] == [0, 1]


def _subscribe() -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": "a:b"}}


def test_the_host_of_another_replica_is_known() -> None:
    others = [Replica("00000001", "tcp:10.0.0.5:3282"), Replica("00000002", "tcp:[fd00::1]:3282")]
    own = Replica("00000000", "tcp:10.0.0.4:3282")
    peers = Peers(own, Known([own, *others]), KEYS)
    assert [peers.has_host(host) for host in ("10.0.0.5", "fd00::1", "10.0.0.4", "10.0.0.55")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_replica_that_goes_moves_only_its_own_keys() -> None:
    replicas = [Replica(f"{number:08x}", "") for number in range(5)]
    keys = [f"session-{number}" for number in range(500)]
    before = {key: rendezvous(key, replicas)[0] for key in keys}
    after = {key: rendezvous(key, replicas[1:])[0] for key in keys}
    assert {key for key in keys if before[key] != after[key]} == {key for key in keys if before[key] is replicas[0]}
    assert min(Counter(before.values()).values()) > 50
    assert rendezvous("x", replicas) == rendezvous("x", replicas[::-1])


@pytest.mark.parametrize(
    "text", ["", "v1.abc", "5f3a9c21", "5F3A9C21.1", "5f3a9c2.1", "5f3a9c21.", "x5f3a9c21.1", 7, None]
)
def test_an_id_that_names_no_replica(text: object) -> None:
    assert replica_in(text) is None
    assert replica_in("5f3a9c21.1f") == "5f3a9c21"


async def test_only_a_replica_that_runs_is_listed(tmp_path: Path) -> None:
    directory = UnixDirectory(tmp_path)
    assert directory.living() == []
    with locked(tmp_path, shared=True), replica_folder(tmp_path) as first:
        with replica_folder(tmp_path) as second:
            assert [folder.name for folder in replica_folders(tmp_path)] == ["1", "2"]
            mine, mine_listening = listen(first, "aaaaaaaa")
            other, other_listening = listen(second, "bbbbbbbb")
            assert directory.living() == [mine, other]
            await directory.announce(mine)
        assert directory.living() == [mine]  # as after a SIGKILL: the socket's file is there, the lock is free
        with replica_folder(tmp_path) as again:
            assert again == second
            assert directory.living() == [mine, other]
            newer, newer_listening = listen(again, "cccccccc")
            assert directory.living() == [mine, newer]
        await directory.withdraw()
        assert directory.living() == []
    for listening in (mine_listening, other_listening, newer_listening):
        listening.close()


def test_session_ids_of_a_gateway_that_was_no_replica_are_understood() -> None:
    plain, replica = SessionIds(KEYS), SessionIds(KEYS, replica="aaaaaaaa")
    for made_by, read_by, home in ((plain, replica, None), (replica, plain, "aaaaaaaa")):
        restored = read_by.read(made_by.mint(RECORD))
        assert restored is not None
        assert (restored.home, restored.caller, restored.project) == (home, RECORD.caller, RECORD.project)
        assert astuple(restored.client) == astuple(RECORD.client)


def test_a_gateway_of_its_own_does_not_drain() -> None:
    config = GatewayConfig()
    assert config.state.replicas is False
    assert [config.listen.drain_for(replica=replica) for replica in (False, True)] == [0.0, 5.0]
    named = GatewayConfig.model_validate({"listen": {"drain_s": 0}})
    assert named.listen.drain_for(replica=True) == 0.0
