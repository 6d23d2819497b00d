"""Subscriptions: told to those who subscribed, counted once, and given up at the end, in both eras."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pointsman.config.model import Limits
from pointsman.core.seams import Change
from tests.router.front.raw_http import LONG_S, NAMESPACE, Connection, Json, call, modern
from tests.router.front.served_front import Served, serving


def plain(method: str, uri: str) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"uri": uri}}


def updated(uri: str) -> Change:
    return Change("notifications/resources/updated", {"uri": uri})


async def subscribe(served: Served, session: list[tuple[str, str]], uri: str, un: str = "") -> Json:
    answer: Json = (await served.send(plain(f"resources/{un}subscribe", uri), headers=session)).json
    return answer


async def listening(served: Served, *uris: str, **how: Any) -> tuple[Connection, Json]:
    wanted = {"resourceSubscriptions": list(uris), "promptsListChanged": True}
    body, headers = modern("subscriptions/listen", {"notifications": wanted}, client_id="sub")
    stream = await served.start(body, headers=headers, **how)
    await stream.head()
    honoured: Json = (await stream.event())["params"]["notifications"]
    return stream, honoured


async def test_a_session_hears_of_the_resources_that_it_subscribed_to() -> None:
    async with serving() as served:
        session = await served.open_session()
        stream = await served.start(None, verb="GET", headers=session)
        await stream.head()
        await served.gateway.listening.acquire()
        served.gateway.publish(updated("x://1"))
        for uri in ("x://1", "x://2"):
            assert (await subscribe(served, session, uri))["result"] == {}
        assert (await subscribe(served, session, "x://2", "un"))["result"] == {}
        for uri in ("x://2", "x://3", "x://1"):
            served.gateway.publish(updated(uri))
        assert (await stream.event())["params"] == {"uri": "x://1"}
        served.gateway.publish(updated("x://1"))
        assert (await stream.event())["params"] == {"uri": "x://1"}
        await stream.close()


async def test_each_subscription_is_counted_once() -> None:
    async with serving() as served:
        session = await served.open_session()
        for _ in range(3):
            assert (await subscribe(served, session, "x://1"))["result"] == {}
        assert served.gateway.subscribed == ["x://1"]
        for _ in range(3):
            assert (await subscribe(served, session, "x://1", "un"))["result"] == {}
        assert served.gateway.subscribed == []
        other = await served.open_session(token="secret-b")
        unsubscribe = plain("resources/unsubscribe", "x://1")
        await subscribe(served, session, "x://1")
        assert (await served.send(unsubscribe, headers=other, token="secret-b")).json["result"] == {}
        assert served.gateway.subscribed == ["x://1"]


async def test_two_subscriptions_at_once_are_one() -> None:
    async with serving() as served:
        session = await served.open_session()
        both = [await served.start(plain("resources/subscribe", "x://slow/1"), headers=session) for _ in range(2)]
        for _ in both:
            await served.gateway.entered.acquire()
        served.gateway.leave.set()
        for connection in both:
            assert (await connection.answer()).json["result"] == {}
            await connection.close()
        await until(lambda: served.gateway.subscribed == ["x://slow/1"])


async def test_a_refused_subscription_is_none() -> None:
    async with serving() as served:
        session = await served.open_session()
        for _ in range(2):
            assert (await subscribe(served, session, "unknown"))["error"]["code"] == -32602


async def test_subscriptions_of_a_session_are_limited() -> None:
    async with serving() as served:
        session = await served.open_session()
        for number in range(256):
            await subscribe(served, session, f"x://{number}")
        assert (await subscribe(served, session, "x://more"))["error"]["code"] == -32600
        assert len(served.gateway.subscribed) == 256


async def test_a_session_that_ends_gives_its_subscriptions_up() -> None:
    async with serving() as served:
        session = await served.open_session()
        for uri in ("x://1", "x://2"):
            await subscribe(served, session, uri)
        await served.send(verb="DELETE", headers=session)
        await until(lambda: served.gateway.subscribed == [])


async def test_a_session_that_ends_while_it_subscribes_leaves_nothing() -> None:
    async with serving() as served:
        session = await served.open_session()
        subscribing = await served.start(plain("resources/subscribe", "x://slow/1"), headers=session)
        await served.gateway.entered.acquire()
        await served.send(verb="DELETE", headers=session)
        assert (await subscribing.answer()).code == -32800
        served.gateway.leave.set()
        await until(lambda: not served.front.calls_running)
        assert served.gateway.subscribed == []
        await subscribing.close()


async def test_an_idle_session_gives_its_subscriptions_up() -> None:
    now = 1000.0
    async with serving(limits=Limits(session_idle_s=600), clock=lambda: now) as served:
        session = await served.open_session()
        await subscribe(served, session, "x://1")
        now += 601
        assert (await served.send(call("echo"), headers=session)).status == 404
        await until(lambda: served.gateway.subscribed == [])


async def test_a_listener_subscribes_and_is_told_what_was_honoured() -> None:
    async with serving() as served:
        stream, honoured = await listening(served, "x://1", "unknown", "x://2", "x://1")
        assert honoured == {"promptsListChanged": True, "resourceSubscriptions": ["x://1", "x://2"]}
        assert sorted(served.gateway.subscribed) == ["x://1", "x://2"]
        for uri in ("unknown", "x://3", "x://2"):
            served.gateway.publish(updated(uri))
        notice = await stream.event()
        assert notice["params"] == {"uri": "x://2", "_meta": {NAMESPACE + "subscriptionId": "sub"}}
        await stream.close()
        await until(lambda: served.gateway.subscribed == [] and not served.front.calls_running)


async def test_a_listener_misses_nothing_while_it_subscribes() -> None:
    async with serving() as served:
        body, headers = modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["x://slow/1"]}})
        stream = await served.start(body, headers=headers)
        await served.gateway.entered.acquire()
        await served.gateway.listening.acquire()
        served.gateway.publish(updated("x://slow/1"))
        served.gateway.leave.set()
        await stream.head()
        assert (await stream.event())["method"] == "notifications/subscriptions/acknowledged"
        assert (await stream.event())["params"]["uri"] == "x://slow/1"
        await stream.close()


async def test_a_listener_that_leaves_while_it_subscribes_leaves_nothing() -> None:
    async with serving() as served:
        wanted = {"resourceSubscriptions": ["x://1", "x://slow/1"]}
        body, headers = modern("subscriptions/listen", {"notifications": wanted})
        stream = await served.start(body, headers=headers)
        await served.gateway.entered.acquire()
        await stream.close()
        await until(lambda: not served.front.calls_running)
        await until(lambda: served.gateway.subscribed == [] and served.gateway.listeners == [])


@pytest.mark.parametrize("number", [257, 5000])
async def test_a_listener_cannot_subscribe_to_everything(number: int) -> None:
    async with serving() as served:
        wanted = {"resourceSubscriptions": [f"x://{n}" for n in range(number)]}
        body, headers = modern("subscriptions/listen", {"notifications": wanted})
        answer = await served.send(body, headers=headers)
        assert (answer.status, answer.code) == (400, -32602)
        assert served.gateway.subscribed == []


async def until(true: Any) -> None:
    async with asyncio.timeout(LONG_S):
        while not true():
            await asyncio.sleep(0.01)
