"""A client signs in at the gateway's own authorization server: what works, and every way to cheat."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urlencode

import pytest

from tests.router.auth.server.office import CALLBACK, Office, Visitor, choices, stranger


async def test_a_client_gets_tokens_that_the_gateway_knows(visitor: Visitor) -> None:
    tokens = await visitor.tokens()
    assert tokens["token_type"] == "Bearer"
    assert tokens["expires_in"] == 3600
    assert tokens["scope"] == "mcp"
    assert (await visitor.initialize(tokens["access_token"])).status_code == 200


async def test_the_metadata_name_exactly_this_issuer(desk: Office) -> None:
    answers = [
        await stranger("GET", f"{desk.base}/.well-known/{name}")
        for name in ("oauth-authorization-server", "openid-configuration")
    ]
    found = answers[0].json()
    assert answers[1].json() == found
    assert found["issuer"] == desk.base
    assert found["authorization_endpoint"] == f"{desk.base}/oauth/authorize"
    assert found["code_challenge_methods_supported"] == ["S256"]
    assert found["token_endpoint_auth_methods_supported"] == ["none"]
    assert found["client_id_metadata_document_supported"] is True
    assert found["authorization_response_iss_parameter_supported"] is True
    assert answers[0].headers["cache-control"] == "no-store"
    assert (await stranger("GET", f"{desk.base}/.well-known/oauth-authorization-server/mcp")).status_code == 404


async def test_the_methods_of_a_path_are_named_in_one_order(desk: Office) -> None:
    answer = await stranger("PUT", f"{desk.base}/.well-known/oauth-authorization-server/mcp")
    assert (answer.status_code, answer.text) == (405, "Method Not Allowed")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"


async def test_nothing_is_chosen_for_a_client_that_nobody_vouches_for(visitor: Visitor) -> None:
    shown = choices((await visitor.ask()).text)
    assert shown.keys().isdisjoint({"reach", "servers", "scopes"})


async def test_a_grant_has_what_the_owner_chose(desk: Office, visitor: Visitor) -> None:
    tokens = await visitor.tokens(project="attic", servers=["shop", "cellar"], scopes="read", expires="12h")
    assert tokens["scope"] == "mcp:read"
    grant = desk.command("grants")["grants"][0]
    assert (grant["client"], grant["answeredAt"]) == ("Test client", "127.0.0.1:43117")
    assert (grant["projects"], grant["servers"], grant["scopes"]) == (["attic"], ["shop", "cellar"], ["read"])
    assert grant["expires"] > grant["created"]
    assert (await visitor.initialize(tokens["access_token"], "/projects/attic/mcp")).status_code == 200
    assert (await visitor.initialize(tokens["access_token"], "/projects/roof/mcp")).status_code == 403


async def test_a_resource_of_a_project_fixes_the_project(desk: Office, visitor: Visitor) -> None:
    resource = f"{desk.base}/projects/roof/mcp"
    asked = await visitor.ask(resource=resource)
    assert "the project <strong>roof</strong>" in asked.text
    code = visitor.answer(await visitor.consent(asked, project="attic"))["code"]
    tokens = await visitor.redeem(code, resource=resource)
    assert tokens.status_code == 200
    assert desk.command("grants")["grants"][0]["projects"] == ["roof"]


async def test_a_no_of_the_owner_reaches_the_client(desk: Office, visitor: Visitor) -> None:
    answer = visitor.answer(await visitor.consent(await visitor.ask(), decision="deny"))
    assert answer["error"] == "access_denied"
    assert ("oauth/authorize", "denied", "access_denied") in await desk.rows()


async def test_the_owner_cannot_give_more_than_was_asked_for(visitor: Visitor) -> None:
    asked = await visitor.ask(scope="mcp:read")
    assert "Only tools that read" in asked.text
    assert "All tools<" not in asked.text
    refused = await visitor.consent(asked, scopes="read write destructive")
    assert refused.status_code == 400
    assert "Choose what its tools may do" in refused.text


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"servers": []}, "Choose at least one server, or all."),
        ({"servers": ["nowhere"]}, "Choose at least one server, or all."),
        ({"servers": ["*"]}, "Choose at least one server, or all."),
        ({"servers": ["shop"], "reach": "all"}, "All servers are chosen, and single ones are ticked, too."),
        ({"servers": ["*", "shop"]}, "Choose at least one server, or all."),
        ({"servers": ["shop"], "reach": []}, "Choose all servers, or only some and name them."),
        ({"reach": []}, "Choose all servers, or only some and name them."),
        ({"scopes": []}, "Choose what its tools may do."),
        ({"project": "nowhere"}, "Choose the project that the client acts for."),
        ({"expires": "yesterday"}, "“Ends after” must be a date like 2027-01-31"),
        ({"expires": "2020-01-31"}, "“Ends after”: 2020-01-31 is in the past."),
    ],
)
async def test_a_choice_that_makes_no_sense_is_asked_again(visitor: Visitor, chosen: dict[str, str], said: str) -> None:
    refused = await visitor.consent(await visitor.ask(), **chosen)
    assert refused.status_code == 400
    assert said in refused.text.partition('role="alert"')[2]


# ---------------------------------------------------------------------- requests that lie


@pytest.mark.parametrize(
    "redirect_uri",
    [
        None,
        "",
        CALLBACK + "/more",
        CALLBACK + "?more",
        CALLBACK + "#more",
        CALLBACK.upper(),
        CALLBACK.replace("callback", "c%61llback"),
        CALLBACK.replace("127.0.0.1", "127.0.0.1@evil.example"),
        CALLBACK.replace("127.0.0.1", "localhost"),
        "https://evil.example/callback",
        "//evil.example/callback",
        "javascript:alert(1)",
    ],
)
async def test_nothing_is_sent_to_a_redirect_uri_that_is_not_the_clients(
    visitor: Visitor, redirect_uri: str | None
) -> None:
    answer = await visitor.ask(redirect_uri=redirect_uri, response_type="token")  # an error that would be sent there
    assert answer.status_code == 400
    assert "location" not in answer.headers
    assert "evil.example" not in answer.text


async def test_another_port_of_a_loopback_redirect_is_the_clients(visitor: Visitor) -> None:
    """Programs listen at a port that is free (RFC 8252)."""
    asked = await visitor.ask(redirect_uri=CALLBACK.replace("43117", "5555"))
    assert asked.status_code == 200
    assert 'id="local"' in asked.text


@pytest.mark.parametrize("redirect_uri", ["cursor://mcp/oauth", "com.example.app:/cb", "https://127.0.0.1/cb"])
async def test_the_owner_is_warned_of_every_local_program(desk: Office, redirect_uri: str) -> None:
    client = await desk.register(redirect_uris=[redirect_uri])
    assert 'id="local"' in (await client.ask()).text


@pytest.mark.parametrize("redirect_uri", ["https://evil.example/cb", "cursor://mcp/oauth"])
async def test_no_link_to_the_gateway_leads_the_owner_elsewhere(desk: Office, redirect_uri: str) -> None:
    client = await desk.register(redirect_uris=[redirect_uri])
    answer = await client.ask(scope="admin")
    assert (answer.status_code, answer.headers.get("location")) == (400, None)
    assert f'href="{redirect_uri}?error=invalid_scope&amp;' in answer.text
    assert "Go back to" in answer.text


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"resource": "https://evil.example/mcp"}, "invalid_target"),
        ({"scope": "admin"}, "invalid_scope"),
    ],
)
async def test_other_mistakes_are_told_to_the_client(
    visitor: Visitor, changed: dict[str, str | None], error: str
) -> None:
    assert visitor.answer(await visitor.ask(**changed))["error"] == error


@pytest.mark.parametrize(
    "client_id",
    [
        None,
        "unknown",
        "registered.v1.AAAA",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/client",
        "http://app.example/client",
    ],
)
async def test_a_client_that_nobody_knows_gets_no_answer(visitor: Visitor, client_id: str | None) -> None:
    answer = await visitor.ask(client_id=client_id)
    assert answer.status_code == 400
    assert "location" not in answer.headers


async def test_large_requests_are_refused(desk: Office, visitor: Visitor) -> None:
    assert (await visitor.ask(state="s" * 9000)).status_code == 400
    many = {f"p{number}": "1" for number in range(100)}
    assert (await visitor.ask(**many)).status_code == 400
    doubled = f"{desk.base}/oauth/authorize?{urlencode(visitor.query())}&state=again"
    assert (await desk.http.get(doubled)).status_code == 400
    for path in ("token", "revoke", "register"):
        answer = await stranger(
            "POST",
            f"{desk.base}/oauth/{path}",
            content=b"a=" + b"1" * 20_000,
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        assert answer.status_code == 413, path
    deep = await stranger("POST", f"{desk.base}/oauth/register", content=b"[" * 10_000)
    assert (deep.status_code, deep.json()["error"]) == (400, "invalid_client_metadata")


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"data": {"grant_type": "password", "username": "a"}}, "unsupported_grant_type"),
        ({"data": {"grant_type": "client_credentials"}}, "unsupported_grant_type"),
        ({"data": {}}, "invalid_request"),
        ({"data": {"client_id": "x"}}, "invalid_request"),
        ({"data": {"grant_type": "", "client_id": "x"}}, "invalid_request"),
        ({"json": {"grant_type": "refresh_token"}}, "invalid_request"),
        ({"content": b"grant_type=refresh_token&grant_type=x"}, "invalid_request"),
        ({"content": b"\xff\xfe"}, "invalid_request"),
        ({"data": {"grant_type": "refresh_token"}, "headers": {"Authorization": "Basic YTpi"}}, "invalid_client"),
    ],
)
async def test_odd_token_requests(desk: Office, more: dict[str, object], error: str) -> None:
    if "content" in more:
        more = {**more, "headers": {"Content-Type": "application/x-www-form-urlencoded"}}
    answer = await stranger("POST", f"{desk.base}/oauth/token", **more)
    assert answer.json()["error"] == error
    assert answer.status_code == (401 if error == "invalid_client" else 400)
    assert answer.headers["cache-control"] == "no-store"


async def test_other_hosts_and_origins_are_refused(desk: Office) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        for path in ("/oauth/authorize", "/oauth/sign-in", "/.well-known/oauth-authorization-server"):
            answer = await stranger("GET", desk.base + path, headers=headers)
            assert answer.status_code in (403, 421), path


# ---------------------------------------------------------------------- the owner


async def test_a_stranger_only_learns_how_the_owner_signs_in(desk: Office, visitor: Visitor) -> None:
    for changed in ({}, {"client_id": "https://169.254.169.254/x"}, {"redirect_uri": "https://evil.example"}):
        url = f"{desk.base}/oauth/authorize?{urlencode(visitor.query(**changed))}"
        answer = await stranger("GET", url)
        assert answer.status_code == 200
        assert "pointsman grant sign-in" in answer.text
        assert "Test client" not in answer.text
        assert "attic" not in answer.text
    bounced = await stranger("GET", url, headers={"Sec-Fetch-Site": "cross-site"})
    assert 'http-equiv="refresh"' in bounced.text


async def test_the_link_leads_back_to_the_request(desk: Office, visitor: Visitor) -> None:
    url = f"{desk.base}/oauth/authorize?{urlencode(visitor.query())}"
    mine, desk.http = desk.http, type(desk.http)(timeout=30)
    try:
        await desk.http.get(url)
        entered = await desk.http.get(desk.command("grant_link")["url"])
        assert entered.status_code == 303
        assert desk.base + entered.headers["location"] == url
        assert "samesite=lax" in entered.headers["set-cookie"].lower()
        assert "httponly" in entered.headers["set-cookie"].lower()
        assert (await visitor.ask()).text.count("asks for access") == 1
    finally:
        await desk.http.aclose()
        desk.http = mine


async def test_the_owner_chooses_among_the_requests_that_wait(desk: Office, visitor: Visitor) -> None:
    mine, desk.http = desk.http, type(desk.http)(timeout=30)
    try:
        await visitor.ask()
        await visitor.ask()  # the same again
        await visitor.ask(state="another", redirect_uri=CALLBACK.replace("43117", "5555"))
        long = await visitor.ask(state="s" * 2500)
        assert "does not lead to it" in long.text
        entered = await desk.http.get(desk.command("grant_link")["url"])
        assert entered.status_code == 200
        links = re.findall(r'href="(/oauth/authorize\?[^"]+)">Test client</a>', entered.text)
        assert len(links) == 2
        assert "127.0.0.1:5555" in entered.text
        for link in links:
            assert "asks for access" in (await desk.http.get(desk.base + unescape(link))).text
    finally:
        await desk.http.aclose()
        desk.http = mine


@pytest.mark.parametrize("garbage", ["hello", "https://example.com/", "x" * 1000, "pointsman grant sign-in", "%00<b>"])
async def test_what_is_no_link_is_called_so(desk: Office, visitor: Visitor, garbage: str) -> None:
    form = {"code": garbage, "request": urlencode(visitor.query())}
    answer = await stranger("POST", f"{desk.base}/oauth/sign-in", data=form, headers={"Origin": desk.base})
    assert answer.status_code == 403
    assert "This is not a link of <code>pointsman grant sign-in</code>" in answer.text
    assert "Back to the request" in answer.text


async def test_a_link_can_be_pasted_and_works_once(desk: Office, visitor: Visitor) -> None:
    link, query = desk.command("grant_link")["url"], urlencode(visitor.query())
    form = {"code": f" {link} ", "request": query}
    sign_in = f"{desk.base}/oauth/sign-in"
    foreign = await stranger("POST", sign_in, data=form)
    assert foreign.status_code == 403  # a form without our origin does not use the link up
    entered = await stranger("POST", sign_in, data=form, headers={"Origin": desk.base})
    assert entered.status_code == 303
    assert entered.headers["location"] == f"/oauth/authorize?{query}"
    again = await stranger("POST", sign_in, data=form, headers={"Origin": desk.base})
    assert again.status_code == 403


async def test_the_consents_cookie_opens_no_page(desk: Office) -> None:
    cookies = {cookie.name: cookie.value for cookie in desk.http.cookies.jar if "consent" in cookie.name}
    assert cookies
    [(name, value)] = cookies.items()
    for cookie in (name, name.replace("consent", "page")):
        answer = await stranger("GET", f"{desk.base}/page/tokens", headers={"Cookie": f"{cookie}={value}"})
        assert answer.status_code == 401


async def test_the_pages_cookie_can_consent(desk: Office, visitor: Visitor) -> None:
    mine, desk.http = desk.http, type(desk.http)(timeout=30)
    try:
        await desk.http.get(desk.command("page_link")["url"])
        assert "code" in visitor.answer(await visitor.consent(await visitor.ask()))
    finally:
        await desk.http.aclose()
        desk.http = mine


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_consent_by_a_foreign_page_gives_nothing(visitor: Visitor, headers: dict[str, str]) -> None:
    answer = await visitor.consent(await visitor.ask(), headers=headers)
    assert answer.status_code == 403
    assert "location" not in answer.headers


async def test_a_consent_needs_the_forms_own_token(desk: Office, visitor: Visitor) -> None:
    wrong: list[dict[str, object]] = [{"csrf": "guess"}, {"csrf": ""}, {"csrf": []}]
    for changed in wrong:
        answer = await visitor.consent(await visitor.ask(), **changed)
        assert (answer.status_code, answer.headers.get("location")) == (403, None)
    shown = await visitor.ask()
    other = await desk.register(client_name="Another one")
    changed_since = await visitor.consent(shown, request=urlencode(other.query()))
    assert changed_since.status_code == 400
    assert "Look again" in changed_since.text


async def test_no_page_can_frame_the_consent(visitor: Visitor) -> None:
    shown = await visitor.ask()
    policy = shown.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self' http://127.0.0.1:43117;" in policy
    assert shown.headers["x-frame-options"] == "DENY"
    assert shown.headers["cache-control"] == "no-store"


async def test_a_hostile_name_is_only_text(desk: Office) -> None:
    hostile = await desk.register(client_name="<img src=x onerror=alert(1)>{{7*7}}")
    shown = await hostile.ask()
    assert "&lt;img src=x" in shown.text
    assert "<img" not in shown.text
    assert "{{7*7}}" in shown.text


async def test_every_step_is_in_the_audit(desk: Office, visitor: Visitor) -> None:
    tokens = await visitor.tokens()
    what = f"grants.{desk.command('grants')['grants'][0]['id']}"
    await visitor.refresh(tokens["refresh_token"])
    await stranger("POST", f"{desk.base}/oauth/revoke", data={"token": tokens["access_token"]})
    methods = [method for method, outcome, code in await desk.rows() if (outcome, code) == ("ok", what)]
    assert sorted(methods) == ["oauth/authorize", "oauth/refresh", "oauth/revoke", "oauth/token"]
