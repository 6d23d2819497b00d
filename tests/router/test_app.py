"""The paths that clients probe after a 401."""

from __future__ import annotations

import pytest

from pointsman.config.model import Listen
from tests.router.front.raw_http import initialize
from tests.router.front.served_front import serving


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", "/register"),
        ("GET", "/.well-known/oauth-protected-resource"),
        ("GET", "/.well-known/oauth-protected-resource/mcp"),
        ("GET", "/.well-known/oauth-authorization-server"),
        ("GET", "/.well-known/oauth-authorization-server/projects/research/mcp"),
        ("GET", "/.well-known/oauth-authorization-server/mcp"),
        ("GET", "/.well-known/openid-configuration"),
        ("GET", "/.well-known/openid-configuration/mcp"),
    ],
)
async def test_the_person_reads_which_command_to_run(verb: str, path: str) -> None:
    async with serving() as served:
        answer = await served.send(verb=verb, path=path, token=None)
        assert answer.status == 404
        assert answer.json["error"] == "invalid_request"
        assert "pointsman token create" in answer.json["error_description"]


_SENTENCE = (
    b'{"error":"invalid_request","error_description":"This gateway does not use OAuth. Create a token with '
    b"`pointsman token create NAME --project '*' --server '*'` and let your client send it in the header "
    b'`Authorization: Bearer TOKEN`."}'
)


@pytest.mark.parametrize("listen", [Listen(), Listen(public_url="https://mcp.example.com")], ids=["plain", "public"])
async def test_without_anybody_to_sign_in_at_the_answers_have_the_same_bytes_as_ever(listen: Listen) -> None:
    async with serving(listen=listen) as served:
        for verb, path in (("GET", "/.well-known/oauth-protected-resource/mcp"), ("POST", "/register")):
            answer = await served.send(verb=verb, path=path, token=None)
            assert (answer.status, answer.body) == (404, _SENTENCE)
            assert set(answer.headers) == {"content-length", "content-type"} | ({*answer.headers} & {"date", "server"})
        for path in ("/oauth/authorize", "/oauth/sign-in", "/oauth/token", "/oauth/register", "/oauth/revoke"):
            answer = await served.send(verb="GET", path=path, token=None)
            assert (answer.status, answer.body) == (404, b"Not Found")
        for token in (None, "wrong", "a.b.c"):
            answer = await served.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, token=token)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_the_public_address_is_accepted_as_host_and_origin() -> None:
    async with serving(listen=Listen(public_url="https://mcp.example.com")) as served:
        for host, origin, status in (
            ("mcp.example.com", None, 200),
            ("mcp.example.com:443", None, 200),
            ("MCP.example.com", "https://mcp.example.com", 200),
            ("mcp.example.com:8443", None, 421),
            ("mcp.example.com", "http://mcp.example.com", 403),
            ("evil.example", None, 421),
        ):
            headers = [("Host", host), *([("Origin", origin)] if origin else [])]
            answer = await served.send(initialize(), headers=headers, without=["Host"])
            assert answer.status == status, (host, origin, answer)
