"""Bodies that are no JSON, or no JSON-RPC."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.router.front.raw_http import MODERN, call
from tests.router.front.served_front import serving

NOT_JSON = {
    "nothing": b"",
    "words": b"hello",
    "a cut": b'{"jsonrpc": "2.0", "id": 1',
    "two": b"{} {}",
    "bad UTF-8": b'{"jsonrpc": "2.0", "id": "\xff", "method": "ping"}',
    "UTF-16": '{"jsonrpc": "2.0"}'.encode("utf-16"),
    "a lone surrogate": b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}',
    "NaN": b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": NaN}}',
    "Infinity": b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": -Infinity}}',
    "too deep": b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b'{"x":' * 100_000,
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
}
NOT_RPC: dict[str, Any] = {
    "null": None,
    "a number": 7,
    "a batch": [call("echo")],
    "an empty batch": [],
    "no version": {"id": 1, "method": "ping"},
    "another version": {"jsonrpc": "1.0", "id": 1, "method": "ping"},
    "a version as a number": {"jsonrpc": 2.0, "id": 1, "method": "ping"},
    "no method": {"jsonrpc": "2.0", "id": 1},
    "a method as a number": {"jsonrpc": "2.0", "id": 1, "method": 7},
    "an empty method": {"jsonrpc": "2.0", "id": 1, "method": ""},
    "a null method": {"jsonrpc": "2.0", "id": 1, "method": None},
    "a null id": {"jsonrpc": "2.0", "id": None, "method": "ping"},
    "a true id": {"jsonrpc": "2.0", "id": True, "method": "ping"},
    "a fraction as id": {"jsonrpc": "2.0", "id": 1.5, "method": "ping"},
    "an object as id": {"jsonrpc": "2.0", "id": {}, "method": "ping"},
    "a list as params": {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []},
    "words as params": {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": "x"},
    "a list as _meta": {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": []}},
    "request and answer": {"jsonrpc": "2.0", "id": 1, "method": "ping", "result": {}},
    "result and error": {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}},
    "an answer without id": {"jsonrpc": "2.0", "result": {}},
}


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
async def test_what_is_not_json_is_a_parse_error(body: bytes, era: str) -> None:
    async with serving() as served:
        answer = await served.send(body, headers=[("MCP-Protocol-Version", era)])
        assert (answer.status, answer.code, answer.reason) == (400, -32700, "bad_request")
        assert answer.json["id"] is None


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
@pytest.mark.parametrize("body", NOT_RPC.values(), ids=NOT_RPC.keys())
async def test_json_that_is_not_json_rpc_is_an_invalid_request(body: Any, era: str) -> None:
    async with serving() as served:
        data = json.dumps(body).encode()
        answer = await served.send(data, headers=[("MCP-Protocol-Version", era)])
        assert (answer.status, answer.code, answer.reason) == (400, -32600, "bad_request")
        assert served.gateway.requests == []


async def test_null_stands_for_absent_params() -> None:
    async with serving() as served:
        session = await served.open_session()
        for params in (None, {"_meta": None}):
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
            assert (await served.send(body, headers=session)).code is None


async def test_large_integers_and_odd_ids_come_back_as_they_were() -> None:
    async with serving() as served:
        session = await served.open_session()
        for client_id in (0, -1, 2**64, 2**80, "", "ü", "1"):
            assert (await served.send(call("echo", client_id=client_id), headers=session)).json["id"] == client_id
        answer = await served.send(call("echo", {"text": 18446744073709551616}), headers=session)
        assert answer.text == "18446744073709551616"


async def test_of_two_equal_keys_the_last_one_counts_everywhere() -> None:
    async with serving() as served:
        session = await served.open_session()
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"fail","name":"echo"}}'
        assert (await served.send(body, headers=session)).text == ""
