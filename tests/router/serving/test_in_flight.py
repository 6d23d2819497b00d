"""Large answers and requests have one budget of memory for the whole daemon, and small ones never wait for it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from pointsman.router.serving.in_flight import InFlight, Lease
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import audit_rows
from tests.router.front.raw_http import modern_call, request
from tests.router.serving.test_fair_shares import SECRETS, TOKENS, resident_bytes
from tests.servers import http_mcp, stdio_server

MIB = 1 << 20
LONG_S = 120.0  # against hanging
BUDGET = 16 * MIB
# Beyond the two budgets: one answer that is being encoded (three copies), the first 256 KiB of each, free blocks.
# Without the budgets 40 answers take 200 MiB and more.
SPARE = 96 * MIB
SIZE = 4 * MIB
CALLERS = 40


class Peak(threading.Thread):
    """The most memory that a process had."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._over = threading.Event()
        self.before = self.bytes = resident_bytes(pid)

    def run(self) -> None:
        while not self._over.wait(0.005):
            self.bytes = max(self.bytes, resident_bytes(self._pid))

    @property
    def growth(self) -> int:
        return self.bytes - self.before

    def __enter__(self) -> Peak:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.join()


@asynccontextmanager
async def large_servers(
    folder: Path, answers: Literal["json", "sse"] = "json", preview_chars: int = 0
) -> AsyncIterator[GatewayProcess]:
    """Servers `http`, `stdio` and `pipe` with large answers, and `small` for bystanders."""
    async with http_mcp.serving("modern") as server:
        server.answers = answers
        server.tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
        child = {"command": sys.executable, "args": [stdio_server.__file__, "--large"]}
        servers = {"http": {"url": server.url}, "stdio": child, "pipe": child, "small": child}
        limits = {"in_flight_bytes": BUDGET, "unread_bytes": BUDGET, "result_preview_chars": preview_chars}
        timeouts = {"call_s": LONG_S}  # on a busy machine many large answers take longer than the default
        config = {"tokens": TOKENS, "servers": servers, "limits": limits, "timeouts": timeouts}
        async with gateway_process(folder, config, token=SECRETS["anna"]) as gateway:
            yield gateway


def port_of(gateway: GatewayProcess) -> int:
    return int(gateway.base_url.rpartition(":")[2])


async def ask(gateway: GatewayProcess, token: str, key: str, arguments: dict[str, Any], wait_s: float = 0) -> bytes:
    """The body of the answer. With `wait_s` the client reads nothing for so long, and has a small buffer.

    Raises ConnectionError where the answer ends too early.
    """
    loop, port = asyncio.get_running_loop(), port_of(gateway)
    body, headers = modern_call("tool_execute", {"toolKey": key, "arguments": arguments})
    with socket.socket() as sock:
        sock.setblocking(False)
        if wait_s:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await loop.sock_connect(sock, ("127.0.0.1", port))
        await loop.sock_sendall(sock, request(port, body, headers=headers, token=SECRETS[token]))
        received = bytearray()
        while b"\r\n\r\n" not in received:
            received += await _some(sock)
        await asyncio.sleep(wait_s)
        head, _, rest = bytes(received).partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        answer = bytearray(rest)
        # A call that waits for long is answered as an event stream, in chunks, the last of which is empty.
        while len(answer) < int(lengths[0].split(b":")[1]) if lengths else not answer.endswith(b"\r\n0\r\n\r\n"):
            answer += await _some(sock)
    return bytes(answer)


async def _some(sock: socket.socket) -> bytes:
    data = await asyncio.get_running_loop().sock_recv(sock, 1 << 20)
    if not data:
        raise ConnectionResetError
    return data


async def outcome(gateway: GatewayProcess, key: str, arguments: dict[str, Any], wait_s: float) -> str:
    try:
        answer = await ask(gateway, "anna", key, arguments, wait_s)
    except ConnectionResetError:
        return "reset"
    if len(answer) > SIZE:
        return "whole"
    if b'"handle":' in answer:
        return "preview"
    [code] = set(re.findall(rb'"error":\{"code":"(\w+)"', answer))
    return str(code, "ascii")


