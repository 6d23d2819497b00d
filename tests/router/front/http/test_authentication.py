"""Who calls: token and project, from wherever a request states them."""

from __future__ import annotations

from typing import Any

import pytest

from pointsman.config.model import GatewayConfig
from pointsman.core.errors import UnauthorizedError
from pointsman.core.model import Caller
from tests.router.front.raw_http import Answer, Connection, Json, call, initialize, modern_call, request
from tests.router.front.served_front import Served, serving
from tests.router.front.small_gateway import SmallGateway


async def caller_of(served: Served, **how: Any) -> Caller:
    session = await served.open_session(**how)
    how["headers"] = [*how.get("headers", ()), *session]
    answer = await served.send(call("echo"), **how)
    assert answer.status == 200, answer
    return served.gateway.requests[-1].caller


@pytest.mark.parametrize("token", [None, "", "wrong", "secret-a ", "secret-a,secret-b", "sécret"])
async def test_a_missing_or_unknown_token_is_a_401_that_says_what_to_do(token: str | None) -> None:
    async with serving() as served:
        if token is not None and token.strip() == "secret-a":
            token = "secret-a x"
        answer = await served.send(initialize(), token=token)
        assert (answer.status, answer.reason) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "pointsman token create" in answer.json["error"]["message"]
        assert answer.json["id"] == 0
        assert b"wrong" not in answer.body
        assert served.front.sessions_open == 0


async def test_another_scheme_is_no_token_even_with_one_in_the_body() -> None:
    async with serving() as served:
        basic = [("Authorization", "Basic c2VjcmV0LWE=")]
        assert (await served.send(initialize(), token=None, headers=basic)).status == 401
        both = initialize(meta={"token": "secret-a"})
        assert (await served.send(both, token=None, headers=basic)).status == 401


async def test_the_scheme_may_be_written_in_any_case() -> None:
    async with serving() as served:
        lower = [("Authorization", "bearer  secret-a")]
        assert (await served.send(initialize(), token=None, headers=lower)).status == 200


async def test_without_the_header_every_post_carries_the_token_in_meta() -> None:
    async with serving() as served:
        meta = {"token": "secret-a", "projectId": "research", "vendor/x": 1}
        opened = await served.send(initialize(meta=meta), token=None)
        session = [("Mcp-Session-Id", opened.headers["mcp-session-id"])]
        answer = await served.send(call("echo", {"text": "hi"}, meta=dict(meta)), token=None, headers=session)
        assert answer.text == "hi"
        seen = served.gateway.requests[-1]
        assert seen.caller == Caller("a", "research")
        assert seen.params["_meta"] == {"vendor/x": 1}
        assert (await served.send(call("echo"), token=None, headers=session)).status == 401
        noticed: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await served.send(noticed, token=None, headers=session)).status == 401
        assert (await served.send({**noticed, "params": {"_meta": meta}}, token=None, headers=session)).status == 202
        assert (await served.send(verb="GET", token=None, headers=session)).status == 401
        assert (await served.send(verb="DELETE", token=None, headers=session)).status == 401
        assert (await served.send(verb="DELETE", token="secret-a", headers=session)).status == 200


async def test_a_modern_request_carries_its_token_in_meta_too() -> None:
    async with serving() as served:
        body, headers = modern_call("echo", {"text": "hi"}, token="secret-b", projectId="research")
        assert (await served.send(body, token=None, headers=headers)).text == "hi"
        seen = served.gateway.requests[-1]
        assert seen.caller == Caller("b", "research")
        assert not {"token", "projectId"} & seen.params["_meta"].keys()


async def test_two_tokens_that_differ_are_denied_and_two_that_agree_are_not() -> None:
    async with serving() as served:
        answer = await served.send(initialize(meta={"token": "secret-b"}))
        assert (answer.status, answer.reason) == (403, "denied")
        assert b"secret" not in answer.body
        assert (await served.send(initialize(meta={"token": "secret-a"}))).status == 200


NO_STRINGS: tuple[object, ...] = (1, True, [], {}, ["research"])


