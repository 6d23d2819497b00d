"""Open connections: the longest idle one is closed for a newcomer, and one address has at most half of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from pointsman.config.model import Limits
from pointsman.router.front.http.connections import address_key, is_exempt
from tests.gateway_process import gateway_process
from tests.router.front.raw_http import LONG_S, Connection, call, request
from tests.router.front.served_front import Served, serving
from tests.search_api_process import search_api_process

HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"


@pytest.mark.parametrize(
    ("host", "proxies", "exempt"),
    [
        ("127.0.0.1", (), True),
        ("127.8.9.10", (), True),
        ("::1", (), True),
        ("::ffff:127.0.0.1", (), True),
        ("10.0.0.5", (), False),
        ("10.0.0.5", ("10.0.0.5",), True),
        ("10.0.0.6", ("10.0.0.5",), False),
        ("10.0.0.6", ("10.0.0.0/24",), True),
        ("::ffff:10.0.0.6", ("10.0.0.0/24",), True),
        ("10.0.1.6", ("10.0.0.0/24", "fd00::/8"), False),
        ("fd00::7", ("10.0.0.0/24", "fd00::/8"), True),
        ("fe80::1%eth0", ("fe80::/10",), True),
        ("2001:db8::1", ("fd00::/8",), False),
        ("not an address", ("10.0.0.0/24",), False),
    ],
)
def test_who_may_have_more_than_half_of_the_connections(host: str, proxies: tuple[str, ...], exempt: bool) -> None:
    assert is_exempt(host, proxies) is exempt


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "10.0.0.6", False),
        ("::ffff:10.0.0.5", "10.0.0.5", True),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
    ],
)
def test_what_counts_as_one_address(one: str, other: str, same: bool) -> None:
    assert (address_key(one) == address_key(other)) is same


async def connect(port: int, source: str = "127.0.0.1") -> Connection:
    return Connection(*await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0), limit=1 << 26))


@asynccontextmanager
async def strangers(port: int, number: int, source: str = "127.0.0.1") -> AsyncIterator[list[Connection]]:
    """Connections that ask for /health once and then stay open."""
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(number):
            connection = await connect(port, source)
            stack.push_async_callback(connection.close)
            connection.send(HEALTH % port)
            opened.append(connection)
        yield opened


async def status_of_health(port: int, source: str = "127.0.0.1") -> int:
    connection = await connect(port, source)
    connection.send(HEALTH % port)
    answer = await connection.answer()
    await connection.close()
    return answer.status


@pytest.mark.parametrize(("most", "number"), [(20, 50), (None, 1001)])
async def test_a_stranger_with_many_idle_connections_does_not_shut_others_out(
    tmp_path: Path, most: int | None, number: int
) -> None:
    config = {} if most is None else {"limits": {"connections": most}}
    async with gateway_process(tmp_path, config) as gateway:
        port = int(gateway.base_url.rpartition(":")[2])
        async with strangers(port, number) as opened:
            for connection in opened[-10:]:
                assert (await connection.answer()).status == 200, "the newest stay"
            for _ in range(5):
                assert await status_of_health(port) == 200
            assert b"HTTP/1.1 503" not in await opened[0].closed(), "the longest idle one made room"


async def test_the_search_service_makes_room_as_well(tmp_path: Path) -> None:
    async with (
        search_api_process(tmp_path, {"limits": {"connections": 20}}) as service,
        strangers(service.port, 50) as opened,
    ):
        assert (await opened[-1].answer()).status == 200
        assert await status_of_health(service.port) == 200
        await opened[0].closed()


async def busy_connections(served: Served, number: int, source: str = "127.0.0.1") -> list[Connection]:
    session = await served.open_session()
    opened = []
    for _ in range(number):
        connection = await connect(served.port, source)
        connection.send(request(served.port, call("slow"), headers=session))
        await served.gateway.entered.acquire()
        opened.append(connection)
    return opened


async def until_connections(served: Served, number: int) -> None:
    async with asyncio.timeout(LONG_S):
        while served.connections != number:
            await asyncio.sleep(0.01)


async def test_a_connection_with_a_request_under_way_or_a_stream_is_never_closed_for_a_newcomer() -> None:
    async with serving(limits=Limits(connections=4)) as served:
        session = await served.open_session()
        await until_connections(served, 0)
        stream = await served.start(None, verb="GET", headers=session)
        await served.gateway.listening.acquire()
        running = [*await busy_connections(served, 2)]
        idle = await connect(served.port)
        await until_connections(served, 4)
        newcomer = await served.send(call("echo"), headers=session)
        assert newcomer.status == 200
        assert await idle.closed() == b""
        served.gateway.leave.set()
        for connection in running:
            assert (await connection.answer()).status == 200
        assert served.connections == 3
        for connection in (stream, idle, *running):
            await connection.close()


async def test_where_all_are_busy_a_newcomer_gets_a_503_with_retry_after() -> None:
    async with serving(limits=Limits(connections=3)) as served:
        running = await busy_connections(served, 3)
        answer = await served.send(call("echo"))
        assert (answer.status, answer.headers["connection"]) == (503, "close")
        assert "retry-after" in answer.headers
        served.gateway.leave.set()
        for connection in running:
            assert (await connection.answer()).status == 200
            await connection.close()


async def test_one_address_has_at_most_half_and_its_own_idle_ones_make_room_first() -> None:
    async with serving(limits=Limits(connections=8), exempt=lambda host: host == "127.0.0.9") as served:
        patient = await connect(served.port, "127.0.0.3")
        await until_connections(served, 1)
        greedy = [await connect(served.port, "127.0.0.2") for _ in range(12)]
        await until_connections(served, 5)
        for connection in greedy[:8]:
            assert await connection.closed() == b""
        patient.send(HEALTH % served.port)
        assert (await patient.answer()).status == 404, "the idle connection of another address is untouched"
        for connection in (patient, *greedy):
            await connection.close()


async def test_one_address_that_keeps_its_half_busy_is_refused_and_others_are_served() -> None:
    async with serving(limits=Limits(connections=8), exempt=lambda host: host == "127.0.0.9") as served:
        await until_connections(served, 0)
        running = await busy_connections(served, 4, "127.0.0.2")
        assert await status_of_health(served.port, "127.0.0.2") == 503
        assert await status_of_health(served.port, "127.0.0.3") == 404
        proxied = await busy_connections(served, 4, "127.0.0.9")
        assert await status_of_health(served.port, "127.0.0.3") == 503, "now there is no room at all"
        served.gateway.leave.set()
        for connection in (*running, *proxied):
            assert (await connection.answer()).status == 200
            await connection.close()


async def test_a_trusted_proxy_may_have_more_than_half() -> None:
    async with serving(limits=Limits(connections=8), exempt=lambda host: host == "127.0.0.9") as served:
        running = await busy_connections(served, 7, "127.0.0.9")
        assert await status_of_health(served.port, "127.0.0.3") == 404
        served.gateway.leave.set()
        for connection in running:
            assert (await connection.answer()).status == 200
            await connection.close()


async def test_far_too_many_connections_are_closed_unheard() -> None:
    async with serving(limits=Limits(connections=1)) as served:
        running = await busy_connections(served, 1)
        more = [await connect(served.port) for _ in range(3)]
        assert b"" in [await connection.closed() for connection in more[1:]]
        for connection in (*running, *more):
            await connection.close()


async def test_keep_alive_is_short_once_half_of_the_connections_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pointsman.router.front.http.protocol.PRESSURE_KEEP_ALIVE_S", 0.2)
    async with serving(limits=Limits(connections=4), timeout_keep_alive=75) as served:
        first, second = await connect(served.port), await connect(served.port)
        await until_connections(served, 2)
        for connection in (first, second):
            connection.send(HEALTH % served.port)
            await connection.answer()
        assert await first.closed() == b""
        assert await second.closed() == b""
        third = await connect(served.port)
        third.send(HEALTH % served.port)
        await third.answer()
        await asyncio.sleep(0.6)
        third.send(HEALTH % served.port)
        assert (await third.answer()).status == 404, "without pressure it stays open"
        for connection in (first, second, third):
            await connection.close()
