"""Access tokens of a real issuer over HTTP: what is accepted, and what every attack is told."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.catalog.identities import Identities, Identity
from pointsman.config.auth_model import Auth
from pointsman.core.errors import ForbiddenError, ScopeError, SignInUnavailableError, UnauthorizedError
from pointsman.router.auth import jwks
from pointsman.router.auth.issuers import TRUST_S, Issuers
from pointsman.router.auth.jwks import KeySet, is_usable, metadata_urls
from pointsman.router.auth.metadata import Resources
from tests.router.auth.issuer import PATIENCE_S, PUBLIC_URL, Issuer, Json, ec_key, ed_key, issuing, rsa_key, write

META = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as one:
        yield one


class Clock:
    """Of the keys: a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def source_of(issuer: Issuer, clock: Callable[[], float] = time.monotonic, **changed: Any) -> Issuers:
    data = {"issuer": issuer.url, "claims": {"staff": {"when": {"groups": "staff"}, "servers": ["*"]}}, **changed}
    auth = Auth.model_validate(data)
    found = Issuers([auth], Resources(PUBLIC_URL, [issuer.url]))
    found.keys = {(auth.issuer, auth.jwks_uri): KeySet(auth, clock)}
    return found


async def refusal(source: Issuers, token: str) -> str:
    """Why a token is refused: whatever it is, in a sentence that does not repeat it."""
    if not source.may_know(token):
        return "not of its form"
    with pytest.raises(UnauthorizedError) as refused:
        await source.identify(token)
    text = str(refused.value)
    assert token not in text
    assert "Traceback" not in text
    return text


def unsigned(header: Json | bytes, claims: Json | bytes, signature: bytes = b"x") -> str:
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims, signature)]
    return ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


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


async def test_keys_are_fetched_once_for_many_tokens_at_the_same_time(issuer: Issuer) -> None:
    source = source_of(issuer)
    tokens = [issuer.token(sub=f"person-{number}") for number in range(20)]
    found = await asyncio.gather(*(source.identify(token) for token in tokens))
    assert len({one.id for one in found}) == 20
    assert issuer.count("/jwks") == 1


async def test_a_new_key_of_the_issuer_is_found_without_a_restart(issuer: Issuer) -> None:
    clock = Clock()
    source = source_of(issuer, clock)
    await source.identify(issuer.token())
    issuer.keys = [ec_key("rotated")]
    clock.now += jwks.RETRY_S
    assert (await source.identify(issuer.token())).id == "@sso/alice#staff"
    assert issuer.count("/jwks") == 2


async def test_a_removed_key_is_no_longer_accepted(issuer: Issuer) -> None:
    clock = Clock()
    source = source_of(issuer, clock)
    old = issuer.token()
    await source.identify(old)
    issuer.keys = [ec_key("rotated")]
    clock.now += jwks.FRESH_S + 1
    await source.identify(old)  # fetches in the background
    [keys] = source.keys.values()
    fetching = keys._fetching
    assert fetching is not None
    await fetching
    assert "does not list" in await refusal(source, old)


async def test_keys_stay_in_use_for_a_while_if_the_issuer_does_not_answer(issuer: Issuer) -> None:
    clock = Clock()
    source = source_of(issuer, clock)
    await source.identify(issuer.token())
    issuer.answers["/jwks"] = lambda request: write(request, 500, {})
    clock.now += jwks.USABLE_S
    await source.identify(issuer.token())
    clock.now += jwks.RETRY_S + 1
    with pytest.raises(SignInUnavailableError):
        await source.identify(issuer.token())


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


# ---------------------------------------------------------------------- attacks


async def test_alg_none_is_refused(issuer: Issuer) -> None:
    source = source_of(issuer)
    for algorithm in ("none", "None", "nOnE", "", None, 7, ["ES256"]):
        for signature in (b"x", b"none"):
            token = unsigned({"alg": algorithm, "kid": "ec"}, issuer.claims(), signature)
            assert "does not accept" in await refusal(source, token)
    said = await refusal(source, unsigned({"alg": "none"}, issuer.claims(), b""))
    assert "not signed (`alg` is `none`)" in said
    assert issuer.asked == []


@pytest.mark.parametrize("form", ["pem", "der", "jwk"])
async def test_a_public_key_is_not_taken_for_a_shared_secret(issuer: Issuer, form: str) -> None:
    """Key confusion: HS256 with what everybody knows as the secret."""
    key = rsa_key()
    issuer.keys = [key]
    public = key.private.public_key()
    secret = {
        "pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "der": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "jwk": json.dumps(key.public).encode(),
    }[form]
    for kid in (key.id, None):
        head = {"alg": "HS256", "typ": "JWT", **({"kid": kid} if kid else {})}
        signed = unsigned(head, issuer.claims()).rpartition(".")[0]
        signature = urlsafe_b64encode(hmac.digest(secret, signed.encode(), sha256)).rstrip(b"=").decode()
        assert "does not accept" in await refusal(source_of(issuer), f"{signed}.{signature}")