async def small_calls(gateway: GatewayProcess, until: asyncio.Event) -> int:
    """Calls of another token, one after the other; every one must be answered."""
    number = 0
    while not until.is_set():
        number += 1
        await small_call(gateway, number)
        await asyncio.sleep(0.01)  # the processor is for the large answers
    return number


async def small_call(gateway: GatewayProcess, number: int) -> None:
    answer = await ask(gateway, "ben", "small:echo", {"n": number})
    assert b'"arguments":{"n":%d}' % number in answer, answer


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("kind", "wait_s"),
    [("http", 0), ("http", 1), ("http stream", 0), ("stdio", 0), ("stdio", 1)],
    ids=lambda value: value if isinstance(value, str) else "slow readers" if value else "fast readers",
)
async def test_many_large_answers_at_once_are_bounded_in_memory(tmp_path: Path, kind: str, wait_s: float) -> None:
    keys = ["stdio:large", "pipe:large"] * (CALLERS // 2) if kind == "stdio" else ["http:echo"] * CALLERS
    arguments = {"bytes": SIZE, "size": SIZE}
    async with asyncio.timeout(LONG_S), large_servers(tmp_path, "sse" if kind == "http stream" else "json") as gateway:
        assert await outcome(gateway, keys[0], arguments, 0) == "whole"
        over = asyncio.Event()
        with Peak(gateway.pid) as peak:
            bystander = asyncio.create_task(small_calls(gateway, over))
            outcomes = Counter(await asyncio.gather(*(outcome(gateway, key, arguments, wait_s) for key in keys)))
            over.set()
            assert await bystander > 3  # calls; many more on a machine that nothing else uses
        assert peak.growth < 2 * BUDGET + SPARE
        assert set(outcomes) <= {"whole", "reset"}, "only readers that were too slow were cut, and they see that"
        assert outcomes["whole"] >= (1 if wait_s else CALLERS // 2)
        assert await outcome(gateway, keys[-1], arguments, 0) == "whole"


@pytest.mark.no_cover
async def test_many_large_answers_at_once_that_are_stored_are_bounded_in_memory(tmp_path: Path) -> None:
    arguments = {"bytes": SIZE}
    async with asyncio.timeout(LONG_S), large_servers(tmp_path, preview_chars=40_000) as gateway:
        while await outcome(gateway, "stdio:large", arguments, 0) != "preview":
            pass  # until the encryption is loaded
        over = asyncio.Event()
        with Peak(gateway.pid) as peak:
            bystander = asyncio.create_task(small_calls(gateway, over))
            keys = ["stdio:large", "pipe:large"] * (CALLERS // 2)
            outcomes = Counter(await asyncio.gather(*(outcome(gateway, key, arguments, 0) for key in keys)))
            over.set()
            assert await bystander > 3  # calls; many more on a machine that nothing else uses
        assert peak.growth < 2 * BUDGET + SPARE
        assert set(outcomes) <= {"whole", "preview"}
        assert outcomes["preview"] > 0


async def test_many_large_requests_at_once_are_refused_in_words_and_small_ones_are_not(tmp_path: Path) -> None:
    async with asyncio.timeout(LONG_S), large_servers(tmp_path) as gateway:
        port = port_of(gateway)
        text = "x" * (3 * MIB // 2)
        assert len(await ask(gateway, "ben", "small:echo", {"text": text})) > len(text)
        body, headers = modern_call("tool_execute", {"toolKey": "small:echo", "arguments": {"text": text}})
        data = request(port, body, headers=headers, token=SECRETS["anna"])
        with Peak(gateway.pid) as peak:
            connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
            for _, writer in connections:
                writer.write(data[:-1])  # each holds its body until its last byte has come
            heads = {asyncio.create_task(reader.readuntil(b"\r\n\r\n")): reader for reader, _ in connections}
            refused: set[asyncio.Task[bytes]] = set()
            while len(refused) < 99:
                refused |= (await asyncio.wait(heads.keys() - refused, return_when=asyncio.FIRST_COMPLETED))[0]
            await small_call(gateway, 1)
        assert peak.growth < BUDGET + SPARE
        for head in refused:
            assert head.result().startswith(b"HTTP/1.1 503"), head.result()
            assert b"retry-after: 1" in head.result()
        error = json.loads(await heads[next(iter(refused))].readuntil(b"}}}"))["error"]
        assert error["data"] == {"code": "overloaded"}
        assert "limits.in_flight_bytes" in error["message"]

        [admitted] = heads.keys() - refused
        for _, writer in connections:
            writer.write(data[-1:])
        assert (await admitted).startswith(b"HTTP/1.1 200")
        for _, writer in connections:
            writer.transport.abort()
        assert len(await ask(gateway, "anna", "small:echo", {"text": text})) > len(text)
    rows = await audit_rows(gateway.state_dir)
    assert sum(row.get("repeats", 1) for row in rows if row["code"] == "overloaded") == 99


async def test_one_server_has_half_and_the_others_go_on() -> None:
    budget = InFlight(lambda: 100)
    slow, other = budget.answers(), budget.answers()
    first = await slow.take(20)
    waiting = asyncio.create_task(slow.take(20))
    await asyncio.sleep(0)
    beside = await other.take(10)
    assert (budget.total, budget.waiting, waiting.done()) == (60, 1, False)
    first.release()
    first.release()  # the second time it means nothing
    last = await waiting
    assert (budget.total, budget.waiting) == (60, 0)
    for lease in (beside, last):
        lease.release()
    assert budget.total == 0


async def test_one_message_of_any_size_passes_and_nothing_overtakes_it() -> None:
    budget = InFlight(lambda: 100)
    one, two, three = (budget.answers() for _ in range(3))
    small = await one.take(10)
    huge = asyncio.create_task(two.take(500))
    await asyncio.sleep(0)
    behind = asyncio.create_task(three.take(10))
    await asyncio.sleep(0)
    assert budget.waiting == 2, "a small one behind it could keep it waiting indefinitely"
    small.release()
    (await huge).release()
    (await behind).release()
    assert (budget.total, budget.waiting) == (0, 0)


async def test_requests_never_have_all_so_that_their_answers_can_come() -> None:
    budget = InFlight(lambda: 1000)
    leases: list[Lease] = []
    for token in range(10):
        while lease := budget.request(f"{token}", 50):
            leases.append(lease)
    assert budget.total == 500
    assert budget.request("0", 50) is None
    answer = await asyncio.wait_for(budget.answers().take(200), 5)
    answer.release()
    for lease in leases:
        lease.release()
    assert budget.total == 0
    largest = budget.request("0", 5000)
    assert largest is not None, "nothing else is held"


async def test_a_reader_that_leaves_while_it_waits_frees_its_turn() -> None:
    budget = InFlight(lambda: 100)
    one, two, three = (budget.answers() for _ in range(3))
    first = await one.take(25)
    leaving = asyncio.create_task(two.take(50))
    await asyncio.sleep(0)
    behind = asyncio.create_task(three.take(20))
    await asyncio.sleep(0)
    leaving.cancel()
    lease = await asyncio.wait_for(behind, 5)
    granted = two.request(5)
    assert granted.done()
    two.withdraw(granted)
    first.release()
    lease.release()
    assert (budget.total, budget.waiting) == (0, 0)


async def test_a_shared_stream_goes_first() -> None:
    budget = InFlight(lambda: 100)
    one, two, pipe = (budget.answers() for _ in range(3))
    first = await one.take(40)
    later = asyncio.create_task(two.take(40))
    await asyncio.sleep(0)
    granted = pipe.request(40)
    first.release()
    assert granted.done()
    assert not later.done()
    pipe.withdraw(granted)
    (await later).release()
