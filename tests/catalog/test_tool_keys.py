"""Keys in other forms: one meaning or none, only among what the caller may use, and the nearest keys."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.catalog.effects import Effect
from pointsman.catalog.tool_keys import MAX_KEY_CHARS, NEAREST, KeyIndex, ServerNames, read_key
from pointsman.core.errors import UnknownToolError
from pointsman.core.model import Caller, ToolKey
from tests.catalog.sources import SmallServer, catalog_of, config_of, tool

ME = Caller("laptop", None)
PARTS = ["a", "b", "a_b", "a__b", "a.b", "mcp", "mcp__a", "pointsman", "x"]
SEPARATORS = ["", ":", "__", "_", ".", "/"]


def all_of(*names: str) -> ServerNames:
    return ServerNames(dict.fromkeys(names), lambda name: True)


def all_but(forbidden: frozenset[str]) -> Callable[[str], bool]:
    return lambda name: name not in forbidden


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("git__open_issue", "qualified_name"),
        ("git.open_issue", "qualified_name"),
        ("git/open_issue", "qualified_name"),
        ("git_open_issue", "qualified_name"),
        ("mcp__git__open_issue", "qualified_name"),
        ("mcp__pointsman__git:open_issue", "qualified_name"),
        ("mcp__pointsman__git__open_issue", "qualified_name"),
        ("mcp__my-gateway__git:open_issue", "qualified_name"),
        ("pointsman:git:open_issue", "qualified_name"),
        ("open_issue", "bare_name"),
        ("mcp__pointsman__open_issue", "bare_name"),
    ],
)
def test_a_key_in_another_form_means_the_tool(text: str, form: str) -> None:
    servers = {"git": all_of("open_issue", "close_issue"), "hub": all_of("search")}
    assert read_key(text, servers) == (ToolKey("git", "open_issue"), form)


@pytest.mark.parametrize(
    "text",
    [
        *("issue", "Open_issue", "git:", "git", "", "__", "mcp__", "other__open_issue", "other:open_issue"),
        "mcp__other__open_issue",  # the tool of a server that is not here must not become another server's
        "mcp__other__git__open_issue",
        "git__open_issue" + "_" * MAX_KEY_CHARS,
    ],
)
def test_what_names_another_server_or_tool_means_nothing(text: str) -> None:
    assert read_key(text, {"git": all_of("open_issue")}) is None


def test_two_meanings_are_named_and_none_is_chosen() -> None:
    servers = {"git": all_of("open"), "hub": all_of("open", "git_open")}
    for text, meanings in {"open": ("git:open", "hub:open"), "git_open": ("git:open", "hub:git_open")}.items():
        with pytest.raises(UnknownToolError) as error:
            read_key(text, servers)
        assert all(f"`{key}`" in str(error.value) for key in meanings)
        assert "full key" in str(error.value)


def test_a_bare_name_waits_for_the_list_of_every_server_that_may_have_it() -> None:
    unlisted = ServerNames(None, lambda name: name == "open")
    servers = {"git": all_of("open", "close", "slow__open"), "slow": unlisted}
    for name in ("open", "close"):  # `close` is forbidden at the other one, which nothing shows
        with pytest.raises(UnknownToolError, match=rf"`git:{name}` or a tool of `slow`"):
            read_key(name, servers)
    assert read_key("git__open", servers) == (ToolKey("git", "open"), "qualified_name")
    for name in ("open", "close"):
        assert read_key(f"slow__{name}", servers) == (ToolKey("slow", name), "qualified_name")


def test_a_server_that_never_gave_a_list_and_is_not_expected_to_keeps_no_bare_name() -> None:
    servers = {"git": all_of("open"), "quits": ServerNames(None, lambda name: True, expected=False)}
    assert read_key("open", servers) == (ToolKey("git", "open"), "bare_name")
    assert read_key("quits__open", servers) == (ToolKey("quits", "open"), "qualified_name")


@pytest.mark.parametrize("text", ["mail:send", "mail__send", "mail.send", "mail/send", "mcp__mail__send", "a:b", "a.b"])
@pytest.mark.parametrize("prefix", ["", "mcp__", "mcp__pointsman__", "mcp__other__", "pointsman:"])
def test_what_names_a_server_is_never_read_as_a_tool_of_another_one(text: str, prefix: str) -> None:
    """Whether there is a server `mail` that the caller may not use, or none: nothing shows it."""
    names = ("mail:send", "mail__send", "mail.send", "mail/send", "mcp__mail__send", "a:b", "a.b", "send", "b")
    evil = all_of(*names, *(f"{one}{name}" for one in ("mcp__", "mcp__pointsman__", "pointsman:") for name in names))
    assert read_key(prefix + text, {"evil": evil}) is None
    assert read_key(f"evil:{text}", {"evil": evil}) == (ToolKey("evil", text), "qualified_name")


def test_a_longer_id_is_never_read_as_a_shorter_one() -> None:
    servers = {"mail": all_of("x:y", "corp:send", "send", "_x"), "corp": all_of("send")}
    for text in ("mail_corp:send", "pointsman_corp:send", "mcp__gateway___corp:send", "mail_x:y"):
        assert read_key(text, servers) is None, text


names = st.builds("".join, st.lists(st.sampled_from([*PARTS, *SEPARATORS]), min_size=1, max_size=4)).filter(bool)
servers_of_names = st.dictionaries(
    st.sampled_from(PARTS), st.tuples(st.frozensets(names, max_size=4), st.frozensets(names, max_size=4)), max_size=4
)


@pytest.mark.no_cover
@settings(max_examples=500, deadline=None)
@given(servers_of_names, names, st.sampled_from(["", "mcp__", "mcp__pointsman__", "pointsman:"]))
def test_a_reading_never_reaches_a_forbidden_tool_and_never_leads_two_ways(
    lists: dict[str, tuple[frozenset[str], frozenset[str]]], name: str, prefix: str
) -> None:
    def outcome(servers: dict[str, ServerNames]) -> tuple[ToolKey, str] | str | None:
        try:
            return read_key(prefix + name, servers)
        except UnknownToolError as error:
            return str(error)

    with_hidden = {
        server_id: ServerNames(dict.fromkeys(sorted(listed | forbidden)), all_but(forbidden))
        for server_id, (listed, forbidden) in lists.items()
    }
    without = {server_id: all_of(*sorted(listed - forbidden)) for server_id, (listed, forbidden) in lists.items()}
    read = outcome(with_hidden)
    assert read == outcome(without)  # what is forbidden changes nothing
    assert read == outcome(dict(reversed(with_hidden.items()))) or isinstance(read, str)  # nor does the order
    if isinstance(read, tuple):
        key, form = read
        listed, forbidden = lists[key.server_id]
        assert key.tool_name in listed - forbidden
        assert (prefix + name).endswith(key.tool_name)
        # As soon as any other server has what it may mean, the call is refused, and never goes there.
        for other in lists.keys() - {key.server_id}:
            if form == "bare_name":
                rival = {**with_hidden, other: all_of(key.tool_name)}
                assert isinstance(outcome(rival), str)


async def test_the_tools_of_a_server_that_is_down_are_counted_and_forbidden_ones_are_not() -> None:
    config = config_of({"git": {}, "hub": {"tool_permissions": {"close": False}}, "foreign": {"projects": ["other"]}})
    git, hub = SmallServer("git", tool("open"), tool("close")), SmallServer("hub", tool("open"), tool("close"))
    catalog = catalog_of(git, hub, SmallServer("foreign", tool("close")), config=config)
    await catalog.available(ME)
    for state in ("running", "starting", "failed", "stopped"):
        hub.be(state, "away")
        with pytest.raises(UnknownToolError, match=r"`git:open`, `hub:open`"):
            await catalog.read_key(ME, "open")
        assert await catalog.read_key(ME, "close") == (ToolKey("git", "close"), "bare_name")
    catalog.reconfigure(config_of({"git": {}, "hub": {"enabled": False}}))
    assert await catalog.read_key(ME, "open") == (ToolKey("git", "open"), "bare_name")
    assert catalog.nearest_keys(ME, "hub:open") == ["git:open"]


class LastRun:
    """Fits `NameMemory`: the names of the last run."""

    def tool_names(self, server_id: str) -> tuple[str, ...]:
        return ("fetch", "weather") if server_id == "late" else ()

    def app_tool_names(self, server_id: str) -> tuple[str, ...]:
        return ()

    def claims(self, server_id: str) -> dict[str, Effect]:
        return {}

    def note_tool_names(self, server_id: str, names: object, for_apps: object, claims: object) -> None:
        return


async def test_the_names_of_the_last_run_count_for_a_server_that_has_not_started_since() -> None:
    git, late = SmallServer("git", tool("open"), tool("fetch")), SmallServer("late")
    late.be("failed", "away")
    catalog = catalog_of(git, late, names=LastRun())
    assert await catalog.read_key(ME, "late__fetch") == (ToolKey("late", "fetch"), "qualified_name")
    assert await catalog.read_key(ME, "weather") == (ToolKey("late", "weather"), "bare_name")
    assert await catalog.read_key(ME, "open") == (ToolKey("git", "open"), "bare_name")
    with pytest.raises(UnknownToolError, match=r"`git:fetch`, `late:fetch`"):
        await catalog.read_key(ME, "fetch")


async def test_a_bare_name_works_before_any_discovery() -> None:
    catalog = catalog_of(SmallServer("git", tool("open")), SmallServer("hub", tool("search")))
    assert await catalog.read_key(ME, "open") == (ToolKey("git", "open"), "bare_name")


def test_the_nearest_keys_are_those_written_alike() -> None:
    servers = {"git": all_of("create_issue", "close_issue", "fork"), "weather": all_of("forecast")}
    index = KeyIndex()
    assert index.nearest("githb:creat_isue", servers)[0] == "git:create_issue"
    assert index.nearest("wether:forcast", servers) == ["weather:forecast"]
    assert index.nearest("createIssue", servers)[0] == "git:create_issue"
    assert index.nearest("zzz", servers) == []
    assert index.nearest("", servers) == []
    changed = {**servers, "weather": all_of("history")}
    assert index.nearest("weather:forecast", changed)[0] == "weather:history"


def test_the_nearest_keys_never_name_a_forbidden_tool() -> None:
    servers = {"git": ServerNames({"erase": 1, "erase_all": 1}, lambda name: name != "erase")}
    index = KeyIndex()
    assert index.nearest("git:erase", servers) == ["git:erase_all"]
    assert index.nearest("git:erase", {"git": ServerNames(servers["git"].names, lambda name: False)}) == []
    assert index.nearest("git:erase", {}) == []


def test_ten_thousand_tools_and_hostile_texts_are_read_in_bounded_time() -> None:
    """The bound guards against work that grows with the square of anything: that would take minutes."""
    servers = {f"server{n}": all_of(*(f"tool_{at}_{'a' * 150}" for at in range(50))) for n in range(200)}
    index = KeyIndex()
    started = time.process_time()
    for text in (
        "server7__tool_7",
        "_" * 500,
        "a" * 1_000_000,
        "mcp__" * 100,
        "server1" * 70,
        ".:" * 250,
        "\ud800" * 60,
    ):
        assert read_key(text, servers) is None
        assert len(index.nearest(text, servers)) <= NEAREST
    assert time.process_time() - started < 20
