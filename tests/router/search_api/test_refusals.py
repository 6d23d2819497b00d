"""Requests that are refused: who may not, what is malformed, what is too much. All of them say what to do."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.router.front.raw_http import Connection, request
from tests.router.search_api.conftest import ALPHA, BOTH, NOBODY, OLD
from tests.router.search_api.search_client import TOOLS, Client, error_of, tool

GOOD = {"query": ["weather"], "tools": TOOLS}
JSON = {"Content-Type": "application/json"}


async def test_without_a_token_nothing_is_searched(client: Client) -> None:
    response = await client.http.post("/catalog/search", json=GOOD)
    assert error_of(response) == (401, "unauthorized")
    assert response.headers["www-authenticate"] == "Bearer"
    assert "pointsman token create" in response.text


@pytest.mark.parametrize("secret", ["ptm_wrong", OLD])
async def test_a_token_that_is_unknown_or_has_expired_is_a_401(client: Client, secret: str) -> None:
    response = await client.post(GOOD, token=secret)
    assert error_of(response) == (401, "unauthorized")
    assert secret not in response.text


@pytest.mark.parametrize(
    ("secret", "project", "status"),
    [
        (ALPHA, "alpha", 200),
        (ALPHA, "beta", 403),
        (ALPHA, "gamma", 403),
        (ALPHA, "", 403),
        (ALPHA, None, 403),
        (BOTH, "alpha", 200),
        (BOTH, "beta", 200),
        (BOTH, "", 200),
        (BOTH, None, 200),
        (BOTH, "gamma", 403),
        (NOBODY, "alpha", 403),
        (NOBODY, None, 403),
    ],
)
async def test_a_token_searches_for_its_own_projects_alone(
    client: Client, secret: str, project: str | None, status: int
) -> None:
    headers = {} if project is None else {"X-Pointsman-Project": project}
    response = await client.post(GOOD, headers, secret)
    assert response.status_code == status
    if status == 403:
        assert error_of(response)[1] == "denied"


@pytest.mark.parametrize("project", ["alpha", "", "one-that-only-a-gateway-knows"])
async def test_a_token_for_all_projects_needs_none_of_them_named_here(client: Client, project: str) -> None:
    assert (await client.post(GOOD, {"X-Pointsman-Project": project})).status_code == 200


TOO_DEEP = b'{"query": ["x"], "tools": [{"toolKey": "a:b", "toolName": "b", "serverName": "a", "inputSchema": %b}]}'


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "JSON object"),
        (b'"text"', "JSON object"),
        ({"tools": []}, "`query` is missing"),
        ({"query": ["x"]}, "`tools` is missing"),
        ({"query": [], "tools": []}, "`query` must be a string, or a list"),
        ({"query": 5, "tools": []}, "`query` must be a string, or a list"),
        ({"query": [5], "tools": []}, "`query` must be a string, or a list"),
        ({"query": ["x" * 8_001], "tools": []}, "8000 characters"),
        ({"query": ["x"] * 6, "tools": []}, "the limit is 5"),
        ({"query": ["x"], "context": 5, "tools": []}, "`context` must be a string"),
        ({"query": ["x"], "tools": {}}, "`tools` must be a list"),
        ({"query": ["x"], "tools": None}, "`tools` must be a list"),
        ({"query": ["x"], "tools": ["y"]}, "`tools[0]` must be an object"),
        ({"query": ["x"], "tools": [*TOOLS, {"toolKey": "a:b", "toolName": "b"}]}, "`tools[5].serverName` is missing"),
        ({"query": ["x"], "tools": [tool("a:b") | {"toolKey": ""}]}, "`tools[0].toolKey` must not be empty"),
        ({"query": ["x"], "tools": [tool("a:b") | {"toolKey": 1}]}, "`tools[0].toolKey` must be a string"),
        ({"query": ["x"], "tools": [tool("a:b") | {"inputSchema": "no"}]}, "`tools[0].inputSchema` must be an object"),
        ({"query": ["x"], "tools": [], "maxResults": 0}, "at least 1"),
        ({"query": ["x"], "tools": [], "maxResults": 101}, "at most 100"),
        ({"query": ["x"], "tools": [], "maxResults": "5"}, "must be an integer"),
        ({"query": ["x"], "tools": [], "maxResults": True}, "must be an integer"),
        ({"query": ["x"], "tools": [], "maxResults": 1.5}, "must be an integer"),
        (b'{"query": ["\xff"], "tools": []}', "not valid JSON"),
        (TOO_DEEP % (b'{"a":' * 5_000 + b"1" + b"}" * 5_000), "JSON"),
    ],
)
async def test_what_is_wrong_with_a_body_is_named(client: Client, body: Any, named: str) -> None:
    response = await client.post(body)
    assert error_of(response) == (400, "bad_request")
    assert named in response.json()["error"]["message"]


@pytest.mark.parametrize("version", ["2", "10", "", 1, "1.", "one", "1\n"])
async def test_another_version_of_the_api_is_told_the_one_that_is_spoken(client: Client, version: object) -> None:
    response = await client.post({**GOOD, "apiVersion": version})
    assert error_of(response) == (400, "unsupported_version")
    assert '"1"' in response.json()["error"]["message"]


async def test_too_many_tools_are_a_413(client: Client) -> None:
    response = await client.post({"query": ["x"], "tools": [tool(f"a:t{number}") for number in range(21)]})
    assert error_of(response) == (413, "too_large")
    assert "21 tools; the limit is 20" in response.json()["error"]["message"]


async def test_a_body_that_is_too_large_is_a_413_plain_or_unpacked(client: Client) -> None:
    large = json.dumps({**GOOD, "context": "x" * 200_001}).encode()
    assert error_of(await client.post(large)) == (413, "too_large")
    bomb = gzip.compress(b"0" * 50_000_000)
    assert len(bomb) < 100_000
    response = await client.post(bomb, {"Content-Encoding": "gzip"})
    assert error_of(response) == (413, "too_large")
    assert "exceeds 200000 bytes" in response.json()["error"]["message"]


async def test_what_is_not_whole_gzip_is_refused(client: Client) -> None:
    packed = gzip.compress(json.dumps(GOOD).encode())
    for body in (json.dumps(GOOD).encode(), packed[:-9], packed + b"more"):
        assert error_of(await client.post(body, {"Content-Encoding": "gzip"})) == (400, "bad_request")


async def test_only_plain_or_gzipped_json_is_taken(client: Client) -> None:
    assert error_of(await client.post(GOOD, {"Content-Encoding": "br"})) == (415, "unsupported_media_type")
    assert error_of(await client.post(GOOD, {"Content-Type": "text/plain"})) == (415, "unsupported_media_type")


async def test_paths_and_methods_that_do_not_exist_are_told_so(client: Client) -> None:
    assert error_of(await client.get("/catalog")) == (404, "not_found")
    response = await client.get("/catalog/search")
    assert error_of(response) == (405, "method_not_allowed")
    assert response.headers["allow"] == "POST"
    assert (await client.http.put("/openapi.json")).headers["allow"] == "GET, HEAD"


async def test_another_host_another_origin_and_two_tokens_are_refused(client: Client) -> None:
    port, secret = client.service.port, client.service.token
    cases = [
        (421, "misdirected", [("Host", "evil.example")], ["host"]),
        (403, "denied", [("Origin", "https://evil.example")], []),
        (400, "bad_request", [("Authorization", "Bearer other")], []),
    ]
    for status, code, headers, without in cases:
        for verb, path in (("POST", "/catalog/search"), ("GET", "/health"), ("GET", "/metrics")):
            connection = await Connection.open(port)
            body = GOOD if verb == "POST" else None
            connection.send(request(port, body, verb=verb, path=path, token=secret, headers=headers, without=without))
            answer = await connection.answer()
            await connection.close()
            assert (answer.status, answer.json["error"]["code"]) == (status, code), path


async def test_what_is_not_http_is_answered_in_the_same_shape(client: Client) -> None:
    connection = await Connection.open(client.service.port)
    connection.send(b"this is not HTTP\r\n\r\n")
    answer = await connection.answer()
    await connection.close()
    assert answer.status == 400
    assert answer.json == {"error": {"code": "bad_request", "message": "This is not HTTP. Send an HTTP/1.1 request."}}


@pytest.mark.parametrize("stranger", [b"", b"Authorization: Bearer ptm_wrong\r\n"])
async def test_a_body_without_a_good_token_is_not_even_read(client: Client, stranger: bytes) -> None:
    connection = await Connection.open(client.service.port)
    host = f"Host: 127.0.0.1:{client.service.port}\r\n".encode()
    connection.send(b"POST /catalog/search HTTP/1.1\r\n" + host + stranger + b"Content-Length: 1000\r\n\r\n")
    assert (await connection.answer()).status == 401
    await connection.close()
