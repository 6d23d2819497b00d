from __future__ import annotations

import asyncio
import gc
import os
import sys
import time

import pytest

from pointsman.config.model import Limits
from pointsman.core.errors import DownstreamError
from pointsman.core.model import Json
from pointsman.router.downstream.connection import BudgetExceededError, Call, ConnectionLostError
from pointsman.router.downstream.stdio.child import Command, SystemProcesses
from pointsman.router.downstream.stdio.connection import connect_stdio
from pointsman.router.downstream.talk.handshake import WantedEra
from pointsman.router.serving.in_flight import InFlight
from tests.router.downstream.stdio.test_child import until_gone
from tests.router.downstream.stdio_parts import SERVER, Heard, Person, command, stdio, text, tool_call

MIB = 1 << 20


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.mark.parametrize(
    ("switches", "era"),
    [
        (["--era", "modern"], "modern"),
        (["--era", "both"], "modern"),
        (["--era", "legacy"], "legacy"),
        (["--era", "legacy", "--silent-probe"], "legacy"),
        (["--era", "legacy", "--version", "2024-11-05"], "legacy"),
        (["--era", "legacy", "--banner"], "legacy"),
        (["--era", "modern", "--discover-delay", "0.3"], "modern"),
    ],
)
async def test_the_era_is_found_out_by_itself(switches: list[str], era: str) -> None:
    async with stdio(*switches, era="auto", probe_s=0.2 if len(switches) > 2 else 5) as connection:
        assert connection.introduction.era == era
        assert connection.introduction.server_info["name"] == "stdio-server"
        result = await connection.request(tool_call("echo", {"n": 2**70}, person=Person(), meta={"trace": "x"}))
        said = result["structuredContent"]
        assert said["arguments"] == {"n": 2**70}
        assert said["_meta"]["trace"] == "x"
        assert ("io.modelcontextprotocol/protocolVersion" in said["_meta"]) == (era == "modern")


async def test_a_probe_that_was_given_up_is_not_cancelled_at_the_server() -> None:
    async with stdio("--silent-probe", era="auto", probe_s=0.1) as connection:
        seen = (await connection.request(tool_call("seen")))["structuredContent"]["seen"]
    assert [message["method"] for message in seen] == [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/call",
    ]


async def test_a_child_that_exits_at_start_says_why() -> None:
    with pytest.raises(ConnectionLostError, match="it exited with code 4"):
        async with stdio("--exit", "4", era="auto"):
            pass


async def test_cancelling_a_connect_ends_the_child() -> None:
    pids = []

    class Noting(SystemProcesses):
        async def __call__(self, *args):  # type: ignore[no-untyped-def]
            child = await super().__call__(*args)
            pids.append(child.pid)
            return child

    connecting = connect_stdio(
        command("--mute", "--ignore-term", "--ignore-eof"),
        starter=Noting(None),
        era="auto",
        limits=Limits(),
        on_notification=lambda method, params: None,
    )
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await connecting
    assert len(pids) == 1
    await until_gone(*pids)


async def test_answers_find_their_calls_whatever_their_order() -> None:
    async with stdio() as connection:
        held = [asyncio.create_task(connection.request(tool_call("hold"))) for _ in range(20)]
        echoes = await asyncio.gather(*(connection.request(tool_call("echo", {"n": n})) for n in range(50)))
        assert [echo["structuredContent"]["arguments"]["n"] for echo in echoes] == list(range(50))
        assert not any(task.done() for task in held)
        await connection.request(tool_call("release"))
        assert {text(result) for result in await asyncio.gather(*held)} == {"released"}


async def test_a_refusal_carries_the_servers_code_message_and_data() -> None:
    async with stdio() as connection:
        with pytest.raises(DownstreamError) as caught:
            await connection.request(tool_call("refuse"))
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32055, "no such luck", {"why": 1})


async def test_a_dead_child_is_noticed_at_once_by_everybody() -> None:
    async with stdio() as connection:
        held = [asyncio.create_task(connection.request(tool_call("hold"))) for _ in range(3)]
        await connection.request(tool_call("echo"))
        async with asyncio.timeout(30):
            with pytest.raises(ConnectionLostError, match="exited with code 3"):
                await connection.request(tool_call("crash"))
            outcomes = await asyncio.gather(*held, return_exceptions=True)
            assert "exited with code 3" in await connection.ended()
        assert all(isinstance(outcome, ConnectionLostError) for outcome in outcomes)
        with pytest.raises(ConnectionLostError, match="exited with code 3"):
            await connection.request(tool_call("echo"))


async def test_an_answer_given_just_before_the_end_still_counts() -> None:
    async with stdio() as connection:
        assert text(await connection.request(tool_call("answer_and_exit"))) == "last words"
        assert await connection.ended() == "it exited with code 0"


