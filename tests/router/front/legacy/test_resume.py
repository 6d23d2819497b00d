"""A legacy client that loses its line comes back with the id of the last event it has, and gets the rest."""

from __future__ import annotations

import asyncio

import pytest

from pointsman.core.seams import Change
from pointsman.router.front.legacy import replay
from tests.router.front.raw_http import LONG_S, Connection, call
from tests.router.front.served_front import Served, serving

Session = list[tuple[str, str]]
CHANGED = Change("notifications/resources/list_changed", {})
KEYS = ("k" * 40,)


async def resume(served: Served, session: Session, last: str, **how: str) -> Connection:
    return await served.start(None, verb="GET", headers=[*session, ("Last-Event-ID", last)], **how)


async def lose(served: Served, connection: Connection) -> str:
    """Cut the line; the id of the last event that came over it."""
    await connection.close()
    async with asyncio.timeout(LONG_S):
        while served.connections:
            await asyncio.sleep(0.01)
    return connection.last_event_id


async def telling(served: Served, session: Session, times: int = 1) -> Connection:
    """A call that has said something and is still under way."""
    connection = await served.start(call("tell", {"times": times, "slowly": True, "text": "done"}), headers=session)
    await connection.head()
    await connection.event()
    await served.gateway.entered.acquire()
    return connection


async def test_the_answer_to_a_lost_stream_is_fetched_later() -> None:
    async with serving() as served:
        session = await served.open_session()
        last = await lose(served, await telling(served, session))
        served.gateway.leave.set()
        await until_idle(served)
        rest = await (await resume(served, session, last)).answer()
        assert [message["result"]["content"][0]["text"] for message in rest.messages] == ["done"]


async def test_a_stream_is_resumed_while_its_call_still_runs() -> None:
    async with serving() as served:
        session = await served.open_session()
        last = await lose(served, await telling(served, session))
        resumed = await resume(served, session, last)
        assert "text/event-stream" in await resumed.head()
        served.gateway.leave.set()
        assert (await resumed.event())["result"]["content"][0]["text"] == "done"
        await resumed.closed_stream()
        await resumed.close()


async def test_events_that_were_lost_come_again_in_their_order_and_no_others() -> None:
    async with serving() as served:
        session = await served.open_session()
        told = await served.send(call("tell", {"times": 5}), headers=session)
        ids = [line[4:] for line in told.body.decode().splitlines() if line.startswith("id: ")]
        assert len(set(ids)) == 6
        for seen, last in enumerate(ids, start=1):
            rest = await (await resume(served, session, last)).answer()
            assert rest.messages == told.messages[seen:]


async def test_a_question_survives_a_lost_line() -> None:
    async with serving(resume_s=LONG_S) as served:
        session = await served.open_session({"elicitation": {}})
        asking = await served.start(call("ask"), headers=session)
        await asking.head()
        question = await asking.event()
        last = await lose(served, asking)
        resumed = await resume(served, session, last)
        await resumed.head()
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
        assert (await served.send(reply, headers=session)).status == 202
        assert (await resumed.event())["result"]["content"][0]["text"] == "accept"
        await resumed.close()


async def test_a_question_that_was_never_read_is_read_after_coming_back() -> None:
    async with serving(resume_s=LONG_S) as served:
        session = await served.open_session({"elicitation": {}})
        connection = await served.start(call("ask_all", {"times": 2}), headers=session)
        await connection.head()
        progress, question = await connection.event(), await connection.event()
        assert progress["method"] == "notifications/progress"
        last = await lose(served, connection)
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"answer": "one"}}}
        assert (await served.send(reply, headers=session)).status == 202
        resumed = await resume(served, session, last)
        await resumed.head()
        assert (await resumed.event())["method"] == "notifications/progress"
        question = await resumed.event()
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"answer": "two"}}}
        assert (await served.send(reply, headers=session)).status == 202
        assert (await resumed.event())["result"]["content"][0]["text"] == "one two"
        await resumed.close()


async def test_a_line_can_be_lost_more_than_once() -> None:
    async with serving() as served:
        session = await served.open_session()
        last = await lose(served, await telling(served, session))
        for _ in range(3):
            again = await resume(served, session, last)
            await again.head()
            await again.close()
        served.gateway.leave.set()
        rest = await (await resume(served, session, last)).answer()
        assert rest.last["result"]["content"][0]["text"] == "done"


async def test_the_newest_reader_takes_the_stream_over() -> None:
    async with serving() as served:
        session = await served.open_session()
        old = await telling(served, session)
        new = await resume(served, session, old.last_event_id)
        await new.head()
        await old.closed_stream()
        served.gateway.leave.set()
        assert (await new.event())["result"]["content"][0]["text"] == "done"
        await old.close()
        await new.close()


async def test_a_client_that_does_not_come_back_ends_its_question() -> None:
    async with serving() as served:
        session = await served.open_session({"elicitation": {}})
        asking = await served.start(call("ask"), headers=session)
        await asking.head()
        await asking.event()
        taken_over = await resume(served, session, asking.last_event_id)
        await taken_over.head()
        await asking.closed_stream()
        last = await lose(served, taken_over) or asking.last_event_id
        await until_idle(served)
        rest = await (await resume(served, session, last)).answer()
        assert rest.text == "ClientGoneError"
        await asking.close()