async def test_a_shared_secret_among_the_issuers_keys_is_never_used(issuer: Issuer) -> None:
    secret = b"s" * 32
    issuer.answers["/jwks"] = {"keys": [{"kty": "oct", "kid": "s", "k": urlsafe_b64encode(secret).decode()}]}
    token = jwt.encode(issuer.claims(), secret, "HS256", headers={"kid": "s"})
    assert "does not accept" in await refusal(source_of(issuer), token)
    assert "does not list" in await refusal(source_of(issuer), issuer.token(header={"kid": "s"}))


async def test_a_signature_by_another_algorithm_of_the_same_key_is_refused(issuer: Issuer) -> None:
    key = rsa_key()
    issuer.keys = [key]
    token = jwt.encode(issuer.claims(), key.private, "RS512", headers={"kid": key.id})
    assert "does not accept" in await refusal(source_of(issuer), token)
    other = jwt.encode(issuer.claims(), key.private, "PS256", headers={"kid": key.id})
    assert "does not list" in await refusal(source_of(issuer), other)  # the key is for RS256


async def test_a_changed_token_is_refused(issuer: Issuer) -> None:
    source = source_of(issuer)
    head, _, signature = issuer.token().split(".")
    body = urlsafe_b64encode(json.dumps(issuer.claims(sub="root")).encode()).rstrip(b"=").decode()
    assert "signature" in await refusal(source, f"{head}.{body}.{signature}")
    forged = jwt.encode(issuer.claims(), ec_key("attacker").private, "ES256", headers={"kid": "ec"})
    assert "signature" in await refusal(source, forged)


@pytest.mark.parametrize("name", ["jku", "x5u", "jwk", "x5c"])
async def test_keys_that_a_token_brings_along_are_ignored(issuer: Issuer, name: str) -> None:
    mine = ec_key("attacker")
    brought = {"jwk": mine.public, "x5c": ["MIIB"]}.get(name, f"{issuer.url}/attacker")
    issuer.answers["/attacker"] = {"keys": [mine.public]}
    source = source_of(issuer)
    for kid in ("ec", "attacker"):
        assert await refusal(source, issuer.token(mine, {name: brought, "kid": kid}))
    assert issuer.count("/attacker") == 0


async def test_expired_and_future_tokens_are_refused_beyond_the_leeway(issuer: Issuer) -> None:
    source, now = source_of(issuer), int(time.time())
    assert "expired" in await refusal(source, issuer.token(exp=now - 120))
    assert "not valid yet" in await refusal(source, issuer.token(nbf=now + 120))
    assert (await source.identify(issuer.token(exp=now - 30, nbf=now + 30))).id == "@sso/alice#staff"


@pytest.mark.parametrize("claim", ["exp", "iss", "aud", "sub"])
async def test_a_token_without_a_claim_that_binds_it_is_refused(issuer: Issuer, claim: str) -> None:
    assert await refusal(source_of(issuer), issuer.token(**{claim: None}))


@pytest.mark.parametrize("exp", ["soon", {}, [], 10**400, -1, True, "9" * 5000], ids=lambda exp: str(exp)[:8])
async def test_an_expiry_that_is_no_time_is_refused(issuer: Issuer, exp: object) -> None:
    token = jwt.encode({**issuer.claims(), "iat": 1}, ec_key().private, "ES256", headers={"kid": "ec"})
    head, _, _ = token.split(".")
    body = urlsafe_b64encode(json.dumps({**issuer.claims(), "exp": exp}).encode()).rstrip(b"=").decode()
    signature = urlsafe_b64encode(
        jwt.algorithms.get_default_algorithms()["ES256"].sign(f"{head}.{body}".encode(), ec_key().private)
    )
    said = await refusal(source_of(issuer), f"{head}.{body}.{signature.rstrip(b'=').decode()}")
    assert "`exp`" in said or "expired" in said


async def test_another_issuer_is_refused_before_anything_is_fetched(issuer: Issuer) -> None:
    source = source_of(issuer)
    for iss in ("https://evil.example", f"{issuer.url}/", issuer.url.upper(), "", ["x"], {"a": 1}):
        token = unsigned({"alg": "ES256", "kid": "ec"}, {**issuer.claims(), "iss": iss})
        assert "does not know" in await refusal(source, token)
    assert issuer.asked == []


