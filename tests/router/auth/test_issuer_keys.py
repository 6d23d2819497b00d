"""The keys of an issuer: fetched once, found anew, kept while it is away, and used only for what they are for."""

from __future__ import annotations

import asyncio
import logging
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from pointsman.core.errors import SignInUnavailableError
from pointsman.router.auth import jwks
from pointsman.router.auth.jwks import is_usable
from tests.router.auth.issuer import PATIENCE_S, Issuer, Json, ec_key, rsa_key, write
from tests.router.auth.verifying import META, Clock, refusal, source_of


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
