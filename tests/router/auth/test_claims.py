"""Rules turn claims into rights: the first that holds, nothing without one, and a scope that only narrows."""

from __future__ import annotations

from typing import Any

import pytest

from pointsman.catalog.identities import is_identity, person_of
from pointsman.config.sections.auth import Auth
from pointsman.core.errors import ForbiddenError, ScopeError, UnauthorizedError
from pointsman.router.auth.claims import MAX_LISTED, holds, identity_of, rights_of, rule_of, unnarrowed

CLAIMS = {"sub": "alice", "scope": "mcp", "groups": ["staff", "ops"], "realm_access": {"roles": ["admin"]}, "level": 3}


def auth(*, require_scope: bool = True, **rules: dict[str, Any]) -> Auth:
    data = {"issuer": "https://login.example", "claims": rules, "require_scope": require_scope}
    return Auth.model_validate(data)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("*", True),
        ({"sub": "alice"}, True),
        ({"sub": "Alice"}, False),
        ({"groups": "staff"}, True),
        ({"groups": ["sales", "ops"]}, True),
        ({"groups": "sales"}, False),
        ({"groups": "staff", "sub": "bob"}, False),
        ({"realm_access.roles": "admin"}, True),
        ({"realm_access.roles.x": "admin"}, False),
        ({"realm_access": "admin"}, False),
        ({"level": 3}, True),
        ({"level": "3"}, False),
        ({"missing": "x"}, False),
    ],
)
def test_a_rule_holds_if_all_of_its_claims_do(when: Any, expected: bool) -> None:
    assert holds(auth(r={"when": when}).claims["r"], CLAIMS) is expected


def test_true_is_not_one_and_a_text_contains_nothing() -> None:
    rule = auth(r={"when": {"email_verified": True}}).claims["r"]
    assert holds(rule, {"email_verified": True})
    assert not holds(rule, {"email_verified": 1})
    assert not holds(rule, {"email_verified": "true"})
    assert not holds(auth(r={"when": {"groups": "staff"}}).claims["r"], {"groups": "not-staff staff"})


def test_a_claim_with_dots_in_its_name_comes_before_a_path() -> None:
    rule = auth(r={"when": {"https://example.com/roles": "admin"}}).claims["r"]
    assert holds(rule, {"https://example.com/roles": ["admin"]})
    both = {"a.b": "own", "a": {"b": "inner"}}
    assert holds(auth(r={"when": {"a.b": "own"}}).claims["r"], both)
    assert not holds(auth(r={"when": {"a.b": "inner"}}).claims["r"], both)


def test_only_the_beginning_of_an_endless_claim_is_compared() -> None:
    rule = auth(r={"when": {"groups": "staff"}}).claims["r"]
    assert not holds(rule, {"groups": [*["x"] * MAX_LISTED, "staff"]})


def test_the_first_rule_that_holds_counts() -> None:
    issuer = auth(
        admins={"when": {"groups": "admins"}, "servers": ["*"], "projects": ["*"]},
        staff={"when": {"groups": "staff"}, "servers": ["notes"], "projects": ["*"]},
        anybody={"when": "*", "servers": ["time"], "projects": ["*"]},
    )
    assert identity_of(issuer, CLAIMS, None) == "@sso/alice#staff"
    assert identity_of(issuer, {**CLAIMS, "groups": ["staff", "admins"]}, None) == "@sso/alice#admins"
    assert identity_of(issuer, {**CLAIMS, "groups": []}, None) == "@sso/alice#anybody"


def test_an_account_for_which_no_rule_holds_has_no_rights() -> None:
    for issuer in (auth(), auth(staff={"when": {"groups": "others"}, "servers": ["*"]})):
        with pytest.raises(ForbiddenError, match="no rule of `auth`"):
            identity_of(issuer, CLAIMS, None)


def test_a_rule_without_projects_and_servers_gives_none() -> None:
    issuer = auth(staff={"when": "*"})
    rights = rights_of([issuer], identity_of(issuer, CLAIMS, None))
    assert rights is not None
    assert (rights.projects, rights.servers) == ((), ())


@pytest.mark.parametrize(
    ("scope", "left"),
    [
        ("mcp", ("read", "write", "destructive")),
        ("openid mcp profile", ("read", "write", "destructive")),
        ("mcp:read", ("read",)),
        ("mcp:write mcp:read", ("read", "write")),
        ("mcp:read mcp", ("read", "write", "destructive")),  # the broader one implies the others
    ],
)
def test_a_scope_narrows_the_rights_of_the_rule(scope: str, left: tuple[str, ...]) -> None:
    issuer = auth(staff={"when": "*", "servers": ["*"], "projects": ["*"]})
    rights = rights_of([issuer], identity_of(issuer, {**CLAIMS, "scope": scope}, None))
    assert rights is not None
    assert rights.scopes == left


