"""Modern requests: each stands alone, and ends when its connection does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pointsman.core.seams import Change
from pointsman.router.front.http.responses import INTERNAL
from tests.router.front.raw_http import LONG_S, MODERN, NAMESPACE, Json, modern, modern_call
from tests.router.front.served_front import Served, serving

SERVER_INFO = NAMESPACE + "serverInfo"


async def test_discover_says_what_we_are() -> None:
    async with serving() as served:
        body, headers = modern("server/discover")
        result = (await served.send(body, headers=headers)).json["result"]
        assert result["supportedVersions"] == [MODERN]
        assert result["capabilities"] == {"tools": {"listChanged": True}}
        assert result["instructions"] == "Two tools."
        assert (result["resultType"], result["cacheScope"]) == ("complete", "private")
        assert result["ttlMs"] >= 0
        assert result["_meta"][SERVER_INFO]["name"] == "pointsman"


async def test_results_carry_what_the_era_demands() -> None:
    async with serving() as served:
        body, headers = modern("tools/list")
        listed = (await served.send(body, headers=headers)).json["result"]
        assert (listed["resultType"], listed["cacheScope"]) == ("complete", "private")
        body, headers = modern_call("odd", {"kind": "meta"})
        called = (await served.send(body, headers=headers)).json["result"]
        assert called["_meta"] == {"vendor/x": 1, SERVER_INFO: {"name": "pointsman", "version": "0.test"}}
        assert called["resultType"] == "complete"
        assert "ttlMs" not in called
        client = served.gateway.requests[-1].client
        assert (client.name, client.era, client.version, client.log_level) == ("raw", "modern", MODERN, None)


async def test_the_envelope_reaches_the_gateway() -> None:
    async with serving() as served:
        extra: Json = {"progressToken": 5, NAMESPACE + "logLevel": "debug"}
        body, headers = modern_call("echo", capabilities={"sampling": {}}, **extra)
        await served.send(body, headers=headers)
        client = served.gateway.requests[-1].client
        assert (client.progress_token, client.log_level, client.capabilities) == (5, "debug", {"sampling": {}})


async def test_no_session_is_made() -> None:
    async with serving() as served:
        body, headers = modern_call("echo")
        answer = await served.send(body, headers=headers)
        assert "mcp-session-id" not in answer.headers
        assert served.front.sessions_open == 0


@pytest.mark.parametrize("method", ["nope/nope", "initialize", "ping", "logging/setLevel", "resources/subscribe"])
async def test_an_unknown_method_is_a_404(method: str) -> None:
    async with serving() as served:
        body, headers = modern(method)
        answer = await served.send(body, headers=headers)
        assert (answer.status, answer.code, answer.json["id"]) == (404, -32601, 1)


@pytest.mark.parametrize(
    ("header", "value"),
    [("Mcp-Method", "tools/list"), ("Mcp-Name", "other"), ("Mcp-Name", None), ("Mcp-Method", None)],
)
async def test_headers_that_differ_from_the_body_run_nothing(header: str, value: str | None) -> None:
    async with serving() as served:
        body, headers = modern_call("echo")
        kept = [(k, v) for k, v in headers if k != header] + ([(header, value)] if value else [])
        answer = await served.send(body, headers=kept)
        assert (answer.status, answer.code, answer.reason) == (400, -32020, "bad_request")
        assert served.gateway.requests == []


async def test_headers_that_differ_are_refused_also_after_a_call_whose_headers_were_right() -> None:
    async with serving() as served:
        body, headers = modern_call("echo")
        for _ in range(2):
            assert (await served.send(body, headers=headers)).status == 200
        for header, value in (
            ("Mcp-Method", "tools/list"),
            ("Mcp-Name", "other"),
            ("MCP-Protocol-Version", "2099-01-01"),
        ):
            kept = [(k, v) for k, v in headers if k.lower() != header.lower()] + [(header, value)]
            assert (await served.send(body, headers=kept)).code == -32020
        other, _ = modern_call("hang")
        assert (await served.send(other, headers=headers)).code == -32020
        del body["params"]["_meta"][NAMESPACE + "clientCapabilities"]
        assert (await served.send(body, headers=headers)).code == -32602
        assert len(served.gateway.requests) == 2


async def test_a_name_is_compared_as_its_header_decodes_it() -> None:
    async with serving() as served:
        encoded = "=?base64?ZWNobw==?="  # "echo"
        body, headers = modern_call("echo")
        wrapped = [(k, encoded if k == "Mcp-Name" else v) for k, v in headers]
        assert [(await served.send(body, headers=wrapped)).status for _ in range(2)] == [200, 200]
        body["params"]["name"] = encoded
        assert (await served.send(body, headers=wrapped)).code == -32020


async def test_an_unknown_version_is_told_those_that_are_served() -> None:
    async with serving() as served:
        body, headers = modern_call("echo")
        body["params"]["_meta"][NAMESPACE + "protocolVersion"] = "2099-01-01"
        answer = await served.send(body, headers=[("MCP-Protocol-Version", "2099-01-01"), *headers[1:]])
        assert (answer.status, answer.code) == (400, -32022)
        assert answer.json["error"]["data"]["supported"] == [MODERN]


@pytest.mark.parametrize(
    "change",
    [
        {NAMESPACE + "clientCapabilities": []},
        {NAMESPACE + "logLevel": "loud"},
        {NAMESPACE + "logLevel": {}},
        {"progressToken": {}},
    ],
)
async def test_a_broken_envelope_is_invalid(change: Json) -> None:
    async with serving() as served:
        body, headers = modern_call("echo", **change)
        answer = await served.send(body, headers=headers)
        assert (answer.status, answer.code) == (400, -32602)


async def test_notifications_are_accepted_and_posted_answers_are_not() -> None:
    async with serving() as served:
        headers = [("MCP-Protocol-Version", MODERN)]
        notice: Json = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert (await served.send(notice, headers=headers)).status == 202
        assert (await served.send({"jsonrpc": "2.0", "id": 1, "result": {}}, headers=headers)).status == 400
        unknown = await served.send(notice, headers=[("MCP-Protocol-Version", "2099-01-01")])
        assert (unknown.status, unknown.code) == (400, -32022)


@pytest.mark.parametrize("verb", ["GET", "DELETE", "PUT"])
async def test_only_post_is_there(verb: str) -> None:
    async with serving() as served:
        answer = await served.send(verb=verb, headers=[("MCP-Protocol-Version", MODERN)])
        assert (answer.status, answer.headers["allow"]) == (405, "POST")


async def test_a_client_that_leaves_cancels_its_call() -> None:
    async with serving() as served:
        body, headers = modern_call("slow")
        connection = await served.start(body, headers=headers)
        await served.gateway.entered.acquire()
        await connection.close()
        await within(served.gateway.cancelled.acquire())
        await until_idle(served)
        assert served.gateway.finished == 0


async def test_a_half_closed_connection_counts_as_left() -> None:
    async with serving() as served:
        body, headers = modern_call("slow")
        connection = await served.start(body, headers=headers)
        await served.gateway.entered.acquire()
        connection.half_close()
        await within(served.gateway.cancelled.acquire())
        await connection.close()


async def test_a_client_that_leaves_in_the_middle_of_a_stream_cancels_its_call() -> None:
    async with serving() as served:
        body, headers = modern_call("tell", {"slowly": True})
        connection = await served.start(body, headers=headers)
        await connection.head()
        await connection.event()
        await connection.close()
        await within(served.gateway.cancelled.acquire())
        await until_idle(served)


async def test_clients_that_leave_all_the_time_leave_nothing_behind() -> None:
    async with serving() as served:
        before = len(asyncio.all_tasks())
        body, headers = modern_call("slow")
        for _ in range(20):
            together = [await served.start(body, headers=headers) for _ in range(10)]
            for _ in together:
                await served.gateway.entered.acquire()
            for connection in together:
                await connection.close()
            for _ in together:
                await within(served.gateway.cancelled.acquire())
        await until_idle(served)
        async with asyncio.timeout(LONG_S):
            while served.connections or len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.01)


async def test_an_error_after_something_was_said_comes_on_the_stream() -> None:
    async with serving() as served:
        body, headers = modern_call("tell", {"times": 1})
        told = await served.send(body, headers=headers)
        assert (told.status, told.headers["content-type"]) == (200, "text/event-stream")
        assert told.last["result"]["resultType"] == "complete"
        body, headers = modern_call("fail")
        failed = await served.send(body, headers=headers)
        assert (failed.status, failed.json["error"]) == (200, {"code": -32603, "message": INTERNAL})


def listen(**wanted: Any) -> tuple[Json, list[tuple[str, str]]]:
    return modern("subscriptions/listen", {"notifications": wanted}, client_id="sub")


async def test_a_listener_hears_what_it_asked_for_and_nothing_else() -> None:
    async with serving() as served:
        body, headers = listen(promptsListChanged=True, toolsListChanged=False, resourceSubscriptions=["x://1"])
        stream = await served.start(body, headers=headers)
        await stream.head()
        meta = {NAMESPACE + "subscriptionId": "sub"}
        acknowledged = await stream.event()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        honoured = {"promptsListChanged": True, "resourceSubscriptions": ["x://1"]}
        assert acknowledged["params"] == {"notifications": honoured, "_meta": meta}
        await served.gateway.listening.acquire()
        for change in (
            Change("notifications/tools/list_changed", {}),
            Change("notifications/resources/updated", {"uri": "x://2"}),
            Change("notifications/resources/updated", {"uri": "x://1"}),
            Change("notifications/prompts/list_changed", {}),
        ):
            served.gateway.publish(change)
        assert (await stream.event())["params"] == {"uri": "x://1", "_meta": meta}
        assert (await stream.event())["method"] == "notifications/prompts/list_changed"
        await stream.close()
        await until_idle(served)
        assert served.gateway.listeners == []


async def test_a_listener_is_told_when_the_gateway_goes() -> None:
    async with serving() as served:
        body, headers = listen(toolsListChanged=True)
        stream = await served.start(body, headers=headers)
        await served.gateway.listening.acquire()
        await within(served.front.drain(LONG_S))
        answer = await stream.answer()
        assert answer.last["id"] == "sub"
        assert answer.last["result"]["resultType"] == "complete"
        await stream.close()


async def test_listeners_of_one_token_are_limited() -> None:
    async with serving() as served:
        body, headers = listen(toolsListChanged=True)
        streams = [await served.start(body, headers=headers) for _ in range(64)]
        for _ in streams:
            await served.gateway.listening.acquire()
        refused = await served.send(body, headers=headers)
        assert refused.code == -32603
        other = await served.start(body, headers=headers, token="secret-b")
        await served.gateway.listening.acquire()
        for stream in (*streams, other):
            await stream.close()
        await until_idle(served)


@pytest.mark.parametrize(
    "params", [{}, {"notifications": []}, {"notifications": {"resourceSubscriptions": "x"}}, {"notifications": None}]
)
async def test_a_broken_subscription_is_invalid(params: Json) -> None:
    async with serving() as served:
        body, headers = modern("subscriptions/listen", params)
        answer = await served.send(body, headers=headers)
        assert (answer.status, answer.code) == (400, -32602)


async def within(awaitable: Any) -> None:
    async with asyncio.timeout(LONG_S):
        await awaitable


async def until_idle(served: Served) -> None:
    async with asyncio.timeout(LONG_S):
        while served.front.calls_running:
            await asyncio.sleep(0.01)