@pytest.mark.parametrize(
    ("key", "value"), [("token", None), *((key, value) for key in ("token", "projectId") for value in NO_STRINGS)]
)
async def test_a_claim_that_is_no_string_is_a_400(key: str, value: object) -> None:
    async with serving() as served:
        answer = await served.send(initialize(meta={key: value}))
        assert (answer.status, answer.reason) == (400, "bad_request")
        assert f"_meta.{key}" in answer.json["error"]["message"]


async def test_the_project_comes_from_meta_header_or_path() -> None:
    async with serving() as served:
        research, none = Caller("a", "research"), Caller("a", None)
        named = [("X-Pointsman-Project", "research")]
        assert await caller_of(served) == none
        assert await caller_of(served, headers=named) == research
        assert await caller_of(served, path="/projects/research/mcp") == research
        assert await caller_of(served, path="/projects/research/mcp", headers=named) == research
        session = await served.open_session()
        await served.send(call("echo", meta={"projectId": "research"}), headers=session)
        assert served.gateway.requests[-1].caller == research


@pytest.mark.parametrize("none", [None, "", "UNASSIGNED_PROJECT_ID", "__unassigned__"])
async def test_there_are_four_ways_to_name_no_project(none: str | None) -> None:
    async with serving() as served:
        body, headers = modern_call("echo", projectId=none)
        assert (await served.send(body, headers=headers)).status == 200
        assert served.gateway.requests[-1].caller == Caller("a", None)
        session = await served.open_session()
        answer = await served.send(call("echo", meta={"projectId": none}), headers=session)
        assert answer.status == 200
        assert served.gateway.requests[-1].caller == Caller("a", None)


@pytest.mark.parametrize(
    ("path", "header", "meta"),
    [
        ("/projects/research/mcp", "other", None),
        ("/projects/research/mcp", None, "other"),
        ("/mcp", "research", "other"),
        ("/projects/research/mcp", "", None),
        ("/projects/research/mcp", None, "__unassigned__"),
    ],
)
async def test_two_projects_that_differ_are_denied(path: str, header: str | None, meta: str | None) -> None:
    async with serving() as served:
        headers = [("X-Pointsman-Project", header)] if header is not None else []
        body = initialize(meta={"projectId": meta} if meta is not None else None)
        answer = await served.send(body, path=path, headers=headers)
        assert (answer.status, answer.reason) == (403, "denied")


async def test_a_null_project_names_none_on_every_path() -> None:
    async with serving() as served:
        assert (await served.send(initialize(meta={"projectId": None}))).status == 200
        for how in ({"path": "/projects/research/mcp"}, {"headers": [("X-Pointsman-Project", "research")]}):
            answer = await served.send(initialize(meta={"projectId": None}), **how)
            assert (answer.status, answer.reason) == (403, "denied")


async def test_a_project_that_the_token_does_not_list_is_denied() -> None:
    async with serving() as served:
        for how in ({"path": "/projects/secret/mcp"}, {"headers": [("X-Pointsman-Project", "secret")]}):
            answer = await served.send(initialize(), **how)
            assert (answer.status, answer.reason) == (403, "denied")
        assert (await served.send(initialize(meta={"projectId": "secret"}))).status == 403


async def test_a_token_without_unassigned_names_its_project_where_it_likes() -> None:
    async with serving() as served:
        assert (await served.send(initialize(), token="secret-r")).status == 403
        opened = await served.send(initialize(meta={"projectId": "research"}), token="secret-r")
        assert opened.status == 200
        session = [("Mcp-Session-Id", opened.headers["mcp-session-id"])]
        assert (await served.send(call("echo"), token="secret-r", headers=session)).status == 403
        assert (await served.send(verb="DELETE", token="secret-r", headers=session)).status == 200


