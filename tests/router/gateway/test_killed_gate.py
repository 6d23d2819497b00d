"""A gateway that is killed at any step of the gate: nothing runs without its yes, and none is used twice."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.test_eras import stdio_asker
from tests.fork_server import RUN_FIRST
from tests.gateway_process import gateway_process
from tests.router.gateway import stopping_gateway
from tests.router.gateway.gated import FORM, Gated, executing, parked
from tests.router.raw_client import ERAS, Era, Json, speaker

YES = {"action": "accept", "content": {"answer": "once"}}
Work = Callable[["Killed", str, Era], Coroutine[Any, Any, None]]


class Killed(Gated):
    """A gateway that stops where it is told to."""

    async def stop_at(self, point: str, works: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Let all of `works` reach the point, then kill the gateway."""
        reached = self.folder / stopping_gateway.REACHED
        reached.write_text("")
        (self.folder / stopping_gateway.ARMED).write_text(point)
        tasks = [asyncio.create_task(work) for work in works]
        async with asyncio.timeout(20):
            while len(reached.read_text().splitlines()) < len(works):
                assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
                await asyncio.sleep(0.02)
        await self.gateway.stop(signal.SIGKILL)
        (self.folder / stopping_gateway.ARMED).unlink()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def state(self, tag: str) -> Path:
        """Where the `requestState` of a call is kept."""
        return self.folder / f"state {tag}"

    async def reach(self) -> Json:
        """Tell `stop_at` that a work is where it should be, and wait for the end."""
        with (self.folder / stopping_gateway.REACHED).open("a") as file:
            file.write("reached\n")
        await asyncio.Event().wait()
        return {}


class Step(NamedTuple):
    """Where the gateway is killed during `work`, how often that has run then, and what holds afterwards."""

    point: str
    work: Work
    ran: int
    then: Work
    eras: Sequence[Era] = ERAS


def key(era: Era, tool: str = "plain") -> str:
    """Each era has a server of its own, because a yes for always is for a tool."""
    return f"{'old' if era == 'legacy' else 'new'}:{tool}"


# ------------------------------------------------------------------ a client that is asked


async def confirmed(killed: Killed, tag: str, era: Era, tool: str = "plain") -> None:
    """Call, be asked, and say yes."""
    async with speaker(killed.gateway, era, capabilities=FORM) as one:
        if era == "legacy":
            await one.answering("tools/call", executing(key(era, tool), tag), YES)
            return
        asked = await parked(one, key(era, tool), tag)
        killed.state(tag).write_text(asked["requestState"])
        result = await one.result("tools/call", executing(key(era, tool), tag, asked, answer="once"))
        if result["resultType"] == "input_required":  # a question of the server
            await one.result("tools/call", executing(key(era, tool), tag, result, name="ada"))


async def asked(killed: Killed, tag: str, era: Era) -> None:
    """Call, be asked, and say nothing."""
    async with speaker(killed.gateway, era, capabilities=FORM) as one:
        if era == "legacy":
            await one.answering("tools/call", executing(key(era), tag), killed.reach)
        killed.state(tag).write_text((await parked(one, key(era), tag))["requestState"])
        await killed.reach()


async def running(killed: Killed, tag: str, era: Era) -> None:
    """Say yes to a call that never ends."""

    async def began() -> None:
        while not killed.ran(tag):
            await asyncio.sleep(0.02)
        await killed.reach()

    await asyncio.gather(confirmed(killed, tag, era, "stay"), began(), return_exceptions=True)


async def in_rounds(killed: Killed, tag: str, era: Era) -> None:
    """Say yes to a call whose server asks a question of its own."""
    await confirmed(killed, tag, era, "name")


async def asks_again(killed: Killed, tag: str, era: Era) -> None:
    """The state of the first attempt is worth nothing, and a new attempt is asked, and runs once."""
    before = killed.ran(tag)
    async with speaker(killed.gateway, era, capabilities=FORM) as one:
        if (state := killed.state(tag)).exists():
            stale = executing(key(era), tag) | {"requestState": state.read_text(), "inputResponses": {"q1": YES}}
            assert "requestState" in (await one.error("tools/call", stale))["message"]
        if era == "legacy":
            answer = await one.answering("tools/call", executing(key(era), tag), YES)
        else:
            answer = await one.result(
                "tools/call", executing(key(era), tag, await parked(one, key(era), tag), answer="once")
            )
        assert answer["content"][0]["text"] == f"plain {tag}"
    assert killed.ran(tag) == before + 1


