"""One token must not cost the others: shares of calls, turns at a busy server, unread answers and audit rows."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import audit_rows
from tests.router.front.raw_http import modern_call, request
from tests.router.raw_client import Json, Speaker, speaker
from tests.servers import http_mcp

LONG_S = 60.0  # against hanging
SECRETS = {name: f"ptm_{name * 20}" for name in ("anna", "ben", "cleo")}
TOKENS = {
    name: {"sha256": hashlib.sha256(secret.encode()).hexdigest(), "projects": ["*"], "servers": ["*"]}
    for name, secret in SECRETS.items()
}
EMPTY = {"type": "object"}
READS: dict[str, Json] = {
    "resources/read": {"uri": "pointsman+s+a://b"},
    "prompts/get": {"name": "s__p"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "s__p"}, "argument": {"name": "a", "value": ""}},
}
ASKING: Json = {"elicitation": {"form": {}}}


@dataclass
class Shared:
    gateway: GatewayProcess
    server: http_mcp.HttpMcp
    http: httpx2.AsyncClient

    def __post_init__(self) -> None:
        self.metrics_url = f"{self.gateway.base_url}/metrics"

    async def speaker(self, name: str, **capabilities: Any) -> Speaker:
        headers = {"Authorization": f"Bearer {SECRETS[name]}"}
        return Speaker("modern", self.http, self.gateway.url, headers, capabilities)

    async def gauge(self, name: str) -> int:
        text = (await self.http.get(self.metrics_url)).text
        found = re.search(rf"^pointsman_{name} (\S+)$", text, re.MULTILINE)
        assert found is not None, text
        return int(float(found[1]))

    async def until(self, name: str, value: int) -> None:
        async with asyncio.timeout(LONG_S):
            while await self.gauge(name) != value:
                await asyncio.sleep(0.02)

    async def arrived(self, number: int) -> None:
        async with asyncio.timeout(LONG_S):
            for _ in range(number):
                await self.server.arrived.acquire()

    async def until_idle(self) -> None:
        await self.until("requests_under_way", 0)
        await self.until("requests_queued", 0)


@asynccontextmanager
async def shared(folder: Path, era: Literal["legacy", "modern"] = "modern", **limits: Any) -> AsyncIterator[Shared]:
    """A gateway with three tokens and one server, `s`, whose tool `wait` answers when the test says so."""
    async with http_mcp.serving(era) as server:
        server.tools = [{"name": name, "inputSchema": EMPTY} for name in ("echo", "wait", "ask")]
        config = {"tokens": TOKENS, "servers": {"s": {"url": server.url}}, "limits": limits}
        unbounded = httpx2.Limits(max_connections=None)
        async with (
            gateway_process(folder, config, token=SECRETS["anna"]) as gateway,
            httpx2.AsyncClient(timeout=LONG_S, limits=unbounded) as http,
        ):
            yield Shared(gateway, server, http)
            server.gate.set()


async def execute(caller: Speaker, tool: str, **arguments: Any) -> Json:
    return await caller.call("tool_execute", {"toolKey": f"s:{tool}", "arguments": arguments})


def start(caller: Speaker, tool: str, number: int, **arguments: Any) -> list[asyncio.Task[Json]]:
    return [asyncio.create_task(execute(caller, tool, tag=f"{tag}", **arguments)) for tag in range(number)]


def code_of(result: Json) -> str:
    if not result.get("isError"):
        return "ok"
    error = result["structuredContent"]["error"]
    assert error["message"] == result["content"][0]["text"]
    if error["code"] == "rate_limited":
        assert error["retryAfterS"] >= 1
    code: str = error["code"]
    return code


def counted(rows: list[Json], **wanted: Any) -> int:
    """Calls that the rows stand for."""
    return sum(row.get("repeats", 1) for row in rows if all(row[key] == value for key, value in wanted.items()))


@pytest.mark.no_cover
async def test_400_calls_of_one_token_leave_the_server_and_the_gateway_to_the_others(tmp_path: Path) -> None:
    async with shared(tmp_path) as those:
        anna, ben = await those.speaker("anna"), await those.speaker("ben")
        calls = start(anna, "wait", 400)
        await those.arrived(64)
        async with asyncio.timeout(LONG_S):
            while sum(call.done() for call in calls) < 336:
                await asyncio.sleep(0.02)
        assert await those.gauge("requests_under_way") == 64

        assert code_of(await execute(ben, "echo")) == "ok"
        assert code_of(await ben.call("tool_discovery", {"query": ["echo"]})) == "ok"
        assert code_of(await anna.call("tool_discovery", {"query": ["echo"]})) == "rate_limited"
        refused = await anna.error("resources/list")
        assert (refused["data"]["code"], refused["data"]["retryAfterS"]) == ("rate_limited", 1)
        for method, params in READS.items():
            assert (await anna.error(method, params))["data"]["code"] == "rate_limited"

        those.server.gate.set()
        codes = Counter(code_of(result) for result in await asyncio.gather(*calls))
        assert codes == {"ok": 64, "rate_limited": 336}
        assert those.server.count("tools/call") == 65, "what was refused did not reach the server"
        await those.until_idle()
        assert code_of(await execute(anna, "echo")) == "ok"
    rows = await audit_rows(those.gateway.state_dir)
    assert counted(rows, token="anna", kind="execute", outcome="ok") == 65
    assert counted(rows, token="anna", kind="execute", outcome="denied", code="rate_limited") == 336
    assert counted(rows, token="anna", kind="discovery", outcome="denied", code="rate_limited") == 2
    assert counted(rows, token="anna", kind="read", outcome="denied", code="rate_limited") == len(READS)
    assert len([row for row in rows if row["code"] == "rate_limited"]) <= 8


async def test_tokens_take_turns_at_a_busy_server(tmp_path: Path) -> None:
    async with shared(tmp_path, server_calls=2) as those:
        anna, ben, cleo = [await those.speaker(name) for name in SECRETS]
        calls = start(anna, "wait", 20, who="anna")
        await those.arrived(2)
        await those.until("requests_queued", 18)
        calls += start(ben, "wait", 3, who="ben")
        await those.until("requests_queued", 21)
        calls += start(cleo, "wait", 1, who="cleo")
        await those.until("requests_queued", 22)
        those.server.gate.set()
        assert {code_of(result) for result in await asyncio.gather(*calls)} == {"ok"}
        await those.until_idle()
        order = [params["arguments"]["who"] for params in those.server.params if params.get("name") == "wait"]
    turns = order[2:]
    assert Counter(turns[:3]) == {"anna": 1, "ben": 1, "cleo": 1}, "however long one backlog is"
    assert Counter(turns[3:7]) == {"anna": 2, "ben": 2}
    assert set(turns[7:]) == {"anna"}


async def test_a_call_that_gets_no_turn_in_time_is_not_sent(tmp_path: Path) -> None:
    async with shared(tmp_path, server_calls=1, queue_s=0.3) as those:
        anna, ben = await those.speaker("anna"), await those.speaker("ben")
        [running] = start(anna, "wait", 1)
        await those.arrived(1)
        assert code_of(await execute(ben, "echo")) == "rate_limited"
        refused = await ben.error("resources/read", {"uri": "pointsman+s+a://b"})
        assert refused["data"] == {"code": "rate_limited", "retryAfterS": 1}
        those.server.gate.set()
        assert code_of(await running) == "ok"
        assert those.server.count("tools/call") == 1
        await those.until_idle()
    rows = await audit_rows(those.gateway.state_dir)
    assert counted(rows, token="ben", kind="execute", outcome="denied", code="rate_limited") >= 1


async def test_what_is_cancelled_frees_its_slot_whether_it_ran_or_waited(tmp_path: Path) -> None:
    async with shared(tmp_path, server_calls=2) as those:
        anna = await those.speaker("anna")
        for _ in range(3):
            calls = start(anna, "wait", 6)
            await those.arrived(2)
            await those.until("requests_queued", 4)
            for call in calls:
                call.cancel()  # closes its connection
            await asyncio.gather(*calls, return_exceptions=True)
            await those.until_idle()
        assert code_of(await execute(anna, "echo")) == "ok"


async def test_a_legacy_client_frees_its_slot_by_cancelling(tmp_path: Path) -> None:
    async with shared(tmp_path, server_calls=1) as those, speaker(those.gateway, "legacy") as anna:
        calls = start(anna, "wait", 2)
        await those.arrived(1)
        await those.until("requests_queued", 1)
        notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        head = anna._head("notifications/cancelled", {})
        assert (await anna.http.post(anna.url, content=json.dumps(notice), headers=head)).status_code == 202
        await asyncio.gather(*calls, return_exceptions=True)
        await those.until_idle()
        assert code_of(await execute(anna, "echo")) == "ok"


async def test_a_call_that_asks_a_person_holds_no_slot(tmp_path: Path) -> None:
    async with shared(tmp_path, "legacy", server_calls=1, token_calls=1) as those:
        anna = await those.speaker("anna", **ASKING)
        parked = [await execute(anna, "ask") for _ in range(3)]
        assert [result["resultType"] for result in parked] == ["input_required"] * 3
        await those.until_idle()
        assert code_of(await execute(anna, "echo")) == "ok"
        for question in parked[:2]:
            answers = {key: {"action": "accept", "content": {}} for key in question["inputRequests"]}
            retry = {"inputResponses": answers, "requestState": question["requestState"]}
            given = {"name": "tool_execute", "arguments": {"toolKey": "s:ask", "arguments": {}}, **retry}
            assert code_of(await anna.result("tools/call", given)) == "ok"
        await those.until_idle()
        assert code_of(await execute(anna, "echo")) == "ok"


async def test_only_a_full_gateway_answers_503_and_the_call_has_its_row(tmp_path: Path) -> None:
    async with shared(tmp_path, calls=2) as those:
        anna, ben = await those.speaker("anna"), await those.speaker("ben")
        running = start(anna, "wait", 2)
        await those.arrived(2)
        params = {"name": "tool_execute", "arguments": {"toolKey": "s:echo"}}
        for _ in range(3):
            answer = await those.http.post(
                ben.url, content=json.dumps(ben._body("tools/call", params)), headers=ben._head("tools/call", params)
            )
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["error"]["data"] == {"code": "overloaded"}
        assert (await those.http.get(f"{those.gateway.base_url}/health")).status_code == 200
        those.server.gate.set()
        assert {code_of(result) for result in await asyncio.gather(*running)} == {"ok"}
        assert code_of(await execute(ben, "echo")) == "ok"
    rows = await audit_rows(those.gateway.state_dir)
    assert counted(rows, token="ben", outcome="denied", code="overloaded", toolKey="s:echo") == 3
    assert [row.get("repeats") for row in rows if row["code"] == "overloaded"] == [None, 2]


async def test_a_new_share_holds_at_once(tmp_path: Path) -> None:
    async with shared(tmp_path, token_calls=1) as those:
        anna = await those.speaker("anna")
        [running] = start(anna, "wait", 1)
        await those.arrived(1)
        assert code_of(await execute(anna, "echo")) == "rate_limited"
        more = {"tokens": TOKENS, "servers": {"s": {"url": those.server.url}}, "limits": {"token_calls": 2}}
        those.gateway.write_config(more)
        async with asyncio.timeout(LONG_S):
            while code_of(await execute(anna, "echo")) != "ok":
                await asyncio.sleep(0.05)
        those.server.gate.set()
        assert code_of(await running) == "ok"


def resident_bytes(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def slow_reader(those: Shared, size: int) -> socket.socket:
    """A client that asks for a large answer and reads only its head."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    port = int(those.gateway.base_url.rpartition(":")[2])
    body, headers = modern_call("tool_execute", {"toolKey": "s:echo", "arguments": {"size": size}})
    await loop.sock_connect(sock, ("127.0.0.1", port))
    await loop.sock_sendall(sock, request(port, body, headers=headers, token=SECRETS["anna"]))
    async with asyncio.timeout(LONG_S):
        assert (await loop.sock_recv(sock, 12)) == b"HTTP/1.1 200"
    return sock