def test_a_scope_never_widens_the_rights_of_the_rule() -> None:
    issuer = auth(readers={"when": "*", "scopes": ["read"]})
    for scope in ("mcp", "mcp:read mcp:destructive"):
        rights = rights_of([issuer], identity_of(issuer, {**CLAIMS, "scope": scope}, None))
        assert rights is not None
        assert rights.scopes == ("read",)


def test_a_token_without_a_scope_of_ours_is_told_which_to_ask_for() -> None:
    issuer = auth(staff={"when": "*"})
    for claims in ({**CLAIMS, "scope": "openid"}, {"sub": "a"}, {"sub": "a", "scope": 7}, {"sub": "a", "scp": [1, {}]}):
        with pytest.raises(ScopeError) as refused:
            identity_of(issuer, claims, None)
        assert refused.value.scopes == ("mcp",)


def test_a_scope_that_leaves_nothing_of_the_rule_is_refused_with_all_that_would_help() -> None:
    issuer = auth(staff={"when": "*", "scopes": ["read", "write"]})
    with pytest.raises(ScopeError) as refused:
        identity_of(issuer, {**CLAIMS, "scope": "mcp:destructive"}, None)
    assert refused.value.scopes == ("mcp:read", "mcp:write")


def test_scopes_need_not_be_there_where_the_operator_says_so() -> None:
    issuer = auth(require_scope=False, staff={"when": "*"})
    assert identity_of(issuer, {"sub": "alice"}, None) == "@sso/alice#staff"
    assert identity_of(issuer, {"sub": "alice", "scp": ["mcp:read"]}, None) == "@sso/alice#staff:read"


@pytest.mark.parametrize("subject", [None, "", 7, "x" * 256, ["alice"]])
def test_a_subject_that_cannot_be_a_name_is_refused(subject: object) -> None:
    with pytest.raises(UnauthorizedError):
        identity_of(auth(staff={"when": "*"}), {**CLAIMS, "sub": subject}, None)


@pytest.mark.parametrize(
    "subject", ["a/b", "a#admins", "a b", "a\n", "ä", "%", "auth0|1", "me@example.com", "..", "@owner"]
)
def test_no_subject_can_look_like_another_identity(subject: str) -> None:
    issuer = auth(staff={"when": "*", "servers": ["notes"]}, admins={"when": {"groups": "no"}, "servers": ["*"]})
    found = identity_of(issuer, {**CLAIMS, "sub": subject}, None)
    assert found.isascii()
    assert found.isprintable()
    assert is_identity(found)
    assert found.count("#") == 1
    assert rule_of(found) == "staff"
    rights = rights_of([issuer], found)
    assert rights is not None
    assert rights.servers == ("notes",)
    assert person_of(found) != person_of(identity_of(issuer, CLAIMS, None))


def test_a_token_for_a_project_has_no_other() -> None:
    issuer = auth(some={"when": "*", "projects": ["demo", ""]})
    everything = auth(all={"when": "*", "projects": ["*"]})
    for given, expected in ((("demo",), ("demo",)), (("other",), ()), (("demo", "other"), ("demo",))):
        rights = rights_of([issuer], identity_of(issuer, CLAIMS, given))
        assert rights is not None
        assert rights.projects == expected
    rights = rights_of([everything], identity_of(everything, CLAIMS, ("other",)))
    assert rights is not None
    assert rights.projects == ("other",)


def test_an_id_has_the_rights_of_its_rule_as_it_is_now() -> None:
    identity = identity_of(auth(staff={"when": "*", "servers": ["a"]}), CLAIMS, None)
    after = rights_of([auth(staff={"when": "*", "servers": ["b"]})], identity)
    assert after is not None
    assert after.servers == ("b",)
    assert rights_of([auth(others={"when": "*"})], identity) is None
    assert rights_of([], identity) is None
    assert rights_of([auth(staff={"when": "*", "scopes": ["read"]})], f"{identity}:write") is None


def test_the_same_person_without_its_narrower_scope() -> None:
    assert unnarrowed("@sso/a:read#staff:read@demo") == "@sso/a:read#staff@demo"
    assert unnarrowed("@sso/alice#staff") == "@sso/alice#staff"
    assert unnarrowed("@grant/1") == "@grant/1"
