"""The paths that clients probe after a 401."""

from __future__ import annotations

import pytest

from tests.router.front.served_front import serving


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", "/register"),
        ("GET", "/.well-known/oauth-protected-resource"),
        ("GET", "/.well-known/oauth-protected-resource/mcp"),
        ("GET", "/.well-known/oauth-authorization-server"),
        ("GET", "/.well-known/oauth-authorization-server/projects/research/mcp"),
        ("GET", "/.well-known/openid-configuration"),
    ],
)
async def test_the_person_reads_which_command_to_run(verb: str, path: str) -> None:
    async with serving() as served:
        answer = await served.send(verb=verb, path=path, token=None)
        assert answer.status == 404
        assert answer.json["error"] == "invalid_request"
        assert "pointsman token create" in answer.json["error_description"]
