"""A server that one worker runs for all: here two workers in one process, with a real child and real sockets."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.model import Limits
from pointsman.config.sections.server import Server
from pointsman.core.errors import DownstreamError
from pointsman.core.model import Caller, Json
from pointsman.core.seams import CannotAskError, Client, ClientGoneError, FrontRequest, ProtocolError
from pointsman.router.downstream.connection import (
    BudgetExceededError,
    Call,
    CallNotSentError,
    Connect,
    Connection,
    ConnectionLostError,
)
from pointsman.router.downstream.placement import placement as module
from pointsman.router.downstream.placement.placement import Placement
from pointsman.router.downstream.stderr_log import ServerLogs, log_file
from pointsman.router.downstream.stdio.child import Command, SystemProcesses
from pointsman.router.downstream.stdio.connection import connect_stdio
from pointsman.router.downstream.talk.decoding import RAW_BYTES
from tests import servers
from tests.router.downstream.stdio_parts import SHORT_GRACE, Heard, Person, command, text, tool_call

FOLDER = Path(servers.__file__).parent
LONG_S = 30.0
ABLE: Json = {"elicitation": {"form": {}}}


def library(folder: Path, era: str = "legacy") -> Command:
    options = ("--era", era, "--trace", str(folder / "trace"))
    return Command((sys.executable, "-I", "-S", str(FOLDER / "library.py"), *options))


@dataclass
class Worker:
    """What one of the workers has of the server."""

    placement: Placement
    heard: Heard = field(default_factory=list)  # what belongs to no call
    connection: Any = None

    async def connect(self, child: Command, limits: Limits | None = None) -> Connection:
        def starting(command: Command) -> Connect:
            async def connect(on_notification: Any) -> Connection:
                return await connect_stdio(
                    command,
                    starter=SystemProcesses(None, SHORT_GRACE),
                    era="auto",
                    limits=limits or Limits(),
                    on_notification=on_notification,
                )

            return connect

        opened = self.placement.shared("server", starting(child), limits or Limits())
        async with asyncio.timeout(LONG_S):
            self.connection = await opened(lambda method, params: self.heard.append((method, params)))
        connection: Connection = self.connection
        return connection

    async def until_heard(self, method: str) -> Json:
        async with asyncio.timeout(LONG_S):
            while not (found := [params for name, params in self.heard if name == method]):
                await asyncio.sleep(0.01)
            return found[0]


@asynccontextmanager
async def workers(folder: Path, child: Command, limits: Limits | None = None) -> AsyncIterator[tuple[Worker, Worker]]:
    """The worker that runs the server, and another one."""
    async with AsyncExitStack() as stack:
        found = []
        for number in (1, 2):
            own = folder / "replicas" / str(number)
            own.mkdir(parents=True, exist_ok=True)
            found.append(Worker(Placement(own, 1)))
        for worker in found:
            connection = await worker.connect(child, limits)
            stack.push_async_callback(connection.close)
        yield found[0], found[1]


def asked(name: str, person: Person, token: str = "t", session: str = "", **arguments: Any) -> Call:
    """A call of a client that can be asked."""
    params: Json = {"name": name, "arguments": arguments}
    client = Client("test", "legacy", "any", dict(ABLE), None, None)
    front = FrontRequest("r1", "tools/call", params, Caller(token, None), client, session=session)
    return Call("tools/call", params, front, person)


async def pid_of(worker: Worker) -> int:
    result = await worker.connection.request(tool_call("environment"))
    pid: int = result["structuredContent"]["pid"]
    return pid


async def test_both_workers_use_one_process(tmp_path: Path) -> None:
    async with workers(tmp_path, command("--era", "legacy")) as (one, other):
        assert await pid_of(one) == await pid_of(other)
        assert other.connection.introduction == one.connection.introduction
        calls = [worker.connection.request(tool_call("echo", {"n": n})) for n in range(20) for worker in (one, other)]
        results = await asyncio.gather(*calls)
        assert [each["structuredContent"]["arguments"]["n"] for each in results[1::2]] == [*range(20)]


async def test_progress_and_log_messages_reach_the_client_of_their_call(tmp_path: Path) -> None:
    async with workers(tmp_path, command("--era", "legacy")) as (_, other):
        ada = Person()
        await other.connection.request(tool_call("progress", person=ada, progress_token="mine"))
        assert [params["progressToken"] for _, params in ada.told] == ["mine"] * 3
        await other.connection.request(tool_call("log", person=ada, log_level="error"))
        assert [params["data"] for method, params in ada.told if method.endswith("message")] == ["error"]


async def test_the_client_s_meta_and_trace_reach_the_server(tmp_path: Path) -> None:
    async with workers(tmp_path, command("--era", "legacy")) as (_, other):
        result = await other.connection.request(tool_call("echo", person=Person(), meta={"vendor/key": 1}))
        assert result["structuredContent"]["_meta"] == {"vendor/key": 1}


async def test_a_cancelled_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    async with workers(tmp_path, command("--era", "legacy")) as (one, other):
        held = asyncio.ensure_future(other.connection.request(tool_call("hold")))
        await other.connection.request(tool_call("echo"))  # it was read after the one that waits
        held.cancel()
        async with asyncio.timeout(LONG_S):
            while "notifications/cancelled" not in await methods_seen(one):
                await asyncio.sleep(0.01)


async def methods_seen(worker: Worker) -> list[str]:
    seen = (await worker.connection.request(tool_call("seen")))["structuredContent"]["seen"]
    return [message.get("method", "") for message in seen]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"action": "accept"}, {"action": "accept"}),
        (CannotAskError("not this one"), "not this one"),
        (ClientGoneError(), "The client left before it answered"),
        (ProtocolError(-32000, "no thanks", {"why": 1}), "no thanks"),
    ],
)
async def test_a_question_reaches_the_client_at_the_other_worker(tmp_path: Path, given: Any, expected: Any) -> None:
    async def answer(method: str, params: Json) -> Json:
        if isinstance(given, Exception):
            raise given
        found: Json = given
        return found

    async with workers(tmp_path, command("--era", "legacy")) as (_, other):
        ada = Person(answer)
        result = await other.connection.request(asked("ask", ada, method="elicitation/create"))
        assert [method for method, _ in ada.asked] == ["elicitation/create"]
        said = result["structuredContent"]["answer"]
        assert (said["result"] if isinstance(expected, dict) else said["error"]["message"]) == expected


async def test_a_question_never_reaches_the_client_of_another_worker(tmp_path: Path) -> None:
    """Both call the same tool at once. The wire does not say whose question it is, so they take turns."""
    async with workers(tmp_path, command("--era", "legacy")) as (one, other):
        people = [Person(_named("ada")), Person(_named("bob"))]
        for _ in range(3):
            calls = [
                worker.connection.request(asked("ask", person, name, method="elicitation/create"))
                for worker, person, name in zip((one, other), people, ("ada", "bob"), strict=True)
            ]
            async with asyncio.timeout(LONG_S):
                results = await asyncio.gather(*calls)
            names = [each["structuredContent"]["answer"]["result"]["content"]["name"] for each in results]
            assert names == ["ada", "bob"]


def _named(name: str) -> Any:
    async def answer(method: str, params: Json) -> Json:
        return {"action": "accept", "content": {"name": name}}

    return answer


@pytest.mark.parametrize("tool", ["ask_and_withdraw", "ask"])
async def test_a_question_that_is_over_does_not_stay_with_the_client(tmp_path: Path, tool: str) -> None:
    """Because the server has withdrawn it, perhaps before the client saw it, or because the call was cancelled."""
    withdrawn = asyncio.Event()

    async def never(method: str, params: Json) -> Json:
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        return {}

    async with workers(tmp_path, command("--era", "legacy")) as (_, other), asyncio.timeout(LONG_S):
        ada = Person(never)
        call = asyncio.ensure_future(other.connection.request(asked(tool, ada, method="elicitation/create")))
        if tool == "ask":
            await ada.was_asked.wait()
            call.cancel()
        else:
            assert (await call)["structuredContent"]["answer"]["error"]["code"] == -32800
        if ada.asked:
            await withdrawn.wait()


async def test_errors_are_those_of_the_server(tmp_path: Path) -> None:
    limits = Limits(result_bytes=100_000)
    async with workers(tmp_path, command("--era", "legacy", "--large"), limits) as (_, other):
        with pytest.raises(DownstreamError) as refused:
            await other.connection.request(Call("no/such", {}))
        assert refused.value.code == -32601
        with pytest.raises(BudgetExceededError, match="larger than 100000 bytes"):
            await other.connection.request(tool_call("large", {"bytes": 200_000}))


async def test_a_large_result_arrives_as_it_was_sent(tmp_path: Path) -> None:
    async with workers(tmp_path, library(tmp_path)) as (one, other):
        for size in (RAW_BYTES * 2, 3 << 20):
            call = tool_call("big", {"bytes": size})
            assert text(await other.connection.request(call)) == "x" * size
        media = tool_call("media")
        assert await other.connection.request(media) == await one.connection.request(tool_call("media"))


async def test_changes_reach_both_workers(tmp_path: Path) -> None:
    async with workers(tmp_path, library(tmp_path)) as (one, other):
        await other.connection.request(tool_call("add_prompt", {"name": "n"}))
        for worker in (one, other):
            await worker.until_heard("notifications/prompts/list_changed")


async def test_a_subscription_lasts_until_no_worker_has_it(tmp_path: Path) -> None:
    uri = {"uri": "book://shelf/1"}
    async with workers(tmp_path, library(tmp_path)) as (one, other):
        for worker in (one, other):
            await worker.connection.request(Call("resources/subscribe", uri))
        await one.connection.request(Call("resources/unsubscribe", uri))
        await one.connection.request(tool_call("touch", uri))
        assert await other.until_heard("notifications/resources/updated") == uri
        await other.connection.request(Call("resources/unsubscribe", uri))
        other.heard.clear()
        await one.connection.request(tool_call("touch", uri))
        await one.connection.request(tool_call("add_tool"))
        await other.until_heard("notifications/tools/list_changed")
        assert "notifications/resources/updated" not in [method for method, _ in other.heard]


async def test_a_worker_that_ends_leaves_no_subscription_behind(tmp_path: Path) -> None:
    uri = {"uri": "book://shelf/1"}
    async with workers(tmp_path, library(tmp_path)) as (_, other):
        await other.connection.request(Call("resources/subscribe", uri))
        await other.connection.close()
        async with asyncio.timeout(LONG_S):
            while "resources/unsubscribe" not in (tmp_path / "trace").read_text():
                await asyncio.sleep(0.01)


async def test_each_worker_hears_what_it_listens_for_at_a_modern_server(tmp_path: Path) -> None:
    """Each has a request of its own, and a notification names the request that it belongs to."""
    acknowledged, changed = "notifications/subscriptions/acknowledged", "notifications/tools/list_changed"
    wanted = {"notifications": {"toolsListChanged": True}}
    async with workers(tmp_path, library(tmp_path, "modern")) as (one, other):
        listening = []
        for worker in (one, other):  # this server knows only the newest
            listening.append(asyncio.ensure_future(worker.connection.request(Call("subscriptions/listen", wanted))))
            await worker.until_heard(acknowledged)
        await one.connection.request(tool_call("add_tool"))
        await other.until_heard(changed)
        assert [method for method, _ in one.heard] == [acknowledged]
        assert [method for method, _ in other.heard] == [acknowledged, changed]
        for request in listening:
            request.cancel()


async def test_the_lowest_log_level_of_all_workers_counts(tmp_path: Path) -> None:
    async with workers(tmp_path, library(tmp_path)) as (one, other):
        await other.connection.request(Call("logging/setLevel", {"level": "debug"}))
        await one.connection.request(Call("logging/setLevel", {"level": "error"}))
        await one.connection.request(tool_call("list"))
        sent = [line for line in (tmp_path / "trace").read_text().splitlines() if "setLevel" in line]
        assert len(sent) == 1
        assert "debug" in sent[0]


async def test_another_worker_takes_the_server_over(tmp_path: Path) -> None:
    """A call in flight there fails and may have run; one that comes later was not sent."""
    async with workers(tmp_path, command("--era", "legacy")) as (one, other):
        before = await pid_of(one)
        held = asyncio.ensure_future(other.connection.request(tool_call("hold")))
        await pid_of(other)
        closing = asyncio.ensure_future(one.connection.close())
        await other.connection.ended()
        with pytest.raises(CallNotSentError):
            await other.connection.request(tool_call("echo"))
        left = other.connection
        held.cancel()
        await closing
        await left.close()
        await other.connect(command("--era", "legacy"))
        assert await pid_of(other) != before
        await one.connect(command("--era", "legacy"))  # now it is the one that asks the other
        assert await pid_of(one) == await pid_of(other)
        await one.connection.close()
        await other.connection.close()


async def test_a_call_in_flight_fails_with_the_process(tmp_path: Path) -> None:
    async with workers(tmp_path, command("--era", "legacy")) as (one, other):
        with pytest.raises(ConnectionLostError) as lost:
            await other.connection.request(tool_call("exit", {"code": 3}))
        assert not isinstance(lost.value, CallNotSentError)
        assert "exited" in await one.connection.ended()


async def test_a_new_connection_of_the_owner_replaces_the_old_one_at_all_workers(tmp_path: Path) -> None:
    """As at a restart, where the old one serves until the new one does."""
    async with workers(tmp_path, command("--era", "legacy")) as (one, other):
        old, before = one.connection, await pid_of(one)
        await one.connect(command("--era", "legacy"))
        assert await pid_of(one) != before
        await other.connection.ended()
        await other.connection.close()
        await old.close()
        await other.connect(command("--era", "legacy"))
        assert await pid_of(other) == await pid_of(one) != before
        await other.connection.close()
        await one.connection.close()


async def test_a_server_that_does_not_start_fails_at_all_workers_with_its_reason(tmp_path: Path) -> None:
    for number in (1, 2):
        own = tmp_path / "replicas" / str(number)
        own.mkdir(parents=True)
        with pytest.raises(ConnectionLostError, match="no such program"):
            await Worker(Placement(own, 1)).connect(Command(("no-such-program-anywhere",)))


async def test_strangers_and_malformed_frames_end_a_connection_only(tmp_path: Path) -> None:
    async with workers(tmp_path, command("--era", "legacy")) as (one, other):
        path = str(tmp_path / "replicas" / module.FOLDER / "server.sock")
        for sent in (b"\xff\xff\xff\xff", b"\0\0\0\2[]", b"\0\0\0\2{}", b"\0\0\0\4xxxx", b'\0\0\0\x0f{"type":"call"}'):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(sent)
            async with asyncio.timeout(LONG_S):
                assert b"hello" in await reader.read()
            writer.close()
        assert await pid_of(one) == await pid_of(other)


async def test_the_log_of_such_a_server_is_in_the_folder_of_all_workers(tmp_path: Path) -> None:
    own = tmp_path / "replicas" / "1"
    own.mkdir(parents=True)
    logs = ServerLogs(own)
    logs.place("shared", tmp_path)
    logs.of("shared").feed(b"of all\n")
    logs.of("own").feed(b"of one\n")
    await logs.flush()
    assert log_file(tmp_path, "shared").read_bytes() == b"of all\n"
    assert log_file(own, "own").read_bytes() == b"of one\n"


@pytest.mark.parametrize(
    ("entry", "workers", "expected"),
    [
        ({"command": "x"}, 2, True),
        ({"command": "x"}, 1, False),
        ({"command": "x", "placement": "one"}, 1, True),
        ({"command": "x", "placement": "each"}, 2, False),
        ({"command": "x", "isolation": "per-caller"}, 2, False),
        ({"bundled": "archive"}, 2, False),
        ({"bundled": "archive", "placement": "one"}, 2, True),
        ({"url": "http://127.0.0.1:1/mcp"}, 2, False),
    ],
)
def test_which_servers_one_worker_runs(entry: Json, workers: int, expected: bool, tmp_path: Path) -> None:
    assert Placement(tmp_path / "1", workers).applies(Server.model_validate(entry)) is expected


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "http://127.0.0.1:1/mcp", "placement": "one"},
        {"command": "x", "placement": "one", "isolation": "per-caller"},
        {"command": "x", "placement": "two"},
    ],
)
def test_a_placement_without_effect_is_refused(entry: Json) -> None:
    with pytest.raises(ValueError, match="placement"):
        Server.model_validate(entry)


def test_servers_are_spread_over_the_workers(tmp_path: Path) -> None:
    ids = [f"server-{number}" for number in range(60)]
    owners = [
        sum(Placement(tmp_path / str(number), 3)._is_meant_for(server_id) for number in (1, 2, 3)) for server_id in ids
    ]
    assert owners == [1] * 60
    shares = [sum(Placement(tmp_path / str(number), 3)._is_meant_for(one) for one in ids) for number in (1, 2, 3)]
    assert min(shares) > 10
