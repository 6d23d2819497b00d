"""Every rule of "Who may use what", one row each."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from hashlib import sha256
from typing import Any

import pytest

from pointsman.catalog.rights import MAX_JUDGED, OWNER_ID, RightsIndex, identify
from pointsman.config.model import GatewayConfig
from pointsman.core.errors import ForbiddenError, UnauthorizedError
from pointsman.core.model import Caller

NOW = datetime(2026, 6, 15, 12, 0, tzinfo=UTC).timestamp()
COMMAND = "pointsman token create NAME --project P --server S"


def token(name: str, **rights: Any) -> dict[str, Any]:
    return {"sha256": sha256(f"secret of {name}".encode()).hexdigest(), **rights}


CONFIG = GatewayConfig.model_validate(
    {
        "servers": {
            "free": {"command": "true"},
            "clock": {"command": "true", "projects": ["research"], "tool_permissions": {"erase": False, "read": True}},
            "shared": {"command": "true", "projects": ["research", "sales"]},
            "off": {"command": "true", "projects": ["research"], "enabled": False},
        },
        "projects": {"research": {}, "sales": {"optimization": "cloud"}, "quiet": {"optimization": None}},
        "unassigned": {"optimization": None},
        "tokens": {
            "all": token("all", projects=["*"], servers=["*"]),
            "research": token("research", projects=["research"], servers=["*"]),
            "none-named": token("none-named", projects=[""], servers=["*"]),
            "one-server": token("one-server", projects=["*"], servers=["shared"]),
            "ghost": token("ghost", projects=["gone"], servers=["*", "unheard-of"]),
            "no-projects": token("no-projects", servers=["*"]),
            "no-servers": token("no-servers", projects=["*"]),
        },
    }
)
RIGHTS = RightsIndex(CONFIG)


@pytest.mark.parametrize(
    ("name", "project", "allowed"),
    [
        ("all", None, True),
        ("all", "research", True),
        ("all", "sales", True),
        ("all", "unheard-of", False),
        ("all", "*", False),
        ("all", "Research", False),
        ("all", " research", False),
        ("research", "research", True),
        ("research", "sales", False),
        ("research", None, False),
        ("research", "", False),
        ("none-named", None, True),
        ("none-named", "", True),
        ("none-named", "UNASSIGNED_PROJECT_ID", True),
        ("none-named", "__unassigned__", True),
        ("none-named", "research", False),
        ("ghost", "gone", False),
        ("ghost", None, False),
        ("no-projects", None, False),
        ("no-projects", "research", False),
        ("no-servers", "research", True),
    ],
)
def test_a_token_opens_only_the_projects_that_it_lists(name: str, project: str | None, allowed: bool) -> None:
    if allowed:
        caller = RIGHTS.identify(f"secret of {name}", project, NOW)
        assert caller.token_id == name
        assert RIGHTS.still_valid(caller, NOW)
        return
    with pytest.raises(ForbiddenError) as refusal:
        RIGHTS.identify(f"secret of {name}", project, NOW)
    assert COMMAND in str(refusal.value)
    assert not RIGHTS.still_valid(Caller(name, project or None), NOW)


def test_a_token_with_one_project_need_not_name_it() -> None:
    assert RIGHTS.identify("secret of research", None, NOW, sole_project=True) == Caller("research", "research")
    for name, project in (("research", "sales"), ("research", ""), ("ghost", None), ("no-projects", None)):
        with pytest.raises(ForbiddenError):
            RIGHTS.identify(f"secret of {name}", project, NOW, sole_project=True)
    assert RIGHTS.identify("secret of all", None, NOW, sole_project=True) == Caller("all", None)


@pytest.mark.parametrize("word", [None, "", "UNASSIGNED_PROJECT_ID", "__unassigned__"])
def test_all_words_for_no_project_mean_none(word: str | None) -> None:
    assert RIGHTS.identify("secret of all", word, NOW) == Caller("all", None)


@pytest.mark.parametrize("secret", [None, "", "secret of nobody", "Secret of all", "secret of all ", "\ud800", "é" * 9])
def test_without_a_known_token_nobody_comes_in(secret: str | None) -> None:
    with pytest.raises(UnauthorizedError) as refusal:
        RIGHTS.identify(secret, "research", NOW)
    assert COMMAND in str(refusal.value)
    assert not secret or secret not in str(refusal.value)


def test_the_hash_itself_is_no_token() -> None:
    with pytest.raises(UnauthorizedError):
        RIGHTS.identify(CONFIG.tokens["all"].sha256, None, NOW)


def test_a_missing_project_and_a_foreign_one_cannot_be_told_apart() -> None:
    def refusal(project: str) -> str:
        with pytest.raises(ForbiddenError) as denied:
            RIGHTS.identify("secret of research", project, NOW)
        return str(denied.value).replace(project, "PROJECT")

    assert refusal("sales") == refusal("unheard-of")


def test_a_project_that_is_no_name_is_not_repeated() -> None:
    with pytest.raises(ForbiddenError) as refusal:
        RIGHTS.identify("secret of all", "x" * 100_000, NOW)
    assert len(str(refusal.value)) < 400
    with pytest.raises(ForbiddenError) as refusal:
        RIGHTS.identify("secret of all", "a\r\nforged: line", NOW)
    assert "forged" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "project", "servers"),
    [
        ("all", None, ("free",)),
        ("all", "research", ("clock", "shared")),
        ("all", "sales", ("shared",)),
        ("all", "quiet", ()),
        ("all", "unheard-of", ()),
        ("research", "research", ("clock", "shared")),
        ("research", "sales", ()),
        ("research", None, ()),
        ("none-named", None, ("free",)),
        ("one-server", "research", ("shared",)),
        ("one-server", None, ()),
        ("ghost", None, ()),
        ("no-projects", None, ()),
        ("no-servers", "research", ()),
        ("unheard-of", None, ()),
    ],
)
def test_a_server_must_belong_to_the_project_and_be_listed_by_the_token(
    name: str, project: str | None, servers: tuple[str, ...]
) -> None:
    caller = Caller(name, project)
    assert RIGHTS.usable_servers(caller) == servers
    assert RIGHTS.usable_servers(caller) == servers  # and again, from what is kept
    for server_id in ("free", "clock", "shared", "unheard-of"):
        assert RIGHTS.may_use(caller, server_id, "anything", "destructive") == (server_id in servers)


@pytest.mark.parametrize(
    ("tool_name", "allowed"), [("erase", False), ("read", True), ("not-named", True), ("Erase", True), ("erase ", True)]
)
def test_tool_permissions_forbid_by_name(tool_name: str, allowed: bool) -> None:
    """A respelt name passes here, and is then not in the server's list."""
    assert RIGHTS.may_use(Caller("all", "research"), "clock", tool_name, "destructive") == allowed