# ------------------------------------------------------------------ a client that cannot be asked, and the owner


async def code(killed: Killed, tag: str, era: Era) -> str:
    async with speaker(killed.gateway, era) as one:
        answer = await one.result("tools/call", executing(key(era), tag))
    return str(answer["structuredContent"]["error"]["code"]) if answer.get("isError") else "ran"


def answered(word: str, *, then_runs: bool = False) -> Work:
    async def work(killed: Killed, tag: str, era: Era) -> None:
        assert await code(killed, tag, era) == "confirmation_required"
        pending = await killed.one_pending(key(era), tag)
        await killed.owner("answer_approval", id=pending["id"], answer=word)
        if then_runs:
            await code(killed, tag, era)

    return work


async def withdrawn(killed: Killed, tag: str, era: Era) -> None:
    always = (await killed.owner("approvals"))["always"]
    (standing,) = [one for one in always if one["toolKey"] == key(era)]
    await killed.owner("withdraw_approval", id=standing["id"])


async def is_listed_again(killed: Killed, tag: str, era: Era) -> None:
    before = killed.ran(tag)
    assert await code(killed, tag, era) == "confirmation_required"
    assert killed.ran(tag) == before
    await killed.one_pending(key(era), tag)


async def runs_once(killed: Killed, tag: str, era: Era) -> None:
    assert await code(killed, tag, era) == "ran"
    await is_listed_again(killed, tag, era)
    assert killed.ran(tag) == 1


async def runs_always(killed: Killed, tag: str, era: Era) -> None:
    assert [await code(killed, tag, era), await code(killed, f"{tag}!", era)] == ["ran", "ran"]


# ------------------------------------------------------------------ the steps


STEPS = [
    Step("before add", confirmed, 0, asks_again),  # nobody has been asked
    Step("after add", confirmed, 0, asks_again),
    Step("open", asked, 0, asks_again),
    Step("after _ask", confirmed, 0, asks_again),  # the yes has arrived, and is not recorded
    Step("before send_to_server", confirmed, 0, asks_again),
    Step("after send_to_server", confirmed, 1, asks_again),  # the server has answered
    Step("running", running, 1, asks_again),
    Step("after open_round", in_rounds, 1, asks_again, ("modern",)),
    Step("after continue_round", in_rounds, 1, asks_again, ("modern",)),
    Step("before answer", answered("once"), 0, is_listed_again),
    Step("after answer", answered("once"), 0, runs_once),
    Step("after look", answered("once", then_runs=True), 0, is_listed_again),  # the yes is used up
    Step("before always", answered("always"), 0, is_listed_again),
    Step("after always", answered("always"), 0, runs_always),
    Step("before withdraw", withdrawn, 0, runs_always),
    Step("after withdraw", withdrawn, 0, is_listed_again),
]


@pytest.mark.skipif(sys.platform != "linux", reason="faults are injected by the fork server")
async def test_a_gateway_killed_at_any_step_of_the_gate_runs_nothing_without_a_yes(tmp_path: Path) -> None:
    token: str | None = None
    for number, step in enumerate(STEPS):
        async with stopping(tmp_path, token) as killed:
            token = killed.gateway.token
            if number:
                await _holds(killed, STEPS[number - 1])
            await killed.stop_at(step.point, [step.work(killed, _tag(step, era), era) for era in step.eras])
        assert {killed.ran(_tag(step, era)) for era in step.eras} == {step.ran}, step.point
    async with stopping(tmp_path, token) as killed:
        await _holds(killed, STEPS[-1])
        assert (await killed.owner("approvals"))["always"] == []


async def _holds(killed: Killed, step: Step) -> None:
    for era in step.eras:
        await step.then(killed, _tag(step, era), era)


def _tag(step: Step, era: Era) -> str:
    return f"{step.point}-{era}"


@asynccontextmanager
async def stopping(folder: Path, token: str | None) -> AsyncIterator[Killed]:
    trace = folder / "trace"
    servers = {"old": stdio_asker("legacy", trace), "new": stdio_asker("modern", trace)}
    config = {"unassigned": {"confirm": "destructive"}, "servers": servers}
    env = {RUN_FIRST: stopping_gateway.__file__, stopping_gateway.FOLDER: str(folder)}
    async with gateway_process(folder, config, token=token, env=env) as gateway:
        yield Killed(gateway, folder)
