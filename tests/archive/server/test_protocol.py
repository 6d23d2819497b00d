"""The archive's own stdio server, line by line: against the SDK's server, and where the two differ on purpose."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from pointsman.archive.server import server as server_module
from pointsman.archive.server.server import THREADS_OF_ONE_TOOL
from pointsman.archive.tools.base import ToolError
from pointsman.archive.tools.registry import TOOLS
from pointsman.core.model import Json
from tests.archive.server.in_process import ours, runner_of, send, tool, wire
from tests.archive.server.sdk_server import theirs

VERSION, INFO = "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientInfo"
CAPABILITIES, LEVEL = "io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/logLevel"
CLIENT = {"name": "test", "version": "1"}
WAIT_S = 30.0  # a bound against hanging
Line = bytes | Mapping[str, Any]


def request(number: object, method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": number, "method": method, **({"params": params} if params else {})}


def notice(method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}


def initialize(version: object = "2025-11-25", **changed: Any) -> Json:
    given = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT, **changed}
    return request(1, "initialize", **{key: value for key, value in given.items() if value is not None})


def modern(number: object, method: str, version: object = "2026-07-28", /, **params: Any) -> Json:
    envelope = {VERSION: version, INFO: CLIENT, CAPABILITIES: {}, **params.pop("_meta", {})}
    kept = {key: value for key, value in envelope.items() if value is not None}
    return request(number, method, **params, _meta=kept)


def fail(_: Json) -> Json:
    raise ToolError("There is none.", code="not_found", help="Make one.")


ECHO = tool("echo", lambda arguments: {"said": arguments, "big": 2**70, "half": 0.5})
FAIL = tool("fail", fail)
LEGACY = [initialize(), notice("notifications/initialized")]

# The lines of a client, and how many of them are answered.
SCENARIOS: dict[str, tuple[Sequence[Line], int]] = {
    **{
        f"initialize with {version}": ([initialize(version), request(2, "tools/list"), request(3, "ping")], 3)
        for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "1999-01-01")
    },
    "initialize that is malformed": (
        [
            request(1, "initialize"),
            initialize(5),
            initialize(None),
            initialize(capabilities=None),
            initialize(capabilities=[]),
            initialize(clientInfo=None),
            initialize(clientInfo={"name": "test"}),
            initialize(clientInfo={"name": 1, "version": "1"}),
        ],
        8,
    ),
    "initialize twice, and with the other era's envelope": (
        [modern(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=CLIENT), initialize()],
        2,
    ),
    "requests before initialize": ([request(2, "tools/list"), request(3, "ping"), request(4, "tools/call")], 3),
    "no initialize": ([notice("notifications/initialized"), request(2, "tools/list")], 1),
    "methods that are not there": (
        [
            *LEGACY,
            *(
                request(number, method)
                for number, method in enumerate(
                    (
                        "none",
                        "resources/list",
                        "prompts/list",
                        "tasks/list",
                        "server/discover",
                        "resources/templates/list",
                    )
                )
            ),
            request(20, "logging/setLevel", level="info"),
            request(21, "resources/read", uri="a:b"),
            request(22, "subscriptions/listen", notifications={}),
        ],
        10,
    ),
    "calls": (
        [
            *LEGACY,
            request(2, "tools/call", name="echo", arguments={"text": "é\u2028\U0001f600", "deep": [[{}]]}),
            request(3, "tools/call", name="echo"),
            request(4, "tools/call", name="echo", arguments=None),
            request(5, "tools/call", name="fail", arguments={}),
            request(6, "tools/call", name="none"),
            request(7, "tools/call", name="n" * 300),
            request(8, "tools/call"),
            request(9, "tools/call", name=5),
            request(10, "tools/call", name="echo", arguments=[]),
            request(11, "tools/call", name="echo", arguments="text"),
            request(12, "tools/call", name="echo", _meta={"progressToken": "p", "pointsman/caller": 7}),
            request(13, "tools/call", name="echo", _meta={"progressToken": []}),
            request(14, "tools/call", name="echo", _meta=5),
            request(15, "tools/call", name="echo", other=1),
        ],
        15,
    ),
    "lists": (
        [
            *LEGACY,
            request(2, "tools/list", cursor="x"),
            request(3, "tools/list", cursor=5),
            request(4, "tools/list", _meta={}),
        ],
        4,
    ),
    "ids": (
        [
            *LEGACY,
            *(request(number, "ping") for number in ("text", "", "7", -7, 2**70, 1.5, None, True, [1])),
            {"jsonrpc": "2.0", "id": 3, "method": "ping", "params": None},
            {"jsonrpc": "2.0", "id": 4, "method": "ping", "other": 1},
        ],
        8,
    ),
    "lines that are no message": (
        [
            b"{",
            b"",
            b"   ",
            b"none",
            b"[]",
            b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
            b"5",
            b"null",
            {"jsonrpc": "2.0", "id": 4, "method": "ping", "params": []},
            {"jsonrpc": "2.0", "id": 5, "method": "ping", "params": 5},
            {"jsonrpc": "1.0", "id": 6, "method": "ping"},
            {"id": 7, "method": "ping"},
            {"jsonrpc": "2.0", "id": 8, "method": 5},
            {"jsonrpc": "2.0", "id": 9},
            {"jsonrpc": "2.0", "id": 10, "result": {}},
            {"jsonrpc": "2.0", "id": 11, "error": {"code": 1, "message": "no"}},
            b' {"jsonrpc":"2.0","id":12,"method":"ping"} \r',
            initialize(),
        ],
        2,
    ),
    "notifications": (
        [
            initialize(),
            notice("notifications/cancelled", requestId=99),
            notice("notifications/cancelled"),
            notice("notifications/cancelled", requestId=[]),
            notice("notifications/progress", progressToken=1, progress=0.5),
            notice("notifications/roots/list_changed"),
            notice("none"),
            request(2, "ping"),
        ],
        2,
    ),
    "a modern request on a legacy connection": ([*LEGACY, modern(2, "tools/list")], 2),
    "modern": (
        [
            modern(1, "server/discover"),
            modern(2, "tools/list"),
            modern(3, "tools/call", name="echo", arguments={"text": "hello"}),
            modern(4, "tools/call", name="fail"),
            modern(5, "tools/call", name="none"),
            modern(6, "tools/call"),
            modern(7, "tools/call", name="echo", arguments=[]),
            modern(8, "tools/list", cursor=5),
            modern(9, "ping"),
            modern(10, "none"),
            modern(11, "resources/list"),
            modern(12, "logging/setLevel", level="info"),
            modern(13, "subscriptions/listen", notifications={}),
            initialize(),
            request(14, "initialize"),
            request(15, "tools/list"),
            modern(16, "tools/call", name="echo", inputResponses={}, requestState="x"),
            modern(17, "tools/call", name="echo", _meta={"progressToken": 3, LEVEL: "debug"}),
            notice("notifications/cancelled", requestId=99),
        ],
        18,
    ),
    "modern envelopes": (
        [
            modern(1, "tools/list", "1999-01-01"),
            modern(2, "tools/list", "2025-11-25"),
            modern(3, "tools/list", 5),
            modern(4, "tools/list", _meta={CAPABILITIES: None}),
            modern(5, "tools/list", _meta={CAPABILITIES: 5}),
            modern(6, "tools/list", _meta={INFO: None}),
            modern(7, "tools/list", _meta={INFO: 5}),
            modern(8, "tools/list", _meta={INFO: {"name": "test"}}),
            modern(9, "tools/list", _meta={LEVEL: "loud"}),
            modern(10, "tools/list", _meta={"progressToken": []}),
            initialize(),
        ],
        11,
    ),
}


async def exchange(serve: Callable[[int, int], None], lines: Sequence[Line], answers: int) -> list[Json]:
    """Send all lines, end the input after as many answers, and return all that came, by id."""
    async with asyncio.timeout(WAIT_S), wire(serve) as (requests, output):
        for line in lines:
            send(requests, line if isinstance(line, bytes) else json.dumps(line).encode())
        came = [await output.readline() for _ in range(answers)]
        requests.close()
        came += (await output.read()).splitlines()
    return sorted(map(json.loads, came), key=lambda message: json.dumps([message["id"], message], sort_keys=True))


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_it_answers_as_the_sdks_server_does(scenario: str) -> None:
    lines, answers = SCENARIOS[scenario]
    runner = runner_of(ECHO, FAIL)
    assert await exchange(ours(runner), lines, answers) == await exchange(theirs(runner), lines, answers)


async def test_the_archives_own_tools_are_listed_as_the_sdk_lists_them() -> None:
    runner = runner_of(*TOOLS)
    for lines in ([initialize(), request(2, "tools/list")], [modern(1, "server/discover"), modern(2, "tools/list")]):
        assert await exchange(ours(runner), lines, 2) == await exchange(theirs(runner), lines, 2)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (request(2, "resources/read"), {"code": -32601, "message": "Method not found", "data": "resources/read"}),
        (b'{"jsonrpc":"2.0","id":2,"method":"ping","params":{"x":NaN}}', {"code": -32700}),
        (b'{"jsonrpc":"2.0","id":2,"method":"ping","params":{"x":"\\ud800"}}', {"code": -32700}),
        (b'{"jsonrpc":"2.0","id":2,"method":"ping","params":{"x":"\xff"}}', {"code": -32700}),
        (b'{"jsonrpc":"2.0","id":2,"params":' + b"[" * 5000 + b"]" * 5000 + b"}", {"code": -32700}),
        (b'{"jsonrpc":"2.0","id":2,"params":"' + b"x" * 70_000 + b'"}', {"code": -32600}),
    ],
    ids=["malformed parameters of a method that is not there", "NaN", "half a character", "not UTF-8", "deep", "long"],
)
async def test_a_request_that_the_sdks_server_drops_or_judges_otherwise_gets_an_error(line: Line, answer: Json) -> None:
    came = await exchange(ours(runner_of(ECHO), max_line_bytes=65_536), [initialize(), line, request(3, "ping")], 3)
    [error] = [message["error"] for message in came if message["id"] == 2]
    assert error.items() >= answer.items()
    assert came[-1] == {"jsonrpc": "2.0", "id": 3, "result": {}}


async def test_a_line_without_end_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[Line] = [b"x" * 1_000_000, initialize()]
    [answer] = await exchange(ours(runner_of(ECHO), max_line_bytes=65_536), lines, 1)
    assert answer["result"]["protocolVersion"] == "2025-11-25"
    assert "dropped a line: The message has more than 65536 bytes" in caplog.text


async def test_a_last_line_without_its_newline_is_read() -> None:
    async with asyncio.timeout(WAIT_S), wire(ours(runner_of(ECHO))) as (requests, output):
        requests.write(json.dumps(request(1, "ping")).encode())
        requests.close()
        assert json.loads(await output.read()) == {"jsonrpc": "2.0", "id": 1, "result": {}}


class Hanging:
    """A tool whose calls wait until the test lets them leave."""

    def __init__(self) -> None:
        self.inside, self.leave, self.calls = threading.Semaphore(0), threading.Event(), 0
        self.tool = tool("hang", self._run)

    def _run(self, _: Json) -> Json:
        self.calls += 1
        self.inside.release()
        self.leave.wait(WAIT_S)
        return {}


def call(number: object) -> bytes:
    return json.dumps(request(number, "tools/call", name="hang")).encode()


@pytest.mark.parametrize("cancelled", [7, "7"])
async def test_a_cancelled_call_is_not_answered_and_one_that_waits_is_not_run(cancelled: object) -> None:
    hanging = Hanging()
    numbers = range(7, 7 + THREADS_OF_ONE_TOOL)
    async with asyncio.timeout(WAIT_S), wire(ours(runner_of(hanging.tool))) as (requests, output):
        try:
            send(requests, json.dumps(initialize()).encode())
            await output.readline()
            for number in (*numbers, 100):
                send(requests, call(number))
            for _ in numbers:
                await asyncio.to_thread(hanging.inside.acquire)
            for number in (cancelled, 100):
                send(requests, json.dumps(notice("notifications/cancelled", requestId=number)).encode())
            send(requests, json.dumps(request("read", "ping")).encode())
            assert json.loads(await output.readline())["id"] == "read"  # the cancellations have been read
        finally:
            hanging.leave.set()
        answered = {json.loads(await output.readline())["id"] for _ in numbers[1:]}
        send(requests, call("last"))
        assert json.loads(await output.readline())["id"] == "last"
    assert answered == {*numbers[1:]}
    assert hanging.calls == len(numbers) + 1


async def test_calls_under_way_when_the_input_ends_are_answered_as_the_sdks_server_does() -> None:
    answers = []
    for serve in (ours, theirs):
        hanging = Hanging()
        async with asyncio.timeout(WAIT_S), wire(serve(runner_of(hanging.tool))) as (requests, output):
            try:
                send(requests, json.dumps(initialize()).encode())
                await output.readline()
                send(requests, call(2))
                await asyncio.to_thread(hanging.inside.acquire)
                requests.close()
                answers.append(json.loads(await output.readline()))
            finally:
                hanging.leave.set()
    assert answers[0] == answers[1]


async def test_more_calls_than_can_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_PENDING", 10)
    hanging = Hanging()
    async with asyncio.timeout(WAIT_S), wire(ours(runner_of(hanging.tool))) as (requests, output):
        try:
            send(requests, json.dumps(initialize()).encode())
            await output.readline()
            for number in range(11):
                send(requests, call(number))
            refused = json.loads(await output.readline())
        finally:
            hanging.leave.set()
        assert refused["id"] == 10
        assert "10 calls are waiting" in refused["error"]["message"]
        assert {json.loads(await output.readline())["id"] for _ in range(10)} == {*range(10)}


async def test_a_client_that_closes_its_end_does_not_end_the_server(caplog: pytest.LogCaptureFixture) -> None:
    ran = threading.Semaphore(0)

    def count(_: Json) -> Json:
        ran.release()
        return {}

    async with asyncio.timeout(WAIT_S), wire(ours(runner_of(tool("echo", count)))) as (requests, output):
        send(requests, json.dumps(initialize()).encode())
        await output.readline()
        output._transport.close()  # type: ignore[attr-defined]
        for number in range(3):
            send(requests, json.dumps(request(number, "tools/call", name="echo")).encode())
            await asyncio.to_thread(ran.acquire)
    assert "Traceback" not in caplog.text