@pytest.mark.no_cover
async def test_sixty_slow_readers_of_large_answers_are_bounded_in_memory(tmp_path: Path) -> None:
    mib = 1 << 20
    async with shared(tmp_path, unread_bytes=32 * mib, result_preview_chars=0) as those:
        ben = await those.speaker("ben")
        assert code_of(await execute(ben, "echo", size=8 * mib)) == "ok"
        before = resident_bytes(those.gateway.pid)
        readers = []
        unread, resident = [], []
        for _ in range(60):
            readers.append(await slow_reader(those, 8 * mib))
            unread.append(await those.gauge("unread_bytes"))
            resident.append(resident_bytes(those.gateway.pid))
        assert max(unread) > 8 * mib, "they are slow"
        assert max(unread) <= 40 * mib, "the budget and one answer"
        assert max(resident) - before < 160 * mib
        assert code_of(await execute(ben, "echo", size=8 * mib)) == "ok", "a client that reads is not cut"
        loop = asyncio.get_running_loop()
        for sock in readers[:40]:
            try:
                async with asyncio.timeout(LONG_S):
                    while await loop.sock_recv(sock, 1 << 16):
                        pass
                raise AssertionError("the end of the answer was sent to a reader that was cut")
            except ConnectionResetError:
                pass  # RST: the kernel holds nothing for it any more
        for sock in readers:
            sock.close()
        await those.until("unread_bytes", 0)


async def test_rows_of_one_token_are_bounded_and_every_refusal_is_counted(tmp_path: Path) -> None:
    async with shared(tmp_path, audit_bytes_per_s=200) as those:
        anna, ben = await those.speaker("anna"), await those.speaker("ben")
        codes = Counter[str]()
        for number in range(60):
            result = await anna.call("tool_discovery", {"query": [f"{number} {'long words ' * 50}"] * 40})
            codes[code_of(result)] += 1
        codes.update([code_of(await execute(anna, "echo")) for _ in range(20)])
        assert set(codes) == {"ok", "rate_limited"}
        assert codes["rate_limited"] > 20
        assert code_of(await execute(ben, "echo")) == "ok"
        assert those.server.count("tools/call") < 20
    rows = await audit_rows(those.gateway.state_dir)
    mine = [row for row in rows if row["token"] == "anna"]
    assert counted(mine) == 80, "every call is in a row"
    assert counted(mine, code="rate_limited", outcome="denied") == codes["rate_limited"]
    assert len(mine) <= codes["ok"] + 12
