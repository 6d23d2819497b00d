"""What a client asks for at the authorization endpoint."""

from __future__ import annotations

import pytest

from pointsman.router.auth.server.requests import (
    MAX_QUERY_CHARS,
    Client,
    ClientError,
    OwnResources,
    RequestError,
    answer_url,
    checked_request,
    read_query,
    scope_text,
    scopes_of,
    verified_redirect,
)

CLIENT = Client("c", "Client", ("https://app.example/cb",))
OWN = OwnResources("https://mcp.example", ["attic"])
GOOD = {"response_type": "code", "code_challenge": "a" * 43, "code_challenge_method": "S256"}


def test_a_request_without_scope_and_resource_gets_the_defaults() -> None:
    """The official suite sends none, and older clients send no resource."""
    asked = checked_request(GOOD, CLIENT, "https://app.example/cb", OWN)
    assert asked.scopes == ("read", "write", "destructive")
    assert (asked.resource, asked.project) == ("https://mcp.example/mcp", None)


@pytest.mark.parametrize(
    ("resource", "project"),
    [
        ("https://mcp.example", None),
        ("https://mcp.example/", None),
        ("https://mcp.example/mcp", None),
        ("https://mcp.example/sse", None),
        ("https://mcp.example/projects/attic/mcp", "attic"),
    ],
)
def test_the_resources_of_the_gateway(resource: str, project: str | None) -> None:
    asked = checked_request({**GOOD, "resource": resource}, CLIENT, "https://app.example/cb", OWN)
    assert (asked.resource, asked.project) == (resource, project)


@pytest.mark.parametrize(
    "resource",
    [
        "https://evil.example/mcp",
        "https://mcp.example.evil.example/mcp",
        "https://mcp.example@evil.example/mcp",
        "http://mcp.example/mcp",
        "https://mcp.example/projects/other/mcp",
        "https://mcp.example/mcp/../projects/attic/mcp",
        "https://mcp.example/mcp?x",
        "mcp",
    ],
)
def test_other_resources_are_no_target(resource: str) -> None:
    with pytest.raises(ClientError) as refused:
        checked_request({**GOOD, "resource": resource}, CLIENT, "https://app.example/cb", OWN)
    assert refused.value.code == "invalid_target"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": "code id_token"}, "unsupported_response_type"),
        ({"response_mode": "fragment"}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": ""}, "invalid_request"),
        ({"code_challenge": ""}, "invalid_request"),
        ({"code_challenge": "a" * 42}, "invalid_request"),
        ({"code_challenge": "a" * 44}, "invalid_request"),
        ({"code_challenge": "a" * 42 + "="}, "invalid_request"),
        ({"request": "eyJ"}, "request_not_supported"),
        ({"request_uri": "https://app.example/r"}, "request_not_supported"),
    ],
)
def test_a_request_that_lacks_something_is_refused(changed: dict[str, str], code: str) -> None:
    with pytest.raises(ClientError) as refused:
        checked_request({**GOOD, **changed}, CLIENT, "https://app.example/cb", OWN)
    assert refused.value.code == code


def test_a_redirect_uri_is_required_and_one_of_the_clients() -> None:
    assert verified_redirect({"redirect_uri": "https://app.example/cb"}, CLIENT) == "https://app.example/cb"
    for given in ({}, {"redirect_uri": "https://app.example/cb/"}, {"redirect_uri": "https://evil.example/cb"}):
        with pytest.raises(RequestError):
            verified_redirect(given, CLIENT)


def test_a_query_has_each_parameter_once_and_an_end() -> None:
    assert read_query("a=1&b=&c=%41") == {"a": "1", "c": "A"}
    for query in ("a=1&a=2", "a=%ff", "a=" + "1" * MAX_QUERY_CHARS, "&".join(f"a{n}=1" for n in range(65))):
        with pytest.raises(RequestError):
            read_query(query)


@pytest.mark.parametrize("text", ["admin", "openid admin", "mcp:all", "MCP", "*"])
def test_only_unknown_scopes_are_refused(text: str) -> None:
    with pytest.raises(ClientError) as refused:
        checked_request({**GOOD, "scope": text}, CLIENT, "https://app.example/cb", OWN)
    assert refused.value.code == "invalid_scope"
    assert "mcp:read" in str(refused.value)


def test_scopes_narrow_and_unknown_ones_beside_them_are_dropped() -> None:
    assert scopes_of("mcp:read openid") == ("read",)
    assert scopes_of("mcp:write mcp:read") == ("read", "write")
    assert scopes_of("mcp:read admin") == ("read",)
    assert scopes_of("openid profile email offline_access") == ("read", "write", "destructive")
    assert scopes_of("") == scopes_of("mcp") == ("read", "write", "destructive")
    assert scope_text(("read", "write", "destructive")) == "mcp"
    assert scope_text(("read", "write")) == "mcp:read mcp:write"


def test_the_answer_names_the_issuer_and_keeps_the_state() -> None:
    url = answer_url("https://app.example/cb?x=1", "a b&iss=evil", "https://mcp.example", {"code": "1"})
    assert url == "https://app.example/cb?x=1&code=1&state=a+b%26iss%3Devil&iss=https%3A%2F%2Fmcp.example"
    assert answer_url("https://app.example/cb", None, "https://m", {"code": "1"}).endswith(
        "?code=1&iss=https%3A%2F%2Fm"
    )