@pytest.mark.parametrize("header", [{"typ": "dpop+jwt"}, {"typ": "logout+jwt"}, {"crit": ["exp"]}, {"typ": 7}])
async def test_tokens_of_another_kind_are_refused(issuer: Issuer, header: Json) -> None:
    head = {"alg": "ES256", "kid": "ec", **header}
    assert "not an access token" in await refusal(source_of(issuer), unsigned(head, issuer.claims()))


async def test_a_flood_of_unknown_key_ids_has_keys_fetched_once(issuer: Issuer) -> None:
    clock = Clock()
    source = source_of(issuer, clock)
    await source.identify(issuer.token())
    clock.now += jwks.RETRY_S
    tokens = [issuer.token(header={"kid": f"unknown-{number}"}) for number in range(200)]
    for answer in await asyncio.gather(*(refusal(source, token) for token in tokens)):
        assert "does not list" in answer
    for token in tokens[:50]:
        await refusal(source, token)
    assert issuer.count("/jwks") == 2
    [keys] = source.keys.values()
    assert keys._parsed == {}  # unknown ids are not kept


@pytest.mark.parametrize("kid", ["x" * 300, 7, ["ec"], {"a": 1}, True])
async def test_a_key_id_that_is_none_is_refused(issuer: Issuer, kid: object) -> None:
    token = unsigned({"alg": "ES256", "kid": kid}, issuer.claims())
    assert "`kid`" in await refusal(source_of(issuer), token)


async def test_without_a_key_id_the_only_key_that_fits_is_used(issuer: Issuer) -> None:
    token = jwt.encode(issuer.claims(), ec_key().private, "ES256")
    issuer.keys = [ec_key(), ed_key()]
    assert (await source_of(issuer).identify(token)).id == "@sso/alice#staff"
    issuer.keys = [ec_key(), ec_key("second")]
    assert "does not list" in await refusal(source_of(issuer), token)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ptm_secret",
        "a.b",
        "a.b.c.d",
        "....",
        "a.b.c",
        "eyJ.eyJ.x",
        "e30.e30.x",
        "W10.W10.x",
        "bnVsbA.bnVsbA.x",
        "é.é.é",
    ],
)
async def test_what_is_no_jwt_is_refused(issuer: Issuer, text: str) -> None:
    assert await refusal(source_of(issuer), text)
    assert issuer.asked == []


async def test_deep_and_huge_claims_are_refused_or_harmless(issuer: Issuer) -> None:
    source = source_of(issuer)
    deep = b'{"iss":"%b","x":%b1%b}' % (issuer.url.encode(), b"[" * 5000, b"]" * 5000)
    head = {"alg": "ES256", "kid": "ec"}
    assert await refusal(source, unsigned(head, deep))
    assert await refusal(source, unsigned(b"[" * 5000, issuer.claims()))
    nested: Any = "x"
    for _ in range(300):
        nested = {"a": [nested]}
    found = await source.identify(issuer.token(nested=nested, groups=[*map(str, range(900)), "staff"]))
    assert found.id == "@sso/alice#staff"


async def test_a_token_that_is_too_large_is_not_even_looked_at(issuer: Issuer) -> None:
    identities = Identities([source_of(issuer)])
    token = issuer.token(padding="x" * 20_000)
    with pytest.raises(UnauthorizedError, match="more than 16384 characters"):
        await identities.sign_in(token)
    assert identities.find(token) is None
    assert issuer.asked == []


# ---------------------------------------------------------------------- keys that cannot be had


def redirect(request: BaseHTTPRequestHandler) -> None:
    write(request, 302, {}, location="/elsewhere")


async def test_no_keys_mean_try_again_and_not_sign_in_again(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    huge = {"keys": [ec_key().public], "padding": "x" * 100_000}
    bad: dict[str, Any] = {
        "redirect": redirect,
        "error": lambda request: write(request, 500, {}),
        "huge": huge,
        "not JSON": lambda request: write(request, 200, b"<html>"),
        "a list": lambda request: write(request, 200, b"[]"),
        "no keys": {"keys": {}},
    }
    issuer.answers["/elsewhere"] = {"keys": [ec_key().public]}
    for name, answer in bad.items():
        issuer.answers["/jwks"] = answer
        caplog.clear()
        with caplog.at_level(logging.WARNING), pytest.raises(SignInUnavailableError):
            await source_of(issuer).identify(issuer.token())
        assert "could not fetch the keys" in caplog.text, name
    assert issuer.count("/elsewhere") == 0


async def test_an_issuer_that_never_answers_is_waited_for_once(issuer: Issuer) -> None:
    def never(request: BaseHTTPRequestHandler) -> None:
        issuer.leave.wait(PATIENCE_S)

    issuer.answers["/jwks"] = never
    source = source_of(issuer, Clock(), jwks_uri=f"{issuer.url}/jwks")
    [keys] = source.keys.values()
    tokens = [issuer.token(sub=str(number)) for number in range(20)]
    waiting = [asyncio.ensure_future(source.identify(token)) for token in tokens]
    while issuer.count("/jwks") == 0:
        await asyncio.sleep(0.01)
    assert keys._fetching is not None
    keys._fetching.cancel()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError | SignInUnavailableError) for one in done)
    assert issuer.count("/jwks") == 1
    with pytest.raises(SignInUnavailableError):
        await source.identify(tokens[0])
    assert issuer.count("/jwks") == 1