async def test_a_hanging_call_is_cancelled_at_the_server_and_others_go_on() -> None:
    async with stdio() as connection:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await connection.request(tool_call("hang"))
        seen = (await connection.request(tool_call("seen")))["structuredContent"]["seen"]
        hung = next(message["id"] for message in seen if message.get("params", {}).get("name") == "hang")
        cancelled = [message["params"] for message in seen if message["method"] == "notifications/cancelled"]
        assert cancelled == [{"requestId": hung}]


async def test_noise_is_ignored_and_counted() -> None:
    async with stdio("--banner") as connection:
        assert text(await connection.request(tool_call("garbage"))) == "done"
        assert connection.mux.unsolicited.malformed >= 10
        assert text(await connection.request(tool_call("garbage"))) == "done"


async def test_an_answer_that_cannot_be_read_fails_its_own_call_at_once() -> None:
    async with stdio() as connection:
        async with asyncio.timeout(30):
            with pytest.raises(ConnectionLostError, match="not valid JSON"):
                await connection.request(tool_call("bad_utf8"))
            with pytest.raises(ConnectionLostError, match="neither a result nor an error"):
                await connection.request(tool_call("no_result"))
        assert await connection.request(tool_call("echo"))


async def test_foreign_late_and_repeated_answers_are_dropped() -> None:
    async with stdio() as connection:
        assert text(await connection.request(tool_call("foreign"))) == "mine"
        assert await connection.request(tool_call("echo"))
        assert connection.mux.unsolicited.answers == 7


async def test_a_batch_is_taken_apart() -> None:
    heard: Heard = []
    async with stdio(heard=heard) as connection:
        assert text(await connection.request(tool_call("batch"))) == "in a batch"
    assert heard == [("notifications/tools/list_changed", {})]


async def test_what_belongs_to_no_call_is_noticed() -> None:
    heard: Heard = []
    async with stdio(heard=heard) as connection:
        await connection.request(tool_call("changed", person=Person()))
    assert heard == [("notifications/tools/list_changed", {})]


async def test_a_large_answer_is_read_off_the_loop_and_nothing_overtakes_it() -> None:
    heard: Heard = []
    async with stdio(heard=heard) as connection:
        call = asyncio.create_task(connection.request(tool_call("large", {"bytes": 15 * MIB})))
        echo = asyncio.create_task(connection.request(tool_call("echo")))
        assert len(text(await call)) == 15 * MIB
        await echo
        assert heard == [("notifications/after", {})]


@pytest.mark.parametrize("where", ["head", "tail", "nowhere"])
async def test_an_answer_over_the_limit_fails_its_own_call_only(where: str) -> None:
    async with stdio(limits=Limits(result_bytes=MIB)) as connection:
        with pytest.raises(BudgetExceededError, match="larger than 1048576 bytes"):
            await connection.request(tool_call("huge", {"bytes": 4 * MIB, "id": where}))
        assert await connection.request(tool_call("echo"))


async def test_an_answer_over_the_limit_that_could_be_anybodys_is_nobodys() -> None:
    async with stdio(limits=Limits(result_bytes=MIB)) as connection:
        held = asyncio.create_task(connection.request(tool_call("hold")))
        huge = asyncio.create_task(connection.request(tool_call("huge", {"bytes": 2 * MIB, "id": "nowhere"})))
        await connection.request(tool_call("echo"))
        assert not held.done()
        assert not huge.done()
        huge.cancel()
        await connection.request(tool_call("release"))
        assert text(await held) == "released"


async def test_a_line_of_64_mib_is_never_held() -> None:
    async with stdio(limits=Limits(result_bytes=MIB)) as connection:
        await connection.request(tool_call("echo"))
        gc.collect()
        before = peak_rss_kib()
        with pytest.raises(BudgetExceededError):
            await connection.request(tool_call("huge", {"bytes": 64 * MIB}))
        await connection.request(tool_call("echo"))
        assert peak_rss_kib() - before < 16 * 1024


def peak_rss_kib() -> int:
    with open("/proc/self/status") as file:
        return int(file.read().split("VmHWM:")[1].split()[0])


async def test_a_child_that_does_not_read_breaks_its_connection_not_our_memory() -> None:
    async with stdio(limits=Limits(result_bytes=MIB)) as connection:
        await connection.request(tool_call("deaf"))
        calls = [asyncio.create_task(connection.request(tool_call("echo", {"x": "y" * 100_000}))) for _ in range(40)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(outcome, ConnectionLostError) for outcome in outcomes)
        assert "does not read its input" in await connection.ended()


@pytest.mark.parametrize("method", ["notifications/message", "notifications/progress"])
async def test_a_flood_within_a_call_breaks_that_call(method: str) -> None:
    person = Person()
    async with stdio(limits=Limits(messages=30)) as connection:
        call = tool_call("flood", {"method": method, "count": 300}, person=person, progress_token="mine")
        with pytest.raises(BudgetExceededError, match="more than 30 messages"):
            await connection.request(call)
        assert len(person.told) <= 30
        assert await connection.request(tool_call("echo"))


