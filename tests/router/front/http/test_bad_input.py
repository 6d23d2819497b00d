"""Bad input gets a clear answer over real HTTP: the status, the code and the sentence; and nothing runs."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.router.conftest import Shop


def error_of(result: dict[str, Any]) -> tuple[str, str]:
    assert result["isError"] is True
    error = result["structuredContent"]["error"]
    assert result["content"] == [{"type": "text", "text": error["message"]}]
    return error["code"], error["message"]


async def test_what_the_model_can_act_on_is_a_result(shop: Shop) -> None:
    unknown = error_of(await shop.execute("shop:polish"))
    assert unknown[0] == "unknown_tool"
    assert unknown[1].startswith("No tool `shop:polish`. The nearest keys: `shop:")
    assert unknown[1].endswith("`. Call tool_discovery to see the tools you can use.")
    for hidden in (
        "shop:erase",
        "attic:paint",
        "nowhere:paint",
        "polish",
        "shop:",
        ":paint",
        "shop:Paint",
        "SHOP:paint",
    ):
        code, message = error_of(await shop.execute(hidden))
        assert code == "unknown_tool"
        assert message.startswith(f"No tool `{hidden}`. ")
        assert message.endswith("Call tool_discovery to see the tools you can use.")
        assert not {"shop:erase", "attic:paint", "nowhere:paint"} & set(message.split("`")[2:])

    code, message = error_of(await shop.execute("shop:paint", {"coats": 0}))
    assert code == "invalid_arguments"
    assert "object" in message
    assert "coats" in message
    assert '"required":["object"]' in message.replace(" ", "")

    code, message = error_of(await shop.execute("gone:anything"))
    assert code == "server_unavailable"
    assert "`gone`" in message
    assert "no-such-program-anywhere" in message
    assert shop.ran() == []


async def test_a_server_that_hangs_costs_one_time_out_and_is_told_to_stop(shop: Shop) -> None:
    code, message = error_of(await shop.execute("shop:hang"))
    assert code == "timeout"
    assert "`shop` did not answer within 1 s" in message
    assert not (await shop.execute("shop:paint", {"object": "door"})).get("isError")
    assert [message["method"] for message in shop.ran()] == ["tools/call", "notifications/cancelled", "tools/call"]


async def test_a_crash_costs_the_call_and_the_server_comes_back(shop: Shop) -> None:
    code, message = error_of(await shop.execute("shop:crash"))
    assert code == "server_unavailable"
    assert "`shop`" in message
    while (await shop.execute("shop:paint", {"object": "door"})).get("isError"):
        await asyncio.sleep(0.02)
    assert shop.ran()[-1]["params"]["arguments"] == {"object": "door"}


async def test_a_servers_own_errors_arrive_as_they_are(shop: Shop) -> None:
    broken = await shop.execute("shop:break")
    assert (broken["content"], broken["isError"]) == ([{"type": "text", "text": "it broke"}], True)
    refused = (await shop.call("tool_execute", {"toolKey": "shop:refuse"})).json()
    assert refused["error"] == {"code": -32000, "message": "the workshop is closed", "data": {"until": "morning"}}


async def test_an_answer_arrives_unchanged_with_structured_content_under_result(shop: Shop) -> None:
    result = await shop.execute("shop:paint", '{"object": "door"}')
    assert result["content"][0] == {"type": "text", "text": "paint done"}
    assert result["content"][1] == {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    assert result["structuredContent"] == {"result": {"painted": "door", "coats": 1}}


async def test_a_caller_that_cannot_be_let_in_is_told_why(shop: Shop) -> None:
    call = ("tool_execute", {"toolKey": "shop:paint", "arguments": {"object": "door"}})
    nobody = await shop.call(*call, headers={"Authorization": ""})
    stranger = await shop.call(*call, headers={"Authorization": "Bearer ptm_wrong"})
    for response, words in ((nobody, "Missing token"), (stranger, "Unknown token")):
        error = response.json()["error"]
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert error["data"]["code"] == "unauthorized"
        assert words in error["message"]
        assert "pointsman token create" in error["message"]
        assert "ptm_wrong" not in response.text

    elsewhere = await shop.call(*call, headers={"X-Pointsman-Project": "cellar"})
    assert (elsewhere.status_code, elsewhere.json()["error"]["data"]["code"]) == (403, "denied")
    two_tokens = await shop.call(*call, meta={"token": "ptm_other"})
    assert (two_tokens.status_code, two_tokens.json()["error"]["data"]["code"]) == (403, "denied")
    two_projects = await shop.call(*call, headers={"X-Pointsman-Project": "attic"}, meta={"projectId": ""})
    assert (two_projects.status_code, two_projects.json()["error"]["data"]["code"]) == (403, "denied")
    no_string = await shop.call(*call, meta={"projectId": 7})
    assert (no_string.status_code, no_string.json()["error"]["data"]["code"]) == (400, "bad_request")
    assert shop.ran() == []


async def test_a_token_in_meta_and_a_project_in_meta_do_as_well(shop: Shop) -> None:
    meta = {"token": shop.gateway.token, "projectId": "attic", "vendor/key": "kept", "pointsman/made-up": 1}
    arguments = {"toolKey": "attic:paint", "arguments": {"object": "beam"}}
    response = await shop.call("tool_execute", arguments, headers={"Authorization": ""}, meta=meta)
    assert response.json()["result"]["structuredContent"]["result"]["painted"] == "beam"
    [seen] = shop.ran()
    assert seen["params"]["_meta"] == {"vendor/key": "kept"}


async def test_a_revoked_token_is_refused_within_a_second_in_an_open_session_too(shop: Shop) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    opened = await shop.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert (await shop.post(ping, session)).status_code == 200
    shop.gateway.write_config({"tokens": {}})
    async with asyncio.timeout(30):
        while (await shop.post(ping, session)).status_code == 200:
            await asyncio.sleep(0.02)
    refused = await shop.post(ping, session)
    assert (refused.status_code, refused.json()["error"]["data"]["code"]) == (401, "unauthorized")


async def test_a_body_that_is_no_request_is_refused(shop: Shop) -> None:
    for body, status, code, word in (
        (b"{", 400, -32700, "JSON"),
        (b"\xff\xfe", 400, -32700, "JSON"),
        (b"[]", 400, -32600, "object"),
        (b'{"id": 1}', 400, -32600, ""),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', 400, -32600, ""),
    ):
        response = await shop.post(body)
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["data"]["code"]) == (status, code, "bad_request"), body
        assert word in error["message"]
    large = await shop.post(b'{"x": "' + b"a" * (4 << 20) + b'"}')
    assert (large.status_code, large.json()["error"]["data"]["code"]) == (413, "too_large")
    assert "4194304" in large.json()["error"]["message"]


async def test_a_servers_tool_called_by_its_own_name_is_refused(shop: Shop) -> None:
    direct = await shop.call("paint", {"object": "door"})
    assert direct.json()["error"]["code"] == -32602
    assert "tool_discovery" in direct.json()["error"]["message"]
    nested = error_of(await shop.execute("shop:tool_execute"))
    assert nested[0] == "unknown_tool"
    assert shop.ran() == []


async def test_paths_that_clients_probe_for_oauth_name_the_command(shop: Shop) -> None:
    for path in ("/register", "/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server/mcp"):
        response = await shop.http.get(shop.gateway.base_url + path)
        assert response.status_code == 404
        assert "pointsman token create" in response.json()["error_description"]