@pytest.mark.parametrize(
    ("permissions", "allowed"),
    [
        ({"*": False, "read": True, "erase": False}, {"read"}),
        ({"*": True, "erase": False}, {"read", "added-later", "*"}),
        ({"*": False}, set()),
        ({"erase": False}, {"read", "added-later", "*"}),
    ],
)
def test_a_star_decides_over_tools_that_are_not_named(permissions: dict[str, bool], allowed: set[str]) -> None:
    data = {
        "servers": {"one": {"command": "true", "tool_permissions": permissions}},
        "tokens": {"all": token("all", projects=["*"], servers=["*"])},
    }
    rights = RightsIndex(GatewayConfig.model_validate(data))
    permits = rights.permits(Caller("all", None), "one")
    assert {name for name in ("read", "erase", "added-later", "*") if permits(name, "destructive")} == allowed


def test_a_server_that_is_switched_off_is_granted_but_not_usable() -> None:
    caller = Caller("all", "research")
    assert "off" not in RIGHTS.usable_servers(caller)
    assert RIGHTS.may_use_server(caller, "off")


@pytest.mark.parametrize(
    ("project", "strategy"), [(None, None), ("research", "bm25"), ("sales", "cloud"), ("quiet", None), ("gone", None)]
)
def test_the_project_says_how_to_search(project: str | None, strategy: str | None) -> None:
    assert RIGHTS.strategy(Caller("all", project)) == strategy