async def test_metadata_of_another_issuer_are_not_believed(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    issuer.answers[META] = {"issuer": "https://evil.example", "jwks_uri": f"{issuer.url}/evil"}
    with caplog.at_level(logging.WARNING), pytest.raises(SignInUnavailableError):
        await source_of(issuer).identify(issuer.token())
    assert "another issuer" in caplog.text
    assert issuer.count("/evil") == 0


async def test_metadata_cannot_lead_into_other_networks(issuer: Issuer) -> None:
    for address in ("http://169.254.169.254/keys", "https://10.0.0.1/keys", "file:///etc/passwd", "gopher://x/"):
        issuer.answers[META] = {"issuer": issuer.url, "jwks_uri": address}
        with pytest.raises(SignInUnavailableError):
            await source_of(issuer).identify(issuer.token())


# ---------------------------------------------------------------------- keys


def test_a_key_is_used_only_for_what_it_says_it_is_for() -> None:
    key = ec_key().public
    assert is_usable(key, "ES256")
    assert not is_usable(key, "RS256")
    for changed in (
        {"use": "enc"},
        {"alg": "ES384"},
        {"crv": "P-384"},
        {"kty": "oct"},
        {"key_ops": ["sign"]},
        {"key_ops": 1},
    ):
        assert not is_usable({**key, **changed}, "ES256")


@pytest.mark.parametrize(
    "broken",
    [
        {"n": "AQAB"},
        {"n": "A" * 1_000_000},
        {"n": 7},
        {"n": "!!"},
        {"e": None},
        {"n": None},
    ],
)
async def test_broken_and_weak_keys_are_ignored(issuer: Issuer, broken: Json) -> None:
    key = rsa_key()
    listed = {name: value for name, value in {**key.public, **broken}.items() if value is not None}
    issuer.answers["/jwks"] = lambda request: write(request, 200, {"keys": [listed, 7, None, {}]})
    token = issuer.token(key)
    if len(str(broken)) > 100_000:
        with pytest.raises(SignInUnavailableError):
            await source_of(issuer).identify(token)
    else:
        assert "does not list" in await refusal(source_of(issuer), token)


# ---------------------------------------------------------------------- the memory of what was verified


async def test_a_token_is_verified_once_and_found_again(issuer: Issuer) -> None:
    source = source_of(issuer)
    verified: list[str] = []

    class Counting:
        may_know, rights_of = source.may_know, source.rights_of

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


ODD: list[Any] = [None, True, False, 0, -1, 7, 2**64, 1e308, 0.5, "", "x", "mcp", "ES256", "none", "ec", "JWT", "staff"]
ODD += [
    [],
    {},
    [[]],
    [None],
    ["staff", 7],
    {"a": {"b": []}},
    [PUBLIC_URL, {}],
    f"{PUBLIC_URL}/mcp",
    "\ud800",
    "\0",
    "é",
]
NAMES = ["iss", "aud", "sub", "exp", "nbf", "iat", "scope", "scp", "groups", "alg", "kid", "typ", "crit", "jwk", "b64"]
parts = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(ODD), max_size=3)


@settings(max_examples=300)
@given(parts, parts, st.booleans())
def test_whatever_a_token_says_it_is_accepted_or_refused_in_words(header: Json, claims: Json, signed: bool) -> None:
    """Also if the issuer itself has signed it."""
    issuer = Issuer(1)
    source = source_of(issuer, Clock())
    [keys] = source.keys.values()
    keys._keys, keys._fetched, keys._tried = [ec_key().public], 1000.0, 1000.0
    body = {**issuer.claims(), **claims}
    token = unsigned({"alg": "ES256", "kid": "ec", **header}, json.dumps(body).encode())
    if signed:
        text = token.rpartition(".")[0]
        signature = jwt.algorithms.get_default_algorithms()["ES256"].sign(text.encode(), ec_key().private)
        token = f"{text}.{urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    found = None
    with suppress(UnauthorizedError, ForbiddenError, ScopeError):
        found = asyncio.run(source.identify(token))
    assert found is None or (signed and found.id.startswith("@sso/"))
