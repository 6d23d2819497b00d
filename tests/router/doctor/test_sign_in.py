"""What doctor says where clients can sign in: of tokens, of the issuers' keys, and of rules that give no tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.loader import parse
from pointsman.router.doctor.configuration import check_tokens
from pointsman.router.doctor.findings import Finding, Inspected
from pointsman.router.doctor.gateway import advice_for
from pointsman.router.doctor.sign_in import check_sign_in
from tests.router.auth.issuer import PUBLIC_URL, Issuer, issuing

JWKS = "/jwks"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as one:
        yield one


def inspected(**config: Any) -> Inspected:
    return Inspected(parse(json.dumps(config), "f.yaml", {}), (), None, Path("x"))


def with_issuer(issuer: Issuer, scopes: list[str] | None = None, **changed: Any) -> Inspected:
    rule = {"when": "*", "projects": ["*"], "servers": ["*"], "scopes": scopes or ["read", "write", "destructive"]}
    return inspected(
        listen={"public_url": PUBLIC_URL},
        auth={"issuer": issuer.url, "claims": {"staff": rule}, **changed},
        servers={"files": {"command": "x"}, "web": {"command": "x", "trust_annotations": True}},
    )


def test_without_tokens_clients_are_refused_only_where_nobody_can_sign_in(issuer: Issuer) -> None:
    [alone] = check_tokens(inspected())
    assert (alone.level, alone.message[:49]) == ("problem", "There is no token, so every client is refused. `p")
    for one in (with_issuer(issuer), inspected(listen={"public_url": PUBLIC_URL})):
        [found] = check_tokens(one)
        assert found.level == "ok"
        assert "clients sign in" in found.message


def test_expired_tokens_are_no_problem_where_clients_sign_in() -> None:
    token = {"sha256": "0" * 64, "expires": "2020-01-01T00:00:00Z"}
    [found] = check_tokens(inspected(listen={"public_url": PUBLIC_URL}, tokens={"old": token}))
    assert found.level == "note"


async def test_keys_that_can_be_fetched_are_in_order(issuer: Issuer) -> None:
    [found] = await check_sign_in(with_issuer(issuer))
    assert found == Finding("sign-in", "ok", "The keys of issuer `sso` can be fetched.")


@pytest.mark.parametrize(
    ("path", "answer", "reason"),
    [
        (JWKS, {"keys": []}, "its set of keys is empty"),
        (JWKS, {"other": 1}, "its answer is not a set of keys"),
        ("/.well-known/oauth-authorization-server", {"issuer": "https://x.example"}, "name another issuer"),
    ],
)
async def test_keys_that_cannot_be_fetched_are_a_problem_with_its_reason(
    issuer: Issuer, path: str, answer: dict[str, Any], reason: str
) -> None:
    issuer.answers[path] = answer
    issuer.answers["/.well-known/openid-configuration"] = {"issuer": "https://x.example"}
    [found] = await check_sign_in(with_issuer(issuer))
    assert found.level == "problem"
    assert reason in found.message
    assert "Compare `issuer` in `auth`" in found.message


async def test_a_rule_that_gives_no_tools_of_a_server_is_noted(issuer: Issuer) -> None:
    [_, found] = await check_sign_in(with_issuer(issuer, ["read", "write"]))
    assert found.level == "note"
    assert found.message.startswith("Who signs in by the rule `staff` sees no tools of `files`: nobody vouches")
    assert "`trust_annotations: true`" in found.message


async def test_without_auth_no_issuer_is_asked() -> None:
    assert await check_sign_in(inspected(listen={"public_url": PUBLIC_URL})) == []


def test_the_advice_for_refused_clients_names_signing_in_where_it_is_possible(issuer: Issuer) -> None:
    assert "sign" not in advice_for(inspected())["unauthorized"]
    assert "sign in again in the client" in advice_for(with_issuer(issuer))["unauthorized"]
    assert "no rule of `auth` holds" in advice_for(with_issuer(issuer))["denied"]
