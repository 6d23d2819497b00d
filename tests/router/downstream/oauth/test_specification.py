"""What the authorization chapters of MCP 2025-11-25 and 2026-07-28 demand of a client: each MUST is a test.

The names of tests say the demand. Comments name the section where it is.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from mcp.client.auth import utils as sdk
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url

from pointsman.config.model import GatewayConfig
from pointsman.router.auth.fetch import Reach
from pointsman.router.downstream.connection import SignInNeededError
from pointsman.router.downstream.oauth.client_document import client_document
from pointsman.router.downstream.oauth.discovery import SignInError
from pointsman.router.downstream.oauth.documents import (
    AuthorizationServer,
    Challenge,
    DocumentError,
    ProtectedResource,
    canonical_resource,
    covers,
    read_challenge,
    read_server,
    resource_metadata_urls,
    select_scope,
    server_metadata_urls,
    union,
)
from tests.router.downstream.http_parts import call_of
from tests.router.downstream.oauth.parts import CALLBACK, NAME, Gateway
from tests.servers.oauth_mcp import PKCE, basic, serving_oauth, signed_in_at

WELL_KNOWN = "/.well-known/"
PATHS = {
    "rfc8414": f"{WELL_KNOWN}oauth-authorization-server",
    "openid": f"{WELL_KNOWN}openid-configuration",
}


def asked_in(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


# ---------------------------------------------------------------------- Authorization Server Discovery


async def test_must_use_protected_resource_metadata_to_find_the_authorization_server(tmp_path: Path) -> None:
    async with serving_oauth(issuer_path="/tenant") as server:
        await Gateway(tmp_path, server).sign_in()
    paths = [one["path"] for one in server.asked["metadata"]]
    assert paths[0] == f"{WELL_KNOWN}oauth-protected-resource/mcp"
    assert paths[1] == f"{WELL_KNOWN}oauth-authorization-server/tenant"


async def test_must_use_the_url_of_the_challenge_where_there_is_one(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.resource_places = ("/elsewhere/metadata",)
        await Gateway(tmp_path, server).sign_in()
    assert server.asked["metadata"][0]["path"] == "/elsewhere/metadata"


@pytest.mark.parametrize("place", ["oauth-protected-resource/mcp", "oauth-protected-resource"])
async def test_must_fall_back_to_the_well_known_places_in_their_order(tmp_path: Path, place: str) -> None:
    async with serving_oauth() as server:
        server.resource_metadata, server.resource_places = None, (WELL_KNOWN + place,)
        await Gateway(tmp_path, server).sign_in()
    order = [f"{WELL_KNOWN}oauth-protected-resource/mcp", f"{WELL_KNOWN}oauth-protected-resource"]
    tried = [one["path"] for one in server.asked["metadata"] if "protected" in one["path"]]
    assert tried == order[: order.index(WELL_KNOWN + place) + 1]


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (None, Challenge()),
        ('Bearer resource_metadata="https://a/m", scope="x y"', Challenge("https://a/m", "x y", None)),
        ("bearer scope=x,resource_metadata=https://a/m", Challenge("https://a/m", "x", None)),
        ('Basic realm="scope=\\"no\\"", Bearer error="e", scope="w"', Challenge(None, "w", "e")),
        ('Basic realm="scope", DPoP scope="no", Bearer scope="w"', Challenge(None, "w", None)),
        ('Bearer scope="w", DPoP error="use_dpop_nonce", algs="ES256"', Challenge(None, "w", None)),
        ('Bearer error="e", Bearer resource_metadata="https://a/m", error="f"', Challenge("https://a/m", None, "e")),
        ('Negotiate, Bearer scope="w"', Challenge(None, "w", None)),
        ('Negotiate YWJj==, Bearer scope="w"', Challenge(None, "w", None)),
        ('Bearer realm="r", error_description="say \\"scope\\"", scope="w"', Challenge(None, "w", None)),
    ],
)
def test_must_parse_www_authenticate(header: str | None, said: Challenge) -> None:
    assert read_challenge(header) == said


@pytest.mark.parametrize(
    ("issuer_path", "places"),
    [
        ("", [PATHS["rfc8414"], PATHS["openid"]]),
        ("/t", [f"{PATHS['rfc8414']}/t", f"{PATHS['openid']}/t", f"/t{PATHS['openid']}"]),
    ],
)
async def test_must_try_both_forms_of_metadata_in_their_order(
    tmp_path: Path, issuer_path: str, places: list[str]
) -> None:
    async with serving_oauth(issuer_path=issuer_path) as server:
        server.metadata_places = (places[-1],)
        await Gateway(tmp_path, server).sign_in()
    assert [one["path"] for one in server.asked["metadata"] if "protected" not in one["path"]] == places


@pytest.mark.parametrize("issuer", ["https://a.example", "https://a.example/t1", "https://a.example/t/u/"])
def test_the_places_of_metadata_are_those_of_the_sdk(issuer: str) -> None:
    assert server_metadata_urls(issuer) == sdk.build_oauth_authorization_server_metadata_discovery_urls(issuer, issuer)
    for named in (None, "https://a.example/named"):
        ours = resource_metadata_urls(Challenge(named), issuer)
        theirs = sdk.build_protected_resource_metadata_discovery_urls(named, issuer)
        assert ours == theirs


@pytest.mark.parametrize("named", ["https://as.example/", "https://AS.example", "https://as.example:443", "", None])
def test_must_not_use_metadata_whose_issuer_is_not_identical(named: str | None) -> None:
    document = {"issuer": named, "token_endpoint": "https://as.example/token"}
    with pytest.raises(DocumentError, match="another issuer"):
        read_server(document, "https://as.example", Reach())


# ---------------------------------------------------------------------- Scope Selection Strategy


def metadata(scopes: list[str] | None = None) -> AuthorizationServer:
    document = {"issuer": "https://as", "token_endpoint": "https://as.example/t", "scopes_supported": scopes}
    return read_server(document | {"issuer": "https://as"}, "https://as", Reach())


@pytest.mark.parametrize(
    ("challenged", "supported", "offered", "chosen"),
    [
        ("a", ["b"], None, "a"),  # authoritative, whatever `scopes_supported` says
        ("a", ["a", "b"], None, "a"),
        (None, ["b", "c"], None, "b c"),
        (None, None, None, None),
        (None, None, ["z", "offline_access"], None),
        (None, [], None, None),
        ("a", None, ["a", "offline_access"], "a offline_access"),
        ("a", None, ["a"], "a"),
    ],
)
def test_must_treat_challenged_scopes_as_authoritative(
    challenged: str | None, supported: list[str] | None, offered: list[str] | None, chosen: str | None
) -> None:
    resource = ProtectedResource("https://r", ("https://as",), None if supported is None else tuple(supported))
    assert select_scope(None, challenged, resource, metadata(offered), refreshes=True) == chosen


def test_scopes_are_chosen_as_the_sdk_does() -> None:
    theirs = OAuthMetadata.model_validate(
        {"issuer": "https://as", "authorization_endpoint": "https://as/a", "token_endpoint": "https://as/t"}
        | {"scopes_supported": ["x", "offline_access"]}
    )
    for challenged in ("a b", None):
        for supported in (["c"], None):
            resource = ProtectedResource("https://r", ("https://as",), None if supported is None else tuple(supported))
            document = {"resource": "https://r", "authorization_servers": ["https://as"], "scopes_supported": supported}
            expected = sdk.get_client_metadata_scopes(
                challenged,
                ProtectedResourceMetadata.model_validate(document),
                theirs if challenged or supported else None,
                ["refresh_token"],
            )
            ours = select_scope(None, challenged, resource, metadata(["x", "offline_access"]), refreshes=True)
            assert ours == expected
    assert union("a b", "b c") == sdk.union_scopes("a b", "b c")


# ---------------------------------------------------------------------- Authorization Response Validation


@pytest.mark.parametrize(
    ("advertised", "answered", "accepted"),
    [
        (True, "{issuer}", True),
        (True, None, False),
        (True, "https://other.example", False),
        (False, "{issuer}", True),
        (False, "https://other.example", False),
        (False, None, True),
        (True, "{issuer}/", False),
        (True, "HTTP{rest}", False),
        (False, "{issuer}?", False),
    ],
)
async def test_must_validate_iss_without_normalization_before_the_code_is_sent(
    tmp_path: Path, advertised: bool, answered: str | None, accepted: bool
) -> None:
    async with serving_oauth() as server:
        server.server_metadata = {"authorization_response_iss_parameter_supported": advertised}
        if answered is not None:
            server.answer_iss = answered.format(issuer=server.issuer, rest=server.issuer.removeprefix("http"))
        gateway = Gateway(tmp_path, server)
        if accepted:
            await gateway.sign_in()
        else:
            with pytest.raises(SignInError):
                await gateway.sign_in()
    assert len(server.asked["token"]) == int(accepted)


# ---------------------------------------------------------------------- Resource Parameter


async def test_must_send_resource_in_authorization_and_token_requests_whatever_the_server_supports(
    tmp_path: Path,
) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        url = await gateway.sign_in()
        server.expire_all()
        async with gateway.connected():
            pass
    assert asked_in(url)["resource"] == server.url
    assert [one["grant_type"] for one in server.asked["token"]] == ["authorization_code", "refresh_token"]
    assert {one["resource"] for one in server.asked["token"]} == {server.url}


@pytest.mark.parametrize(
    "url", ["https://H.example/mcp", "HTTPS://h.example", "https://h.example/a/b?x=1#f", "https://h.example:8443/"]
)
def test_must_use_the_canonical_uri_of_the_server(url: str) -> None:
    assert canonical_resource(url) == resource_url_from_server_url(url)


@pytest.mark.parametrize("resource", ["https://h.example", "https://h.example/", "https://h.example/mcp"])
@pytest.mark.parametrize("url", ["https://h.example/mcp", "https://h.example/mcp/", "https://h.example/mcpx"])
def test_a_resource_covers_what_the_sdk_says_that_it_covers(resource: str, url: str) -> None:
    assert covers(resource, url) == check_resource_allowed(url, resource)


# ---------------------------------------------------------------------- Access Token Usage


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_must_send_the_token_in_the_header_of_every_request_and_never_in_a_url(tmp_path: Path, era: Any) -> None:
    async with serving_oauth(era) as server:
        server.has_get_stream = True
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        server.authorization.clear()
        async with gateway.connected() as connection:
            await connection.request(call_of("echo"))
    token = next(iter(server.access))
    assert set(server.authorization) == {f"Bearer {token}"}
    assert server.url.endswith("/mcp")


async def test_must_not_send_a_token_of_another_authorization_server(tmp_path: Path) -> None:
    async with serving_oauth() as server, serving_oauth() as other:
        await Gateway(tmp_path, server).sign_in()
        elsewhere = Gateway(tmp_path, server, issuer=other.issuer)
        server.authorization.clear()
        with pytest.raises(SignInNeededError, match="has changed"):
            async with elsewhere.connected():
                pass
    assert set(server.authorization) == {None}


async def test_must_not_assume_that_refresh_tokens_are_issued(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.gives_refresh_tokens = False
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        async with gateway.connected() as connection:
            await connection.request(call_of("echo"))
            server.expire_all()
            with pytest.raises(SignInNeededError, match="has ended"):
                await connection.request(call_of("echo"))
    assert not server.grants("refresh_token")


async def test_should_ask_for_refresh_tokens_in_the_client_metadata(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        await Gateway(tmp_path, server).sign_in()
    assert server.asked["register"][0]["grant_types"] == ["authorization_code", "refresh_token"]


# ---------------------------------------------------------------------- Client Registration


async def test_must_have_a_client_id_first_of_all_the_one_that_was_registered_before(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.server_metadata = {"client_id_metadata_document_supported": True}
        gateway = Gateway(tmp_path, server, client_id="mine", client_secret="s3cret")
        gateway.document = "https://gateway.example/oauth/client.json"
        url = await gateway.sign_in()
    assert asked_in(url)["client_id"] == "mine"
    assert basic(server.asked["token"][0]["_authorization"]) == ("mine", "s3cret")
    assert not server.registered


async def test_should_use_a_metadata_document_before_a_registration(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        gateway.document = "https://gateway.example/oauth/client.json"
        assert asked_in(await gateway.sign_in())["client_id"] == "client-1"  # the server knows no documents
        server.server_metadata = {"client_id_metadata_document_supported": True}
        assert asked_in(await gateway.sign_in())["client_id"] == gateway.document
    assert server.asked["token"][1]["client_id"] == gateway.document


async def test_a_server_that_registers_nobody_is_answered_with_what_to_do(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.server_metadata = {"registration_endpoint": None}
        with pytest.raises(SignInError, match=r"set `oauth\.client_id`"):
            await Gateway(tmp_path, server).sign_in()


def test_must_serve_a_client_document_over_https_with_a_path_and_its_own_url_as_client_id() -> None:
    config = GatewayConfig.model_validate({"listen": {"public_url": "https://gateway.example"}})
    document = client_document(config)
    assert document is not None
    url = urlsplit(document["client_id"])
    assert (url.scheme, url.path) == ("https", "/oauth/client.json")
    assert {"client_id", "client_name", "redirect_uris"} <= document.keys()
    assert client_document(GatewayConfig()) is None
    local = GatewayConfig.model_validate({"listen": {"public_url": "http://127.0.0.1:3282"}})
    assert client_document(local) is None


async def test_must_name_an_application_type_that_fits_the_redirect_uri(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        await gateway.begin()
        await gateway.sign_ins.begin(NAME, gateway.entry, "https://gateway.example/page/signed-in")
    assert [one["application_type"] for one in server.asked["register"]] == ["native", "web"]


async def test_must_be_prepared_for_a_registration_that_is_refused(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.registration_status = 400
        with pytest.raises(SignInError, match=r"for http://127\.0\.0\.1:1/callback \(invalid_redirect_uri\)"):
            await Gateway(tmp_path, server).sign_in()


async def test_must_register_anew_with_another_authorization_server_and_not_show_it_old_credentials(
    tmp_path: Path,
) -> None:
    async with serving_oauth() as server, serving_oauth() as other:
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        server.named_issuer = other.issuer
        await gateway.sign_in()
    assert len(other.registered) == 1
    assert not [one for one in other.asked["token"] if one.get("refresh_token")]


async def test_should_report_that_the_server_of_a_registered_client_has_changed(tmp_path: Path) -> None:
    async with serving_oauth() as server, serving_oauth() as other:
        gateway = Gateway(tmp_path, server, client_id="mine")
        await gateway.sign_in()
        server.named_issuer = other.issuer
        with pytest.raises(SignInError, match=r"set `oauth\.issuer`"):
            await gateway.sign_in()
    assert not other.asked["authorize"]


async def test_a_client_that_was_registered_for_a_redirect_uri_is_used_again(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        for _ in range(3):
            await Gateway(tmp_path, server).sign_in()
    assert len(server.registered) == 1


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
async def test_a_client_proves_itself_as_the_server_wants_it(tmp_path: Path, method: str) -> None:
    async with serving_oauth() as server:
        server.server_metadata = {"token_endpoint_auth_methods_supported": [method]}
        await Gateway(tmp_path, server).sign_in()
    (given,) = server.asked["token"]
    if method == "client_secret_basic":
        assert basic(given["_authorization"]) == ("client-1", "secret of client-1")
    else:
        assert (given["client_id"], given["_authorization"]) == ("client-1", None)
        assert given.get("client_secret") == ("secret of client-1" if method == "client_secret_post" else None)


# ---------------------------------------------------------------------- Security Considerations


async def test_must_use_pkce_with_s256(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        asked = asked_in(await Gateway(tmp_path, server).sign_in())
    verifier = server.asked["token"][0]["code_verifier"]
    digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    assert (asked["code_challenge"], asked["code_challenge_method"]) == (digest, "S256")
    assert 43 <= len(verifier) <= 128


@pytest.mark.parametrize("form", ["rfc8414", "openid"])
@pytest.mark.parametrize("methods", [None, [], ["plain"], "S256"])
async def test_must_refuse_a_server_that_does_not_say_that_it_supports_pkce(
    tmp_path: Path, form: str, methods: Any
) -> None:
    async with serving_oauth() as server:
        server.metadata_places, server.server_metadata = (PATHS[form],), {PKCE: methods}
        with pytest.raises(SignInError, match="PKCE"):
            await Gateway(tmp_path, server).sign_in()
    assert not server.asked["register"]


async def test_must_have_redirect_uris_registered_that_are_loopback_or_https(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        url = await Gateway(tmp_path, server).sign_in()
    assert server.asked["register"][0]["redirect_uris"] == [CALLBACK] == [asked_in(url)["redirect_uri"]]


async def test_should_discard_an_answer_with_another_state(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        url, state = await gateway.begin()
        assert asked_in(url)["state"] == state
        answer = await signed_in_at(url)
        with pytest.raises(SignInError, match="unknown"):
            await gateway.finish(answer | {"state": "another"})
    assert not server.asked["token"]
