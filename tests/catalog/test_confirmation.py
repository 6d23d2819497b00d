"""Which calls need a yes, against an oracle that reads the file's data literally; and the text of the question."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.catalog.effects import claimed_effect
from pointsman.catalog.rights import OWNER_ID, RightsIndex
from pointsman.config.errors import ConfigError
from pointsman.config.loader import advice, parse
from pointsman.config.model import GatewayConfig
from pointsman.core.errors import ServerUnavailableError
from pointsman.core.model import Caller
from pointsman.router.gateway.confirmation.question_text import MAX_CHARS, shown_arguments, whole_arguments

IDS = ("a", "b")
PATTERNS = ["a:wipe", "*:look", "b:*", "*", "*:*ip*", "a:*e", "nowhere:x"]
CONFIRM = st.sampled_from(["never", "destructive", "writes"]) | st.lists(
    st.sampled_from(PATTERNS), min_size=1, max_size=2
)
HINTS = st.none() | st.dictionaries(
    st.sampled_from(["readOnlyHint", "destructiveHint"]), st.sampled_from([True, False, "yes", None])
)
TOOLS = ("wipe", "look", "make")

parts = st.fixed_dictionaries({}, optional={"confirm": CONFIRM})
servers = st.fixed_dictionaries(
    {"command": st.just("true")},
    optional={"confirm": CONFIRM, "trust_annotations": st.booleans(), "projects": st.just(["p"])},
)
configs = st.fixed_dictionaries(
    {
        "unassigned": parts,
        "projects": st.fixed_dictionaries({"p": parts}),
        "servers": st.fixed_dictionaries({"a": servers, "b": servers}),
        "tokens": st.fixed_dictionaries({"t": parts, "u": parts}),
    }
)


@settings(max_examples=400, deadline=None)
@given(configs, HINTS)
def test_no_call_that_anything_asks_to_confirm_goes_without(data: dict[str, Any], hints: Any) -> None:
    rules = index_of(data).confirm
    tool = {} if hints is None else {"annotations": hints}
    for token in data["tokens"]:
        for project in (None, "p"):
            for server_id in IDS:
                rule = rules.of(Caller(token, project), server_id)
                for name in TOOLS:
                    key = f"{server_id}:{name}"
                    needed = rule is not None and rule.applies(name, claimed_effect(tool))
                    assert needed == oracle(data, token, project, server_id, key, hints), (token, project, key)


def oracle(data: dict[str, Any], token: str, project: str | None, server_id: str, key: str, hints: Any) -> bool:
    place = data["unassigned"] if project is None else data["projects"][project]
    server = data["servers"][server_id]
    hints = hints if server.get("trust_annotations") and hints else {}
    reads = hints.get("readOnlyHint") is True
    destroys = not reads and hints.get("destructiveHint") is not False
    for part in (place, server, data["tokens"][token]):
        confirm = part.get("confirm", "never")
        if confirm == "writes" and not reads:
            return True
        if confirm == "destructive" and destroys:
            return True
        if isinstance(confirm, list) and any(_regex(pattern).fullmatch(key) for pattern in confirm):
            return True
    return False


def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def index_of(data: dict[str, Any]) -> RightsIndex:
    tokens = {name: {**token, "sha256": sha256(name.encode()).hexdigest()} for name, token in data["tokens"].items()}
    return RightsIndex(GatewayConfig.model_validate({**data, "tokens": tokens}))


def test_by_default_no_call_needs_a_yes_and_the_owners_own_never_does() -> None:
    data: dict[str, Any] = {
        "unassigned": {},
        "projects": {},
        "servers": {"a": {"command": "true"}},
        "tokens": {"t": {}},
    }
    assert index_of(data).confirm.idle
    assert index_of(data).confirm.of(Caller("t", None), "a") is None
    data["servers"]["a"]["confirm"] = "writes"
    assert index_of(data).confirm.of(Caller("t", None), "a") is not None
    assert index_of(data).confirm.of(Caller(OWNER_ID, None), "a") is None


@pytest.mark.parametrize("caller", [Caller("gone", None), Caller("t", "gone")])
def test_a_caller_that_a_reload_removed_is_refused(caller: Caller) -> None:
    data: dict[str, Any] = {
        "unassigned": {"confirm": "writes"},
        "projects": {},
        "servers": {"a": {"command": "true"}},
        "tokens": {"t": {}},
    }
    with pytest.raises(ServerUnavailableError):
        index_of(data).confirm.of(caller, "a")
    with pytest.raises(ServerUnavailableError):
        index_of(data).confirm.of(Caller("t", None), "gone")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("off", "must be one of `never`, `destructive`, `writes`, or a list of patterns"),
        ("true", "must be one of"),
        ("destructve", "must be one of"),
        ('"files:*"', "must be a list of patterns"),
        ("[delete_file]", "needs a server and a tool"),
        ("['!*:b']", "no pattern can begin with `!`"),
        ("['fiels:*']", "no server `fiels`"),
        ("[1]", "must be one of"),
        ("[]", "is an empty list; write `never` if no call needs a yes"),
    ],
)
def test_what_cannot_be_read_is_an_error_and_never_never(written: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"unassigned:\n  confirm: {written}\n", "f.yaml", {})
    (problem,) = caught.value.problems
    assert str(problem).startswith("f.yaml:2:")
    assert "unassigned.confirm" in str(problem)
    assert said in str(problem)


def test_a_pattern_of_a_server_that_names_another_is_reported() -> None:
    config = parse("servers: {a: {command: 'true', confirm: ['b:*', '*:x']}, b: {command: 'true'}}\n", "f.yaml", {})
    assert config.servers["a"].model_dump(mode="json")["confirm"] == ["b:*", "*:x"]  # without a warning of pydantic
    (remark,) = advice(config)
    assert remark.startswith("`servers.a.confirm`: `b:*` names another server")


def test_a_name_that_is_too_long_to_compare_needs_a_yes() -> None:
    data: dict[str, Any] = {
        "unassigned": {"confirm": ["*:wipe"]},
        "projects": {},
        "servers": {"a": {"command": "true"}},
        "tokens": {"t": {}},
    }
    rule = index_of(data).confirm.of(Caller("t", None), "a")
    assert rule is not None
    assert rule.applies("x" * 513, "read")
    assert not rule.applies("x" * 512, "read")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=60,
)


@given(JSON)
def test_shown_arguments_are_bounded_and_hide_nothing(value: Any) -> None:
    shown = shown_arguments(value)
    assert len(shown) <= MAX_CHARS + 100
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]", shown)


@pytest.mark.parametrize(
    "value",
    [
        {"a": "x" * 1_000_000, "path": "/etc/passwd"},
        {"a": ["x" * 1000] * 100_000, "path": "/etc/passwd"},
        {"a": "\u202e" * 100_000, "b": "\U000e0001" * 1000, "path": "/etc/passwd"},
        {"a": 10**5000, "path": "/etc/passwd"},
        {"a": {str(number): number for number in range(100_000)}, "path": "/etc/passwd"},
    ],
)
def test_one_large_argument_does_not_hide_another(value: dict[str, Any]) -> None:
    shown = shown_arguments(value)
    assert len(shown) <= MAX_CHARS + 100
    assert '"path": "/etc/passwd"' in shown
    assert "shortened" in shown


def test_members_with_the_same_beginning_are_all_shown() -> None:
    shown = shown_arguments({"k" * 400 + "1": "first", "k" * 400 + "2": "second"})
    assert "first" in shown
    assert "second" in shown


@pytest.mark.parametrize("masked", [False, True])
def test_a_long_text_shows_its_head_and_its_tail_and_hides_no_neighbour(masked: bool) -> None:
    shown = shown_arguments({"text": "begins" + "x" * 5_000 + "ends", "path": "/etc/passwd"}, masked=masked)
    assert re.search(r'"text": "begins.*5,010 characters.*ends"', shown)
    assert '"path": "/etc/passwd"' in shown
    assert "shortened" in shown


MIDDLE = "a" * 200 + " rm -rf /home/ada " + "b" * 207  # 425 characters, of which the middle matters


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("others", [{}, {"path": "/etc/passwd", "mode": 7}])
def test_a_text_is_shown_whole_where_there_is_room(masked: bool, others: dict[str, Any]) -> None:
    shown = shown_arguments({"command": MIDDLE, **others}, masked=masked)
    assert MIDDLE in shown
    assert "shortened" not in shown


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("letter", ["x", '"', "ä", "\u202e", "\U000e0001"])
def test_long_texts_use_the_room_that_short_ones_leave(masked: bool, letter: str) -> None:
    shown = shown_arguments({"a": letter * 9_000, "path": "/etc/passwd", "b": letter * 9_000}, masked=masked)
    assert 2_600 < len(shown) < 3_200
    assert shown.count("9,000 characters") == 2


def test_the_owner_may_see_all_of_it_up_to_64_kib() -> None:
    arguments = {"lines": [f"line {number}" for number in range(2_000)], "api_key": "hunter2", "path": "/etc/passwd"}
    assert "line 1000" not in shown_arguments(arguments, masked=True)
    whole = whole_arguments(arguments)
    assert whole is not None
    assert [line for line in arguments["lines"] if f'"{line}"' not in whole] == []
    assert "hunter2" not in whole
    assert "shortened" not in whole
    assert whole_arguments({"command": MIDDLE}) is None  # the question has it all
    large = whole_arguments({"begins": "<" + "x" * 1_000_000 + ">", "path": "/etc/passwd"})
    assert large is not None
    assert re.search(r'"<x{30000,}… \(1,000,002 characters\) …x{30000,}>"', large)
    assert len(large) < 70_000
    assert "shortened: they have 1,000,0" in large


@pytest.mark.parametrize("masked", [False, True])
def test_members_that_fill_the_list_do_not_hide_a_short_one(masked: bool) -> None:
    fillers = {f"filler{number:03}": "x" * 50 for number in range(200)}
    shown = shown_arguments({**fillers, "path": "/etc/passwd"}, masked=masked)
    assert '"path": "/etc/passwd"' in shown
    assert "161 more members" in shown
    empty = {f"filler{number:03}": 0 for number in range(200)}
    named = shown_arguments({**empty, "path": "/etc/passwd" + "d" * 100}, masked=masked)
    assert re.search(r"161 more members\): path, ", named)


def test_what_the_owner_sees_is_what_the_client_sees_without_secrets() -> None:
    plain = {"text": "x" * 5_000, "list": [1, "two"] * 50, "path": "/etc/passwd"}
    assert shown_arguments(plain, masked=True) == shown_arguments(plain)
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "hunter2\n" * 400
    secret = {
        "password": "hunter2",
        "a": f"{'x' * 5_000} password=hunter2",
        "b": key,
        "c": "eyJ" + "hunter2" * 2 + "." + "hunter2" * 500,
        "d": [{"api_key": "hunter2"}, "Bearer hunter2hunter2"],
        "e": "password=" + "hunter2" * 100,
        "password=hunter2": 1,
        "path": "/etc/passwd",
    }
    shown = shown_arguments(secret, masked=True)
    assert "hunter2" not in shown
    assert '"path": "/etc/passwd"' in shown