async def test_a_refused_call_is_reported_with_what_was_tried() -> None:
    async with serving() as served:
        body, headers = modern_call("echo", {"text": "x"})
        await served.send(body, headers=headers, token="wrong")
        await served.send(call("echo", meta={"token": "wrong"}), token=None)
        await served.send(initialize(), headers=[("X-Pointsman-Project", "secret")])
        await served.send(initialize(meta={"token": "secret-b"}))
        modern, meta, project, two = served.gateway.refusals
        assert (modern.code, modern.token, modern.method, modern.client) == (
            "unauthorized",
            "wrong",
            "tools/call",
            "raw",
        )
        assert modern.params["name"] == "echo"
        assert (meta.code, meta.token, meta.method) == ("unauthorized", "wrong", "tools/call")
        assert "token" not in meta.params["_meta"]
        assert (project.code, project.token, project.method) == ("denied", "secret-a", "initialize")
        assert (two.code, two.token, two.client) == ("denied", "secret-a", "raw")
        assert served.gateway.requests == []


async def test_a_refused_body_that_is_large_or_no_json_is_reported_without_its_contents() -> None:
    async with serving() as served:
        await served.send(call("echo", {"text": "x" * 100_000}), token="wrong")
        await served.send(b"{nope", token="wrong")
        assert [(r.method, r.params) for r in served.gateway.refusals] == [(None, {}), (None, {})]


async def test_without_a_token_not_even_a_bad_body_is_explained() -> None:
    async with serving() as served:
        assert (await served.send(b"{nope", token=None)).status == 401


async def test_a_revoked_token_is_refused_in_its_open_session() -> None:
    async with serving() as served:
        session = await served.open_session()
        served.gateway.revoked.add("secret-a")
        answer = await served.send(call("echo"), headers=session)
        assert (answer.status, answer.reason) == (401, "unauthorized")


async def test_tokens_in_other_places_do_not_count() -> None:
    async with serving() as served:
        for how in (
            {"path": "/mcp?token=secret-a"},
            {"path": "/mcp?access_token=secret-a"},
            {"headers": [("Cookie", "token=secret-a")]},
            {"headers": [("X-Api-Key", "secret-a")]},
        ):
            assert (await served.send(initialize(), token=None, **how)).status == 401
        nested = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"token": "secret-a"}}
        assert (await served.send(nested, token=None)).status == 401


async def echo(served: Served, connection: Connection, *headers: tuple[str, str], token: str = "secret-a") -> Answer:
    """A call on a connection that stays open."""
    body, mirrored = modern_call("echo")
    connection.send(request(served.port, body, token=token, headers=[*mirrored, *headers]))
    return await connection.answer()


async def test_each_request_of_a_connection_has_the_caller_that_it_claims() -> None:
    async with serving() as served:
        connection = await served.connect()
        project = ("X-Pointsman-Project", "research")
        for token, headers in (("secret-a", ()), ("secret-a", ()), ("secret-a", (project,)), ("secret-b", ())):
            assert (await echo(served, connection, *headers, token=token)).status == 200
        callers = [one.caller for one in served.gateway.requests]
        assert callers == [Caller("a", None), Caller("a", None), Caller("a", "research"), Caller("b", None)]
        assert (await echo(served, connection, token="secret")).status == 401
        assert (await echo(served, connection, token="secret-a2")).status == 401


async def test_a_revoked_token_is_refused_on_its_open_connection() -> None:
    async with serving() as served:
        connection = await served.connect()
        assert (await echo(served, connection)).status == 200
        served.gateway.revoked.add("secret-a")
        assert (await echo(served, connection)).status == 401


class RotatingGateway(SmallGateway):
    """Its token `a` gets another secret, and stays valid."""

    rotated = False

    def identify(self, token: str | None, project: str | None) -> Caller:
        if self.rotated and token == "secret-a":
            raise UnauthorizedError("Unknown token.")
        return super().identify(token, project)


async def test_an_old_secret_is_refused_on_its_open_connection_after_a_reload() -> None:
    gateway = RotatingGateway()
    async with serving(gateway) as served:
        connection = await served.connect()
        assert (await echo(served, connection)).status == 200
        gateway.rotated = True
        served.current.replace(GatewayConfig())
        assert (await echo(served, connection)).status == 401
