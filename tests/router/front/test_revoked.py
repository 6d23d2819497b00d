"""What stays open without a request under way ends within a second after its token holds no more."""

from __future__ import annotations

import asyncio

from pointsman.core.seams import Change
from tests.router.front.raw_http import LONG_S, call, modern
from tests.router.front.rounds import called
from tests.router.front.served_front import serving


async def test_the_stream_of_a_session_ends() -> None:
    async with serving() as served:
        streams = []
        for token in ("secret-a", "secret-b"):
            session = await served.open_session(token=token)
            streams.append(await served.start(None, verb="GET", headers=session, token=token))
            await streams[-1].head()
        served.gateway.revoked.add("secret-a")
        await streams[0].closed_stream()
        assert len(served.gateway.listeners) == 1
        for stream in streams:
            await stream.close()


async def test_a_listener_is_answered() -> None:
    async with serving() as served:
        body, headers = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        stream = await served.start(body, headers=headers)
        await served.gateway.listening.acquire()
        served.gateway.revoked.add("secret-a")
        assert (await stream.answer()).last["result"]["resultType"] == "complete"
        await stream.close()


async def test_a_listener_that_still_subscribes_is_not_acknowledged() -> None:
    async with serving() as served:
        wanted = {"resourceSubscriptions": ["x://1", "x://slow/1"], "toolsListChanged": True}
        body, headers = modern("subscriptions/listen", {"notifications": wanted})
        stream = await served.start(body, headers=headers)
        await served.gateway.entered.acquire()
        await served.gateway.listening.acquire()
        served.gateway.revoked.add("secret-a")
        served.gateway.publish(Change("notifications/tools/list_changed", {}))
        served.gateway.leave.set()
        answer = await stream.answer()
        assert [message["error"]["data"]["code"] for message in answer.messages] == ["unauthorized"]
        async with asyncio.timeout(LONG_S):
            while served.gateway.subscribed:
                await asyncio.sleep(0.01)
        await stream.close()


async def test_a_line_of_the_old_transport_ends_with_its_calls() -> None:
    async with serving() as served:
        stream = await served.start(None, verb="GET", path="/sse")
        await stream.head()
        await served.gateway.listening.acquire()
        served.gateway.revoked.add("secret-a")
        await stream.closed_stream()
        async with asyncio.timeout(LONG_S):
            while served.front.sessions_open:
                await asyncio.sleep(0.01)
        await stream.close()


async def test_a_parked_call_is_cancelled() -> None:
    async with serving() as served:
        await called(served, "ask")
        served.gateway.revoked.add("secret-a")
        async with asyncio.timeout(LONG_S):
            await served.gateway.cancelled.acquire()
            while served.front.calls_parked:
                await asyncio.sleep(0.01)


async def test_a_plain_call_that_runs_already_is_left_alone() -> None:
    async with serving() as served:
        session = await served.open_session()
        running = await served.start(call("slow"), headers=session)
        stream = await served.start(None, verb="GET", headers=session)
        await stream.head()
        await served.gateway.entered.acquire()
        served.gateway.revoked.add("secret-a")
        await stream.closed_stream()
        served.gateway.leave.set()
        assert (await running.answer()).status == 200
        assert (await served.send(call("echo"), headers=session)).status == 401
        await running.close()
        await stream.close()
