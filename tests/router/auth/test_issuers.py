"""Access tokens of a real issuer over HTTP: what is accepted, and what every attack is told."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import jwt
import pytest

from pointsman.catalog.identities import Identities, Identity
from pointsman.config.sections.auth import Auth
from pointsman.core.errors import ForbiddenError
from pointsman.router.auth.issuers import TRUST_S, Issuers
from pointsman.router.auth.jwks import metadata_urls
from pointsman.router.auth.metadata import Resources
from tests.router.auth.issuer import PUBLIC_URL, Issuer, ec_key, ed_key, issuing, rsa_key, write
from tests.router.auth.verifying import META, OPENID, refusal, source_of

# ---------------------------------------------------------------------- accepted


@pytest.mark.parametrize("key", [rsa_key, ec_key, ed_key], ids=["RS256", "ES256", "EdDSA"])
async def test_a_token_that_its_issuer_signed_for_this_gateway_is_accepted(issuer: Issuer, key: Any) -> None:
    issuer.keys = [ec_key("other"), key()]
    found = await source_of(issuer).identify(issuer.token(key()))
    assert found.id == "@sso/alice#staff"
    assert found.rights.servers == ("*",)


async def test_the_metadata_lead_to_the_keys_in_both_forms_of_discovery(issuer: Issuer) -> None:
    await source_of(issuer).identify(issuer.token())
    assert issuer.asked == [META, "/jwks"]
    issuer.asked.clear()
    issuer.answers[META] = lambda request: write(request, 404, {})
    issuer.answers[OPENID] = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/jwks"}
    await source_of(issuer).identify(issuer.token())
    assert issuer.asked == [META, OPENID, "/jwks"]


def test_an_issuer_with_a_path_has_three_places_for_its_metadata() -> None:
    assert metadata_urls("https://a.example/t/") == [
        "https://a.example/.well-known/oauth-authorization-server/t",
        "https://a.example/.well-known/openid-configuration/t",
        "https://a.example/t/.well-known/openid-configuration",
    ]
    assert metadata_urls("https://a.example") == [f"https://a.example{META}", f"https://a.example{OPENID}"]


async def test_jwks_uri_needs_no_metadata(issuer: Issuer) -> None:
    issuer.answers[META] = issuer.answers[OPENID] = lambda request: write(request, 500, {})
    await source_of(issuer, jwks_uri=f"{issuer.url}/jwks").identify(issuer.token())
    assert issuer.asked == ["/jwks"]


async def test_a_reload_keeps_the_keys_of_an_issuer_that_has_not_changed(issuer: Issuer) -> None:
    before = source_of(issuer)
    await before.identify(issuer.token())
    changed = Auth.model_validate({"issuer": issuer.url, "claims": {"others": {"when": "*"}}})
    after = Issuers([changed], Resources(PUBLIC_URL, [issuer.url]), before)
    assert (await after.identify(issuer.token())).id == "@sso/alice#others"
    assert issuer.count("/jwks") == 1


async def test_a_token_is_verified_again_after_an_hour_at_most(issuer: Issuer) -> None:
    found = await source_of(issuer).identify(issuer.token(exp=int(time.time()) + 10 * 365 * 86_400))
    assert found.expires <= time.time() + TRUST_S


async def test_several_issuers_do_not_vouch_for_one_another(issuer: Issuer) -> None:
    with issuing() as other:
        other.keys = [ec_key("other")]
        rules = {"staff": {"when": "*"}}
        first = Auth.model_validate({"issuer": issuer.url, "name": "first", "claims": rules})
        second = Auth.model_validate({"issuer": other.url, "name": "second", "claims": rules})
        source = Issuers([first, second], Resources(PUBLIC_URL, []))
        assert (await source.identify(issuer.token())).id == "@first/alice#staff"
        assert (await source.identify(other.token())).id == "@second/alice#staff"
        assert "does not list" in await refusal(source, other.token(iss=issuer.url))
        assert "signature" in await refusal(source, other.token(iss=issuer.url, header={"kid": "ec"}))


# ---------------------------------------------------------------------- the audience


@pytest.mark.parametrize(
    "audience",
    [
        f"{PUBLIC_URL}/mcp",
        f"{PUBLIC_URL}/sse",
        PUBLIC_URL,
        f"{PUBLIC_URL}/",
        "HTTP://127.0.0.1:1/mcp",
        ["https://else.example", f"{PUBLIC_URL}/mcp"],
        [f"{PUBLIC_URL}/mcp", f"{PUBLIC_URL}/projects/demo/mcp"],
    ],
)
async def test_tokens_for_an_address_of_the_gateway_are_accepted(issuer: Issuer, audience: object) -> None:
    assert (await source_of(issuer).identify(issuer.token(aud=audience))).id == "@sso/alice#staff"


async def test_a_token_for_the_address_of_a_project_is_for_that_project_only(issuer: Issuer) -> None:
    audiences = [f"{PUBLIC_URL}/projects/demo/mcp", f"{PUBLIC_URL}/projects/demo/sse"]
    found = await source_of(issuer).identify(issuer.token(aud=audiences))
    assert found.id == "@sso/alice#staff@demo"


@pytest.mark.parametrize(
    "audience",
    [
        "https://else.example/mcp",
        f"{PUBLIC_URL}.evil.example/mcp",
        f"{PUBLIC_URL}@evil.example/mcp",
        f"{PUBLIC_URL}0/mcp",
        f"{PUBLIC_URL}/mcp/",
        f"{PUBLIC_URL}/mcp?x",
        f"{PUBLIC_URL}/mcp#x",
        f"{PUBLIC_URL}/MCP",
        f"{PUBLIC_URL}/projects/../mcp",
        f"{PUBLIC_URL}/messages/",
        "",
        [],
        [7, None, {}],
        {"aud": f"{PUBLIC_URL}/mcp"},
        [*["https://x.example"] * 40, f"{PUBLIC_URL}/mcp"],
    ],
)
async def test_a_token_for_another_service_is_refused(issuer: Issuer, audience: object) -> None:
    token = jwt.encode(issuer.claims() | {"aud": audience}, ec_key().private, "ES256", headers={"kid": "ec"})
    assert "another service" in await refusal(source_of(issuer), token)


async def test_an_audience_of_the_configuration_replaces_the_addresses(issuer: Issuer) -> None:
    source = source_of(issuer, audience="api://pointsman")
    assert (await source.identify(issuer.token(aud="api://pointsman"))).id == "@sso/alice#staff"
    assert "another service" in await refusal(source, issuer.token())
    assert "another service" in await refusal(source, issuer.token(aud="API://pointsman"))


# ---------------------------------------------------------------------- the memory of what was verified


async def test_a_token_is_verified_once_and_found_again(issuer: Issuer) -> None:
    source = source_of(issuer)
    verified: list[str] = []

    class Counting:
        may_know, rights_of, widest = source.may_know, source.rights_of, source.widest

        async def identify(self, secret: str) -> Identity:
            verified.append(secret)
            return await source.identify(secret)

    identities = Identities([Counting()])
    token = issuer.token()
    assert identities.find(token) is None
    await asyncio.gather(*(identities.sign_in(token) for _ in range(10)))
    await identities.sign_in(token)
    assert verified == [token]
    assert identities.find(token) == "@sso/alice#staff"
    identities.forget("@sso/alice#staff")
    assert identities.find(token) is None
    assert not identities.is_valid("@sso/alice#staff", time.time())


async def test_refusals_are_not_remembered_as_rights(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    identities = Identities([source_of(issuer)])
    token = issuer.token(groups=[], sub="bob\n")
    for _ in range(2):
        with caplog.at_level(logging.INFO), pytest.raises(ForbiddenError):
            await identities.sign_in(token)
    assert identities.find(token) is None
    assert caplog.messages == ["no rule of `auth` holds for the account 'bob\\n' of issuer sso"]  # once