async def test_a_flood_that_no_call_explains_leaves_the_loop_to_others() -> None:
    """At this rate it would take a thousand seconds to read it all, so nobody waits for it."""
    heard: Heard = []
    async with stdio(heard=heard, limits=Limits(messages=10)) as connection:
        flood = asyncio.create_task(
            connection.request(tool_call("flood", {"method": "notifications/x", "count": 100_000}))
        )
        start = time.monotonic()
        while not heard:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        seconds = time.monotonic() - start
        assert len(heard) <= (seconds + 2) * (100 + 64)
        flood.cancel()


async def test_closing_ends_the_child_and_fails_what_is_under_way() -> None:
    async with stdio() as connection:
        facts = await connection.request(tool_call("environment"))
        held = asyncio.create_task(connection.request(tool_call("hold")))
        await connection.request(Call("tools/list", {}))
        await asyncio.gather(connection.close(), connection.close())
        with pytest.raises(ConnectionLostError, match="closed"):
            await held
        await until_gone(facts["structuredContent"]["pid"])
        assert "closed" in await connection.ended()


async def test_a_connection_leaves_nothing_behind() -> None:
    async with stdio():
        pass  # the first one makes uvloop open a handle for good
    tasks = asyncio.all_tasks()
    handles = open_handles()
    for _ in range(5):
        async with stdio() as connection:
            await connection.request(tool_call("echo"))
    async with asyncio.timeout(30):
        while asyncio.all_tasks() != tasks or open_handles() > handles:
            await asyncio.sleep(0.01)


async def test_a_large_answer_waits_for_room_and_is_then_read_whole() -> None:
    budget = InFlight(lambda: 40 * MIB)
    held = await budget.answers().take(16 * MIB)
    async with asyncio.timeout(30), stdio(memory=budget.answers()) as connection:
        large = asyncio.create_task(connection.request(tool_call("large", {"bytes": 2 * MIB})))
        while not budget.waiting:
            await asyncio.sleep(0.01)
        behind = asyncio.create_task(connection.request(tool_call("echo", {"n": 1})))
        assert not large.done()
        held.release()
        assert len(text(await large)) == 2 * MIB
        assert (await behind)["structuredContent"]["arguments"] == {"n": 1}
        assert (budget.total, budget.waiting) == (0, 0)
        again = await asyncio.gather(*(connection.request(tool_call("large", {"bytes": 600_000})) for _ in range(5)))
        assert {len(text(result)) for result in again} == {600_000}
        assert budget.total == 0


async def test_a_child_that_dies_while_its_answer_waits_leaves_the_queue() -> None:
    budget = InFlight(lambda: 40 * MIB)
    held = await budget.answers().take(16 * MIB)
    async with asyncio.timeout(30), stdio(memory=budget.answers()) as connection:
        large = asyncio.create_task(connection.request(tool_call("large", {"bytes": 2 * MIB})))
        while not budget.waiting:
            await asyncio.sleep(0.01)
        await connection.close()
        with pytest.raises(ConnectionLostError):
            await large
    assert budget.total == 32 * MIB
    held.release()
    assert (budget.total, budget.waiting) == (0, 0)


async def test_a_large_answer_that_never_ends_loses_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pointsman.router.downstream.stdio.connection.LEASE_S", 0.2)
    budget = InFlight(lambda: 40 * MIB)
    async with asyncio.timeout(30), stdio(memory=budget.answers()) as connection:
        with pytest.raises(BudgetExceededError, match="did not finish a large answer"):
            await connection.request(tool_call("half", {"bytes": MIB}))
        assert budget.total == 0


def open_handles() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})])
async def test_a_server_on_the_sdk_is_understood_in_both_eras(era: WantedEra) -> None:
    async def introduce(method: str, params: Json) -> Json:
        return {"action": "accept", "content": {"name": "Ann"}}

    person = Person(introduce)
    connection = await connect_stdio(
        Command((sys.executable, str(SERVER.with_name("sdk_server.py")))),
        starter=SystemProcesses(None),
        era=era,
        limits=Limits(),
        on_notification=lambda method, params: None,
    )
    assert connection.introduction.era == era
    added = await connection.request(tool_call("add", {"a": 1, "b": 2}, person=person))
    assert added["structuredContent"] == {"result": 3}
    await connection.request(tool_call("count", person=person, progress_token="mine"))
    assert [params["progressToken"] for _, params in person.told] == ["mine"] * 3
    if era == "legacy":  # a modern connection carries no questions
        assert text(await connection.request(tool_call("greet", person=person))) == "Hello Ann"
    await connection.close()