async def test_only_the_owner_resumes() -> None:
    async with serving() as served:
        session = await served.open_session()
        told = await telling(served, session)
        for how in ({"token": "secret-b"}, {"path": "/projects/research/mcp"}):
            thief = await resume(served, session, told.last_event_id, **how)
            assert (await thief.answer()).status == 404
        others = await served.open_session(token="secret-b")
        thief = await resume(served, others, told.last_event_id, token="secret-b")
        assert (await thief.answer()).status == 400
        served.gateway.leave.set()
        assert (await told.event())["result"]["content"][0]["text"] == "done"


async def test_what_is_kept_no_longer_is_said_to_be_so() -> None:
    now = 1000.0
    async with serving(clock=lambda: now) as served:
        session = await served.open_session()
        told = await served.send(call("tell", {"times": 1}), headers=session)
        (first, _) = [line[4:] for line in told.body.decode().splitlines() if line.startswith("id: ")]
        now += replay.KEEP_S + 1
        served.front._sessions.reap()
        refused = await (await resume(served, session, first)).answer()
        assert (refused.status, refused.reason) == (400, "bad_request")


async def test_a_stream_of_a_call_does_not_survive_a_restart_but_the_stream_of_changes_goes_on() -> None:
    async with serving(request_keys=KEYS) as before:
        session = await before.open_session()
        told = await before.send(call("tell", {"times": 1}), headers=session)
        (first, _) = [line[4:] for line in told.body.decode().splitlines() if line.startswith("id: ")]
        stream = await before.start(None, verb="GET", headers=session)
        await stream.head()
        await before.gateway.listening.acquire()
        before.gateway.publish(CHANGED)
        await stream.event()
        await stream.close()
    async with serving(request_keys=KEYS) as after:
        assert (await (await resume(after, session, first)).answer()).status == 400
        again = await resume(after, session, stream.last_event_id)
        await again.head()
        await after.gateway.listening.acquire()
        after.gateway.publish(CHANGED)
        assert (await again.event())["method"] == CHANGED.method
        await again.close()


@pytest.mark.parametrize("last", ["", "x", "1-2", "zz-zz-zz", "0" * 5000])
async def test_an_id_that_says_nothing_opens_the_plain_stream(last: str) -> None:
    async with serving() as served:
        session = await served.open_session()
        stream = await resume(served, session, last)
        assert "200 OK" in await stream.head()
        await stream.close()


async def test_changes_that_a_client_missed_are_told_when_it_is_back() -> None:
    async with serving(resume_s=LONG_S) as served:
        session = await served.open_session()
        stream = await served.start(None, verb="GET", headers=session)
        await stream.head()
        await served.gateway.listening.acquire()
        served.gateway.publish(CHANGED)
        await stream.event()
        last = await lose(served, stream)
        missed = Change("notifications/prompts/list_changed", {})
        served.gateway.publish(missed)
        again = await resume(served, session, last)
        await again.head()
        assert (await again.event())["method"] == missed.method
        await served.gateway.listening.acquire()
        served.gateway.publish(CHANGED)
        assert (await again.event())["method"] == CHANGED.method
        assert len(served.gateway.listeners) == 1
        await again.close()


async def test_a_client_that_knows_them_is_primed_with_an_id() -> None:
    async with serving(ping_s=0.02) as served:
        for version, primed in (("2025-11-25", True), ("2025-06-18", False)):
            session = await served.open_session(version=version)
            connection = await served.start(call("slow", {"text": "done"}), headers=session)
            await connection.head()
            opening = await connection.chunk()
            assert (b"id: " in opening, b"data: \r\n\r\n" in opening) == (primed, primed)
            stream = await served.start(None, verb="GET", headers=session)
            await stream.head()
            assert (b"id: " in await stream.chunk()) == primed
            await connection.close()
            await stream.close()
        served.gateway.leave.set()


async def test_a_primed_client_gets_the_whole_answer_by_the_id_it_was_primed_with() -> None:
    async with serving(ping_s=0.02) as served:
        session = await served.open_session()
        connection = await served.start(call("slow", {"text": "done"}), headers=session)
        await connection.head()
        opening = (await connection.chunk()).decode()
        (last,) = [line[4:] for line in opening.splitlines() if line.startswith("id: ")]
        await lose(served, connection)
        served.gateway.leave.set()
        await until_idle(served)
        assert (await (await resume(served, session, last)).answer()).text == "done"


async def test_a_deleted_session_leaves_no_events_behind() -> None:
    async with serving() as served:
        session = await served.open_session()
        await served.send(call("tell", {"times": 20, "size": 1000}), headers=session)
        store = served.front._sessions._events
        assert store.size > 20_000
        await served.send(verb="DELETE", headers=session)
        assert store.size == 0


async def until_idle(served: Served) -> None:
    async with asyncio.timeout(LONG_S):
        while served.front.calls_running:
            await asyncio.sleep(0.01)
