"""Access tokens that are forged, changed, of another kind or of none: each is refused in a sentence."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from base64 import urlsafe_b64encode
from contextlib import suppress
from hashlib import sha256
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.catalog.identities import Identities
from pointsman.core.errors import ForbiddenError, ScopeError, UnauthorizedError
from pointsman.router.auth import jwks
from tests.router.auth.issuer import PUBLIC_URL, Issuer, Json, ec_key, ed_key, rsa_key
from tests.router.auth.verifying import Clock, refusal, source_of, unsigned


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
    said = await refusal(source_of(issuer), unsigned(head, issuer.claims()))
    assert "not an access token" in said
    assert "Send the access token of the sign-in" in said


@pytest.mark.parametrize("bound", [{"jkt": "x"}, {"x5t#S256": "x"}, {}], ids=str)
async def test_a_token_that_is_bound_to_a_key_is_not_taken_for_a_bearer_token(issuer: Issuer, bound: object) -> None:
    """Who has stolen it would need the key; we cannot look whether the sender has it."""
    text = await refusal(source_of(issuer), issuer.token(cnf=bound))
    assert "bound to a key" in text
    assert "authorization server" in text


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
