"""Rights against an oracle that reads the YAML's data literally and tries everything."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from hashlib import sha256
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.catalog.effects import Effect
from pointsman.catalog.identities import Identities, Identity, rights_token
from pointsman.catalog.rights import OWNER_ID, RightsIndex
from pointsman.config.model import GatewayConfig, Token
from pointsman.core.errors import ForbiddenError, UnauthorizedError
from pointsman.core.model import Caller

IDS = st.sampled_from(["a", "b", "c"])
LISTED = st.just(["*"]) | st.lists(st.sampled_from(["a", "b", "c", "*", "", "nowhere"]), max_size=3)
TOOLS = ["read", "write", "erase", "*"]
CLAIMS: tuple[Effect, ...] = ("read", "write", "destructive")
PATTERNS = ["*", "!*", "a:*", "!a:*", "*:read", "*:*r*e", "!*:erase", "!b:w*", "b:read", "c:*", "!c:re*", "*:*"]
NAMED = [None, "", "UNASSIGNED_PROJECT_ID", "__unassigned__", "a", "b", "c", "nowhere", "*", "A"]

patterns = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3)
servers = st.fixed_dictionaries(
    {},
    optional={
        "bundled": st.just("archive"),
        "trust_annotations": st.booleans(),
        "projects": st.lists(IDS, max_size=2),
        "enabled": st.booleans(),
        "tool_permissions": st.dictionaries(st.sampled_from(TOOLS), st.booleans(), max_size=3),
    },
)
tokens = st.fixed_dictionaries(
    {},
    optional={
        "projects": LISTED,
        "servers": LISTED,
        "expires": st.sampled_from(["2020-01-01", "2030-01-01"]),
        "scopes": st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=3),
        "tools": patterns,
    },
)
projects = st.fixed_dictionaries({}, optional={"tools": patterns})
configs = st.fixed_dictionaries(
    {
        "servers": st.dictionaries(IDS, servers, min_size=1, max_size=3),
        "projects": st.dictionaries(IDS, projects, max_size=3),
        "unassigned": projects,
        "tokens": st.dictionaries(IDS, tokens, min_size=1, max_size=3),
    }
)
NOW = 1_780_000_000.0  # in 2026


@settings(max_examples=300, deadline=None)
@given(configs)
def test_rights_are_what_a_literal_reading_of_the_file_says(data: dict[str, Any]) -> None:
    rights = index_of(data)
    for name in [*data["tokens"], "stranger"]:
        for named in NAMED:
            assert ours(rights, name, named) == oracle(data, name, named), (name, named)


class Desk:
    """Signs in who brings the name of a token with `in:` before it, with the rights of that token, until its end.

    Fits `IdentitySource`.
    """

    def __init__(self, rights: dict[str, Token]) -> None:
        self.rights = rights

    def may_know(self, secret: str) -> bool:
        return secret.startswith("in:")

    async def identify(self, secret: str) -> Identity:
        identity_id = f"@desk/{secret.removeprefix('in:')}"
        rights = self.rights_of(identity_id)
        if rights is None:
            raise UnauthorizedError("unknown")
        expires = rights.expires.timestamp() if rights.expires is not None else NOW + 600
        return Identity(identity_id, rights, expires)

    def widest(self, identity_id: str) -> str:
        return identity_id

    def rights_of(self, identity_id: str) -> Token | None:
        return self.rights.get(identity_id)


def signed_in(data: dict[str, Any]) -> RightsIndex:
    """The same file, where all tokens are rights of identities instead, and each has signed in."""
    alone = index_of(data)
    desk = Desk({f"@desk/{name}": token for name, token in alone.config.tokens.items()})
    identities = Identities([desk], clock=lambda: NOW)

    async def sign_all_in() -> None:
        for name in (*data["tokens"], "stranger"):
            with suppress(UnauthorizedError):
                await identities.sign_in(f"in:{name}")

    asyncio.run(sign_all_in())
    return RightsIndex(alone.config.model_copy(update={"tokens": {}}), identities)


@settings(max_examples=80, deadline=None)
@given(configs)
def test_an_identity_has_exactly_the_rights_that_a_token_with_its_words_would_have(data: dict[str, Any]) -> None:
    rights = signed_in(data)
    for name in [*data["tokens"], "stranger"]:
        for named in NAMED:
            assert ours(rights, f"in:{name}", named) == oracle(data, name, named), (name, named)


@settings(max_examples=50, deadline=None)
@given(configs)
def test_tokens_and_identities_of_one_gateway_do_not_touch_each_other(data: dict[str, Any]) -> None:
    apart, both = index_of(data), signed_in(data)
    both = RightsIndex(apart.config, both.identities)
    for name in [*data["tokens"], "stranger"]:
        for named in NAMED[:6]:
            assert ours(both, name, named) == ours(apart, name, named)
            assert ours(both, f"in:{name}", named) == oracle(data, name, named)
        assert ours(both, f"@desk/{name}", None) == "unauthorized"  # an id is no secret


@settings(max_examples=50, deadline=None)
@given(configs)
def test_a_reason_is_given_exactly_where_an_identity_may_not_use_a_tool(data: dict[str, Any]) -> None:
    rights = signed_in(data)
    for caller in [
        Caller(f"@desk/{name}", project) for name in ("a", "stranger") for project in (None, "a", "nowhere")
    ]:
        for server_id in [*data["servers"], "nowhere"]:
            for tool, claimed in product(TOOLS, CLAIMS):
                reason = rights.why_not(caller, server_id, tool, claimed)
                assert (reason is None) == rights.may_use(caller, server_id, tool, claimed), (caller, server_id, tool)


@settings(max_examples=50, deadline=None)
@given(configs)
def test_what_a_source_takes_away_is_gone_at_once(data: dict[str, Any]) -> None:
    rights = signed_in(data)
    assert rights.identities is not None
    [desk] = rights.identities.sources
    assert isinstance(desk, Desk)
    known = {name: ours(rights, f"in:{name}", "") for name in data["tokens"]}
    desk.rights = {}
    for name in known:
        assert ours(rights, f"in:{name}", "") == "unauthorized"
        assert not rights.still_valid(Caller(f"@desk/{name}", None), NOW)


def test_the_id_of_an_identity_is_no_digest_of_a_secret() -> None:
    secret = "in:a"
    assert rights_token("@desk/a") != sha256(secret.encode()).hexdigest()


CALLERS = [
    Caller(token, project) for token in ("a", "b", "stranger", OWNER_ID) for project in (None, "a", "b", "nowhere")
]


@settings(max_examples=300, deadline=None)
@given(configs)
def test_a_reason_is_given_exactly_where_a_tool_may_not_be_used(data: dict[str, Any]) -> None:
    rights = index_of(data)
    for caller in CALLERS:
        for server_id in [*data["servers"], "nowhere"]:
            for tool, claimed in product(TOOLS, CLAIMS):
                reason = rights.why_not(caller, server_id, tool, claimed)
                assert (reason is None) == rights.may_use(caller, server_id, tool, claimed), (caller, server_id, tool)


@settings(max_examples=300, deadline=None)
@given(
    configs,
    st.sampled_from([caller for caller in CALLERS if caller.token_id != OWNER_ID]),
    st.sampled_from(TOOLS),
    st.sampled_from(CLAIMS),
)
def test_mending_one_reason_after_the_other_ends_with_the_tool(
    data: dict[str, Any], caller: Caller, tool: str, claimed: Effect
) -> None:
    """Each reason names the one thing that is wrong: once that is mended, it is not given again."""
    server_id, given_reasons = next(iter(data["servers"])), []
    while (reason := index_of(data).why_not(caller, server_id, tool, claimed)) is not None:
        assert reason not in given_reasons
        given_reasons.append(reason)
        mend(data, reason, caller, server_id, tool, claimed)
    assert index_of(data).may_use(caller, server_id, tool, claimed)


def mend(data: dict[str, Any], reason: str, caller: Caller, server_id: str, tool: str, claimed: Effect) -> None:
    server, token = data["servers"][server_id], data["tokens"].setdefault(caller.token_id, {})
    if reason == "project":
        token["projects"] = ["*"]
        if caller.project_id is not None:
            data["projects"][caller.project_id] = {}
    elif reason == "token_servers":
        token["servers"] = [server_id]
    elif reason == "server_projects":
        server["projects"] = [] if caller.project_id is None else [caller.project_id]
    elif reason == "permission":
        server["tool_permissions"] = {**server["tool_permissions"], tool: True}
    elif reason == "project_tools":
        home = data["unassigned"] if caller.project_id is None else data["projects"][caller.project_id]
        home["tools"] = [f"{server_id}:{tool}"]
    elif reason == "token_tools":
        token["tools"] = [f"{server_id}:{tool}"]
    elif reason == "scope":
        token["scopes"] = [literal_effect(server, claimed)]
    else:
        assert reason == "token"


def index_of(data: dict[str, Any]) -> RightsIndex:
    hashed = {name: {**token, "sha256": sha256(name.encode()).hexdigest()} for name, token in data["tokens"].items()}
    kinds = {
        one: server if "bundled" in server else {**server, "command": "true"} for one, server in data["servers"].items()
    }
    return RightsIndex(GatewayConfig.model_validate({**data, "servers": kinds, "tokens": hashed}))


def ours(rights: RightsIndex, secret: str, named: str | None) -> object:
    try:
        caller = rights.identify(secret, named, NOW)
    except (UnauthorizedError, ForbiddenError) as refusal:
        return refusal.code
    usable = rights.usable_servers(caller)
    permitted = {one for one in product(usable, TOOLS, CLAIMS) if rights.may_use(caller, *one)}
    check_that_all_ways_agree(rights, caller, permitted)
    return permitted, set(usable), set(rights.readable_servers(caller))


class Claiming:
    """A tool of a list, as far as rights look at it."""

    def __init__(self, name: str, claimed: Effect) -> None:
        self.name, self.claimed = name, claimed


def check_that_all_ways_agree(rights: RightsIndex, caller: Caller, permitted: set[tuple[str, str, Effect]]) -> None:
    """Lists, single calls and the servers that are asked at all are decided alike."""
    with_tools = rights.tool_servers(caller)
    assert {server_id for server_id, _, _ in permitted} <= set(with_tools) <= set(rights.usable_servers(caller))
    for server_id in rights.config.servers:
        grant, permits = rights.tool_grant(caller, server_id), rights.permits(caller, server_id)
        assert (grant is not None) == (server_id in with_tools)
        for claimed in CLAIMS:
            mine = {tool for tool in TOOLS if (server_id, tool, claimed) in permitted}
            listed = {name: Claiming(name, claimed) for name in TOOLS}
            if server_id in rights.usable_servers(caller):
                assert {one.name for one in rights.permitted(caller, server_id, listed)} == mine
                assert {name for name in TOOLS if permits(name, claimed)} == mine
            assert {name for name in TOOLS if grant is not None and grant.allows(name, claimed)} == mine


def oracle(data: dict[str, Any], secret: str, named: str | None) -> object:
    token = data["tokens"].get(secret)
    if token is None or token.get("expires") == "2020-01-01":
        return "unauthorized"
    unassigned = named in (None, "", "UNASSIGNED_PROJECT_ID", "__unassigned__")
    wanted = "" if unassigned else named
    known = {"", *data["projects"]}
    opened = known if "*" in token.get("projects", []) else known & set(token.get("projects", []))
    if wanted not in opened:
        return "denied"
    usable = set()
    for server_id, server in data["servers"].items():
        homes = set(server.get("projects", [])) or {""}
        reachable = set(data["servers"]) if "*" in token.get("servers", []) else set(token.get("servers", []))
        if wanted in homes and server_id in reachable and server.get("enabled", True):
            usable.add(server_id)
    lists = [token.get("tools"), (data["unassigned"] if unassigned else data["projects"][wanted]).get("tools")]
    scopes = token.get("scopes", ["read", "write", "destructive"])
    permitted = {
        (server_id, tool, claimed)
        for server_id, tool, claimed in product(usable, TOOLS, CLAIMS)
        if literally_permitted(data["servers"][server_id].get("tool_permissions", {}), tool)
        and all(literally_listed(patterns, f"{server_id}:{tool}") for patterns in lists)
        and literal_effect(data["servers"][server_id], claimed) in scopes
    }
    return permitted, usable, usable if "read" in scopes else set()


def literally_listed(patterns: list[str] | None, key: str) -> bool:
    """A list says of the whole key: one of the patterns fits, if any is not a `!`, and none with `!` does."""
    if patterns is None:
        return True
    if any(literally_fits(pattern[1:], key) for pattern in patterns if pattern[0] == "!"):
        return False
    wanted = [pattern for pattern in patterns if pattern[0] != "!"]
    return not wanted or any(literally_fits(pattern, key) for pattern in wanted)


def literally_fits(pattern: str, key: str) -> bool:
    server, _, tool = (pattern if ":" in pattern else "*:*").partition(":")
    return re.fullmatch(f"{server.replace('*', '[^:]*')}:{tool.replace('*', '.*')}", key) is not None


def literal_effect(server: dict[str, Any], claimed: str) -> str:
    """A claim counts where the operator says so, or, if he says nothing, for what ships with the gateway."""
    trusted = server["trust_annotations"] if "trust_annotations" in server else server.get("bundled") == "archive"
    return claimed if trusted else "destructive"


def literally_permitted(permissions: dict[str, bool], tool: str) -> bool:
    """What is named goes by its own word; what is not named, by the word for `*`; without one, it is allowed."""
    if tool in permissions:
        return permissions[tool]
    return not ("*" in permissions and not permissions["*"])
