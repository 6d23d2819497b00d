"""A client that proves itself by a key: what it signs, with which algorithm, and what a wrong key is answered with."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from pointsman.router.downstream.connection import CallNotSentError
from pointsman.router.downstream.oauth.client_assertion import LIFE_S, TYPE, assertion
from pointsman.router.downstream.oauth.discovery import SignInError
from pointsman.router.downstream.oauth.tokens import KEY, Client
from tests.router.downstream.http_parts import call_of
from tests.router.downstream.oauth.parts import Gateway
from tests.servers.oauth_mcp import serving_oauth

ISSUER = "https://as.example/t"
SIGNATURES = "token_endpoint_auth_signing_alg_values_supported"


def pem(key: Any, encryption: KeySerializationEncryption | None = None) -> str:
    written: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())
    return written.decode()


def client_of(secret: str, **more: Any) -> Client:
    return Client("robot", ISSUER, secret, KEY, **more)


EC = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (EC, "ES256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
        (RSA, "RS256"),
    ],
    ids=["P-256", "P-384", "Ed25519", "RSA"],
)
def test_what_is_signed_is_for_one_server_and_a_minute(key: Any, algorithm: str) -> None:
    texts = [assertion(client_of(pem(key), key_id="k1")) for _ in range(2)]
    claims = [jwt.decode(text, key.public_key(), [algorithm], audience=ISSUER) for text in texts]
    assert jwt.get_unverified_header(texts[0])["kid"] == "k1"
    assert {(one["iss"], one["sub"], one["aud"]) for one in claims} == {("robot", "robot", ISSUER)}
    assert claims[0]["jti"] != claims[1]["jti"]
    assert time.time() < claims[0]["exp"] <= time.time() + LIFE_S


@pytest.mark.parametrize(("taken", "used"), [((), "RS256"), (("PS256",), "PS256"), (("ES256", "RS256"), "RS256")])
def test_the_algorithm_is_one_that_the_server_takes(taken: tuple[str, ...], used: str) -> None:
    text = assertion(client_of(pem(RSA), algorithms=taken))
    assert jwt.get_unverified_header(text) == {"alg": used, "typ": "JWT"}


def test_a_key_that_the_server_does_not_take_is_named() -> None:
    with pytest.raises(SignInError, match=r"\(ES256\), only RS256, none"):
        assertion(client_of(pem(EC), algorithms=("RS256", "none")))


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "no key",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        pem(EC, BestAvailableEncryption(b"password")),
        pem(ec.generate_private_key(ec.SECP256K1())),
        pem(ed448.Ed448PrivateKey.generate()),
        pem(rsa.generate_private_key(65537, 1024)),
    ],
    ids=["empty", "text", "broken", "password", "curve", "kind", "short"],
)
def test_what_is_no_key_to_sign_with_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(SignInError, match=r"`oauth\.private_key` is not a private key") as refused:
        assertion(client_of(secret))
    assert not secret.strip() or secret not in str(refused.value)


async def test_client_credentials_by_a_key_need_no_secret_and_store_no_key(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.server_metadata = {SIGNATURES: ["ES256"], "token_endpoint_auth_methods_supported": ["private_key_jwt"]}
        settings: dict[str, Any] = {
            "grant": "client_credentials",
            "client_id": "robot",
            "private_key": pem(EC),
            "key_id": "k1",
        }
        gateway = Gateway(tmp_path, server, **settings)
        async with gateway.connected() as connection:
            await connection.request(call_of("echo"))
            server.expire_all()
            await connection.request(call_of("echo"))
        (kept,) = await gateway.store.listed()
        assert (kept.client.auth, kept.client.secret) == (KEY, "")
        issuer = server.issuer
    asked = server.grants("client_credentials")
    assert len(asked) == 2
    for one in asked:
        assert (one["client_assertion_type"], one["_authorization"]) == (TYPE, None)
        assert "client_secret" not in one
        assert jwt.decode(one["client_assertion"], EC.public_key(), ["ES256"], audience=issuer)["sub"] == "robot"


async def test_a_person_can_sign_in_with_such_a_client(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server, client_id="robot", private_key=pem(EC))
        await gateway.sign_in()
        server.expire_all()
        async with gateway.connected() as connection:
            await connection.request(call_of("echo"))
    assert all(one.get("client_assertion") for one in server.asked["token"])
    assert [one["grant_type"] for one in server.asked["token"]] == ["authorization_code", "refresh_token"]


async def test_a_key_that_cannot_sign_is_the_reason_that_is_given(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server, grant="client_credentials", client_id="robot", private_key="nonsense")
        with pytest.raises(CallNotSentError, match=r"`oauth\.private_key` is not a private key"):
            async with gateway.connected():
                pass
    assert not server.asked["token"]
