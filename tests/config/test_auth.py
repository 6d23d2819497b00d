"""The section `auth` and `listen.public_url`: what is accepted, and what a mistake is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.errors import ConfigError
from pointsman.config.loader import advice, load
from pointsman.config.mask import mask_config
from pointsman.config.model import GatewayConfig

BASE: dict[str, Any] = {
    "listen": {"public_url": "https://mcp.example.com"},
    "projects": {"demo": {}},
    "servers": {"time": {"command": "true", "projects": ["demo"]}},
}
ISSUER = "https://login.example.com"
RULE = {"when": {"groups": "staff"}, "projects": ["demo"], "servers": ["time"]}


def loaded(folder: Path, data: dict[str, Any]) -> GatewayConfig:
    file = folder / "pointsman.yaml"
    file.write_text(json.dumps(data))
    return load(file, {})


def problems(folder: Path, data: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        loaded(folder, data)
    return str(refused.value)


def test_one_issuer_may_be_written_without_a_list(tmp_path: Path) -> None:
    one = {"issuer": ISSUER, "claims": {"staff": RULE}}
    assert loaded(tmp_path, {**BASE, "auth": one}).auth == loaded(tmp_path, {**BASE, "auth": [one]}).auth
    [auth] = loaded(tmp_path, {**BASE, "auth": one}).auth
    assert auth.algorithms == ("RS256", "PS256", "ES256", "EdDSA")
    assert auth.require_scope


def test_nothing_is_set_without_auth(tmp_path: Path) -> None:
    config = loaded(tmp_path, {"servers": {}})
    assert config.auth == ()
    assert config.listen.public_url is None


def test_an_issuer_is_kept_as_it_is_written(tmp_path: Path) -> None:
    """It is compared as text: a slash at the end counts."""
    for issuer in (ISSUER, f"{ISSUER}/", f"{ISSUER}/Tenant/", "http://127.0.0.1:9000", "http://localhost:1"):
        [auth] = loaded(tmp_path, {**BASE, "auth": {"issuer": issuer}}).auth
        assert auth.issuer == issuer


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://MCP.Example.com", "https://mcp.example.com"),
        ("https://mcp.example.com/", "https://mcp.example.com"),
        ("https://mcp.example.com:443", "https://mcp.example.com"),
        ("https://mcp.example.com:8443", "https://mcp.example.com:8443"),
        ("http://127.0.0.1:3282", "http://127.0.0.1:3282"),
        ("http://localhost:80", "http://localhost"),
        ("http://[::1]:3282", "http://[::1]:3282"),
    ],
)
def test_the_public_address_has_one_form(tmp_path: Path, given: str, kept: str) -> None:
    assert loaded(tmp_path, {"listen": {"public_url": given}}).listen.public_url == kept


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("http://mcp.example.com", "https://"),
        ("https://mcp.example.com/mcp", "leave the path out"),
        ("https://user@mcp.example.com", "scheme, host and port only"),
        ("https://mcp.example.com?x=1", "scheme, host and port only"),
        ("https://mcp.example.com#x", "scheme, host and port only"),
        ("mcp.example.com", "must be a URL"),
        ("ftp://mcp.example.com", "must be a URL"),
        ("https://mcp.example.com:0", "must be a URL"),
    ],
)
def test_a_public_address_that_cannot_be_one_is_refused(tmp_path: Path, given: str, said: str) -> None:
    assert said in problems(tmp_path, {"listen": {"public_url": given}})


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        ({"issuer": "http://login.example.com"}, "auth.issuer: must begin with https://"),
        ({"issuer": f"{ISSUER}?x"}, "auth.issuer: must be a URL"),
        ({"issuer": ISSUER, "algorithms": ["HS256"]}, "auth.algorithms[0]"),
        ({"issuer": ISSUER, "algorithms": ["none"]}, "auth.algorithms[0]"),
        ({"issuer": ISSUER, "algorithms": []}, "auth.algorithms: is an empty list"),
        ({"issuer": ISSUER, "audience": []}, "auth.audience: is an empty list"),
        ({"issuer": ISSUER, "jwks_uri": "http://keys.example.com"}, "auth.jwks_uri: must begin with https://"),
        ({"issuer": ISSUER, "name": "grant"}, "`grant` is reserved"),
        ({"issuer": ISSUER, "claim": {}}, "auth.claim: unknown key (did you mean `claims`?)"),
        ({"issuer": ISSUER, "claims": {"a": {}}}, "auth.claims.a.when: is missing"),
        ({"issuer": ISSUER, "claims": {"a": {"when": {}}}}, "auth.claims.a.when: must map claims"),
        ({"issuer": ISSUER, "claims": {"a": {"when": {"x": None}}}}, "the value of a claim"),
        ({"issuer": ISSUER, "claims": {"a": {"when": {"x": []}}}}, "the value of a claim"),
        ({"issuer": ISSUER, "claims": {"a": {"when": {"x": {"y": 1}}}}}, "the value of a claim"),
        ({"issuer": ISSUER, "claims": {"a": {**RULE, "projects": ["dmo"]}}}, "no project `dmo` (did you mean `demo`?)"),
        ({"issuer": ISSUER, "claims": {"a": {**RULE, "servers": ["tim"]}}}, "no server `tim` (did you mean `time`?)"),
        ({"issuer": ISSUER, "claims": {"a": {**RULE, "tools": ["!tme:*"]}}}, "no server `tme`"),
        ({"issuer": ISSUER, "claims": {"a": {**RULE, "confirm": ["tme:x"]}}}, "no server `tme`"),
        ({"issuer": ISSUER, "claims": {"a": {**RULE, "sha256": "0" * 64}}}, "auth.claims.a.sha256: unknown key"),
        ([{"issuer": ISSUER}, {"issuer": f"{ISSUER}/2"}], "two issuers are called `sso`"),
        ([{"issuer": ISSUER}, {"issuer": ISSUER, "name": "b"}], "listed twice"),
        ([{"issuer": ISSUER}, {"issuer": ISSUER, "claims": {"a": {"wen": 1}}}], "auth[1].claims.a.wen: unknown key"),
        ("x", "auth"),
        ([7], "auth[0]"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, auth: Any, said: str) -> None:
    assert said in problems(tmp_path, {**BASE, "auth": auth})


def test_sign_in_needs_the_public_address(tmp_path: Path) -> None:
    said = problems(tmp_path, {"auth": {"issuer": ISSUER}})
    assert "`auth` needs `listen.public_url`" in said


def test_an_issuer_without_rules_is_pointed_out(tmp_path: Path) -> None:
    [said] = advice(loaded(tmp_path, {**BASE, "auth": {"issuer": ISSUER}}))
    assert "issuer `sso` has no rules" in said
    assert not advice(loaded(tmp_path, {**BASE, "auth": {"issuer": ISSUER, "claims": {"staff": RULE}}}))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("laptop", None),
        ("@sso/alice", None),
        ("@grant/0011", None),
        ("laptp", "no token is called `laptp`, so these headers are never used. Did you mean `laptop`?"),
        ("zzz", "no token is called `zzz`, so these headers are never used."),
        ("@corp/alice", "`auth` has no issuer `corp`, so these headers are never used."),
    ],
)
def test_headers_for_a_caller_that_cannot_exist_are_pointed_out(tmp_path: Path, name: str, said: str | None) -> None:
    vault = {
        "url": "https://vault.example/mcp",
        "credentials": "per-caller",
        "caller_headers": {name: {"Authorization": "Bearer x"}},
    }
    data = {
        **BASE,
        "servers": {**BASE["servers"], "vault": vault},
        "tokens": {"laptop": {"sha256": "0" * 64}},
        "auth": {"issuer": ISSUER, "claims": {"staff": RULE}},
    }
    expected = () if said is None else (f"`servers.vault.caller_headers.{name}`: {said}",)
    assert advice(loaded(tmp_path, data)) == expected


def test_config_show_has_no_reason_to_hide_anything_of_it(tmp_path: Path) -> None:
    shown = mask_config(loaded(tmp_path, {**BASE, "auth": {"issuer": ISSUER, "claims": {"staff": RULE}}}))
    assert shown["auth"][0]["issuer"] == ISSUER
    assert shown["auth"][0]["claims"]["staff"]["when"] == {"groups": ["staff"]}
