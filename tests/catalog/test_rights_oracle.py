"""Rights against an oracle that reads the YAML's data literally and tries everything."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.catalog.rights import OWNER_ID, RightsIndex
from pointsman.config.model import GatewayConfig
from pointsman.core.errors import ForbiddenError, UnauthorizedError
from pointsman.core.model import Caller

IDS = st.sampled_from(["a", "b", "c"])
LISTED = st.just(["*"]) | st.lists(st.sampled_from(["a", "b", "c", "*", "", "nowhere"]), max_size=3)
TOOLS = ["read", "write", "erase", "*"]
NAMED = [None, "", "UNASSIGNED_PROJECT_ID", "__unassigned__", "a", "b", "c", "nowhere", "*", "A"]

servers = st.fixed_dictionaries(
    {"command": st.just("true")},
    optional={
        "projects": st.lists(IDS, max_size=2),
        "enabled": st.booleans(),
        "tool_permissions": st.dictionaries(st.sampled_from(TOOLS), st.booleans(), max_size=3),
    },
)
tokens = st.fixed_dictionaries(
    {}, optional={"projects": LISTED, "servers": LISTED, "expires": st.sampled_from(["2020-01-01", "2030-01-01"])}
)
configs = st.fixed_dictionaries(
    {
        "servers": st.dictionaries(IDS, servers, min_size=1, max_size=3),
        "projects": st.dictionaries(IDS, st.just({}), max_size=3),
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


CALLERS = [
    Caller(token, project) for token in ("a", "b", "stranger", OWNER_ID) for project in (None, "a", "b", "nowhere")
]


@settings(max_examples=300, deadline=None)
@given(configs)
def test_a_reason_is_given_exactly_where_a_tool_may_not_be_used(data: dict[str, Any]) -> None:
    rights = index_of(data)
    for caller in CALLERS:
        for server_id in [*data["servers"], "nowhere"]:
            for tool in TOOLS:
                reason = rights.why_not(caller, server_id, tool)
                assert (reason is None) == rights.may_use(caller, server_id, tool), (caller, server_id, tool)


@settings(max_examples=300, deadline=None)
@given(configs, st.sampled_from([caller for caller in CALLERS if caller.token_id != OWNER_ID]), st.sampled_from(TOOLS))
def test_mending_one_reason_after_the_other_ends_with_the_tool(data: dict[str, Any], caller: Caller, tool: str) -> None:
    """Each reason names the one thing that is wrong: once that is mended, it is not given again."""
    server_id, given_reasons = next(iter(data["servers"])), []
    while (reason := index_of(data).why_not(caller, server_id, tool)) is not None:
        assert reason not in given_reasons
        given_reasons.append(reason)
        mend(data, reason, caller, server_id, tool)
    assert index_of(data).may_use(caller, server_id, tool)


def mend(data: dict[str, Any], reason: str, caller: Caller, server_id: str, tool: str) -> None:
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
    else:
        assert reason == "token"


def index_of(data: dict[str, Any]) -> RightsIndex:
    hashed = {name: {**token, "sha256": sha256(name.encode()).hexdigest()} for name, token in data["tokens"].items()}
    return RightsIndex(GatewayConfig.model_validate({**data, "tokens": hashed}))


def ours(rights: RightsIndex, secret: str, named: str | None) -> object:
    try:
        caller = rights.identify(secret, named, NOW)
    except (UnauthorizedError, ForbiddenError) as refusal:
        return refusal.code
    usable = rights.usable_servers(caller)
    return {
        (server_id, tool) for server_id in usable for tool in TOOLS if rights.may_use(caller, server_id, tool)
    }, set(usable)


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
    permitted = {
        (server_id, tool)
        for server_id in usable
        for tool in TOOLS
        if literally_permitted(data["servers"][server_id].get("tool_permissions", {}), tool)
    }
    return permitted, usable


def literally_permitted(permissions: dict[str, bool], tool: str) -> bool:
    """What is named goes by its own word; what is not named, by the word for `*`; without one, it is allowed."""
    if tool in permissions:
        return permissions[tool]
    return not ("*" in permissions and not permissions["*"])