EAST = timezone(timedelta(hours=5))


@pytest.mark.parametrize(
    ("expires", "last_good"),
    [
        (date(2026, 6, 15), datetime(2026, 6, 16, tzinfo=UTC)),  # the whole day, in UTC
        (datetime(2026, 6, 15, 12), datetime(2026, 6, 15, 12, tzinfo=UTC)),  # noqa: DTZ001 - what the YAML may hold
        (datetime(2026, 6, 15, 12, tzinfo=EAST), datetime(2026, 6, 15, 7, tzinfo=UTC)),
    ],
)
def test_a_token_ends_at_its_time_with_a_minute_of_leeway(expires: date, last_good: datetime) -> None:
    config = GatewayConfig.model_validate({"tokens": {"old": token("old", projects=["*"], expires=expires)}})
    end = last_good.timestamp() + 60
    caller = identify(config, "secret of old", None, end - 1)
    assert RightsIndex(config).still_valid(caller, end - 1)
    assert not RightsIndex(config).still_valid(caller, end)
    with pytest.raises(UnauthorizedError, match="expired") as refusal:
        identify(config, "secret of old", None, end)
    assert COMMAND in str(refusal.value)


@pytest.mark.parametrize("expires", [None, date.max, datetime.max.replace(tzinfo=UTC)])
def test_a_token_may_hold_for_ever(expires: date | None) -> None:
    config = GatewayConfig.model_validate({"tokens": {"old": token("old", projects=["*"], expires=expires)}})
    assert identify(config, "secret of old", None, NOW + 1e10) == Caller("old", None)


def test_a_revoked_token_is_over_in_open_sessions_too() -> None:
    caller = RIGHTS.identify("secret of all", "research", NOW)
    without = CONFIG.model_copy(update={"tokens": {"research": CONFIG.tokens["research"]}})
    after = RightsIndex(without)
    assert not after.still_valid(caller, NOW)
    assert after.usable_servers(caller) == ()
    assert not after.may_use(caller, "clock", "read", "read")


def test_a_removed_project_is_over_in_open_sessions_too() -> None:
    caller = RIGHTS.identify("secret of all", "research", NOW)
    after = RightsIndex(CONFIG.model_copy(update={"projects": {}}))
    assert not after.still_valid(caller, NOW)
    assert after.usable_servers(caller) == ()


def test_the_owner_may_use_every_server_and_no_tool_that_is_switched_off() -> None:
    rights, owner = RightsIndex(CONFIG), Caller(OWNER_ID, None)
    assert rights.still_valid(owner, NOW)
    assert set(rights.servers_of(owner)) == set(CONFIG.servers)
    assert "off" not in rights.usable_servers(owner)
    assert not rights.may_use(owner, "clock", "erase", "read")
    assert rights.strategy(owner) == "bm25"  # whatever callers without a project have
    assert set(rights.usable_servers(Caller(OWNER_ID, "sales"))) == {"shared"}
    assert not rights.still_valid(Caller(OWNER_ID, "gone"), NOW)


def test_no_request_can_be_the_owners() -> None:
    with pytest.raises(ValueError, match="tokens"):
        GatewayConfig.model_validate({"tokens": {OWNER_ID: token("owner", projects=["*"], servers=["*"])}})
    for secret in (OWNER_ID, "0" * 64, ""):
        with pytest.raises(UnauthorizedError):
            identify(CONFIG, secret, None, NOW)


def test_what_is_remembered_of_a_server_that_lists_new_names_without_end_is_bounded() -> None:
    limited = CONFIG.model_copy(
        update={"tokens": {"all": CONFIG.tokens["all"].model_copy(update={"tools": ("!*:x",)})}}
    )
    grant = RightsIndex(limited).tool_grant(Caller("all", None), "free")
    assert grant is not None
    assert all(grant.allows(f"tool{number}", "read") for number in range(MAX_JUDGED + 10))
    assert not grant.allows("x", "read")
    assert len(grant._judged) <= MAX_JUDGED
