"""Which tool a key means, and what is said where it means none."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from pointsman.catalog.effects import Effect
from pointsman.catalog.lists.cached_list import ListWaits
from pointsman.catalog.service import ToolCatalogService
from pointsman.core.errors import GatewayError, InvalidArgumentsError, ServerUnavailableError, UnknownToolError
from pointsman.core.model import Caller, ServerState, ToolKey
from tests.catalog.sources import Clock, SmallServer, catalog_of, config_of, tool

ME = Caller("laptop", None)
NEVER = ListWaits(first_s=3600, longest_s=3600)
CONFIG = config_of(
    {
        "clock": {"tool_permissions": {"erase": False}},
        "foreign": {"projects": ["other"]},
        "off": {"enabled": False, "tool_permissions": {"erase": False}},
    },
    projects={"other": {}},
)


def servers() -> dict[str, SmallServer]:
    return {name: SmallServer(name, tool("read"), tool("erase"), tool("a:b")) for name in ("clock", "foreign", "off")}


async def refusal(catalog: ToolCatalogService, key: str, caller: Caller = ME) -> GatewayError:
    with pytest.raises(GatewayError) as error:
        await catalog.resolve(caller, key)
    return error.value


async def test_a_key_leads_to_its_tool() -> None:
    known = await catalog_of(*servers().values(), config=CONFIG).resolve(ME, "clock:read")
    assert (known.server_id, known.tool_name) == ("clock", "read")
    assert known.tool == tool("read")


async def test_a_tool_name_may_hold_a_colon() -> None:
    assert (await catalog_of(*servers().values(), config=CONFIG).resolve(ME, "clock:a:b")).tool_name == "a:b"


@pytest.mark.parametrize(
    "key",
    [
        "clock:nothing",  # not in the list
        "clock:erase",  # tool_permissions
        "foreign:read",  # another project's server
        "nowhere:read",  # no such server
        *("clock:Read", "Clock:read", "clock:read ", " clock:read", "clock: read", "clock:read\0", "clock\uff1aread"),
        *("clock:clock:read", "clock/read", "clock", ":", "clock:", ":read", "", "read", "clock::read"),
    ],
)
@pytest.mark.parametrize("list_known", [True, False])
async def test_what_may_not_be_used_looks_like_what_does_not_exist(key: str, list_known: bool) -> None:
    catalog = catalog_of(*servers().values(), config=CONFIG)
    if list_known:
        await catalog.available(ME)
    error = await refusal(catalog, key)
    assert error.code == "unknown_tool"
    assert str(error) == str(UnknownToolError(key))


@pytest.mark.parametrize("state", ["starting", "failed", "stopped"])
async def test_a_server_that_is_not_running_is_named_for_the_tools_of_its_last_list(state: ServerState) -> None:
    behind = servers()
    catalog = catalog_of(*behind.values(), config=CONFIG)
    await catalog.available(ME)
    behind["clock"].be(state, "the reason")
    error = await refusal(catalog, "clock:read")
    assert isinstance(error, ServerUnavailableError)
    assert "`clock`" in str(error)
    assert "the reason" in str(error)
    for key in ("clock:erase", "clock:nothing"):  # forbidden, and missing
        assert str(await refusal(catalog, key)) == str(UnknownToolError(key))


class LastRun:
    """Fits `NameMemory`: the names of the last run."""

    def tool_names(self, server_id: str) -> tuple[str, ...]:
        return ("erase", "read") if server_id == "clock" else ()

    def app_tool_names(self, server_id: str) -> tuple[str, ...]:
        return ()

    def claims(self, server_id: str) -> dict[str, Effect]:
        return {}

    def note_tool_names(self, server_id: str, names: object, for_apps: object, claims: object) -> None:
        return


@pytest.mark.parametrize("state", ["starting", "failed"])
async def test_of_a_server_that_never_gave_a_list_all_tools_are_unavailable(state: ServerState) -> None:
    behind = servers()
    behind["clock"].be(state, "the reason")
    catalog = catalog_of(*behind.values(), config=CONFIG)
    keys = ("clock:read", "clock:erase", "clock:nothing")
    said = {str(await refusal(catalog, key)) for key in keys}
    assert len(said) == 1
    assert "the reason" in said.pop()
    known = catalog_of(*behind.values(), config=CONFIG, names=LastRun())  # unless they are known from the last run
    assert [(await refusal(known, key)).code for key in keys] == ["server_unavailable", "unknown_tool", "unknown_tool"]


async def test_the_list_of_a_server_whose_configuration_has_changed_counts_no_more() -> None:
    behind = servers()
    catalog = catalog_of(*behind.values(), config=CONFIG)
    await catalog.available(ME)
    assert catalog.was_listed(ToolKey("clock", "read"))
    behind["clock"].be("starting", "the reason")
    behind["clock"].changed_generation = behind["clock"].generation + 1
    assert not catalog.was_listed(ToolKey("clock", "read"))
    assert (await refusal(catalog, "clock:nothing")).code == "server_unavailable"


@pytest.mark.parametrize("ttl_ms", [None, 0])
async def test_a_forbidden_tool_takes_the_path_of_a_missing_one(ttl_ms: int | None) -> None:
    asked = []
    for key in ("clock:erase", "clock:nothing"):
        behind = servers()
        behind["clock"].ttl_ms = ttl_ms
        catalog = catalog_of(*behind.values(), config=CONFIG)
        await catalog.resolve(ME, "clock:read")
        for _ in range(3):
            await refusal(catalog, key)
        asked.append(behind["clock"].asked)
    assert asked[0] == asked[1]


@pytest.mark.parametrize("key", ["foreign:read", "nowhere:read"])
async def test_where_rights_say_no_a_server_that_is_down_is_not_given_away(key: str) -> None:
    behind = servers()
    for server in behind.values():
        server.be("failed", "the reason")
    error = await refusal(catalog_of(*behind.values(), config=CONFIG), key)
    assert str(error) == str(UnknownToolError(key))


@pytest.mark.parametrize("there", [True, False])
async def test_a_server_that_is_switched_off_does_not_exist(there: bool) -> None:
    behind = [servers()["off"]] if there else []
    catalog = catalog_of(*behind, config=CONFIG)
    for key in ("off:read", "off:erase", "nowhere:read"):
        assert str(await refusal(catalog, key)) == str(UnknownToolError(key))


async def test_a_known_list_is_answered_without_waiting() -> None:
    catalog = catalog_of(*servers().values(), config=CONFIG)
    assert catalog.resolve_known(ME, "clock:read") is None
    known = await catalog.resolve(ME, "clock:read")
    assert catalog.resolve_known(ME, "clock:read") is known
    with pytest.raises(UnknownToolError):
        catalog.resolve_known(ME, "clock:nothing")


async def test_forbidden_and_missing_tools_cost_the_same_question() -> None:
    behind = servers()
    catalog = catalog_of(*behind.values(), config=CONFIG)
    assert catalog.resolve_known(ME, "clock:erase") is None
    await refusal(catalog, "clock:erase")
    assert behind["clock"].asked == 1


async def test_after_a_restart_with_other_tools_the_old_names_are_refused() -> None:
    behind = servers()
    catalog = catalog_of(*behind.values(), config=CONFIG)
    await catalog.resolve(ME, "clock:read")
    behind["clock"].change(tool("write"))
    assert (await refusal(catalog, "clock:read")).code == "unknown_tool"
    assert (await catalog.resolve(ME, "clock:write")).tool_name == "write"


async def restarting() -> tuple[ToolCatalogService, SmallServer, asyncio.Event]:
    """A catalog whose server `clock` has given its list and is restarting."""
    behind = servers()
    catalog, server, back = catalog_of(*behind.values(), config=CONFIG), behind["clock"], asyncio.Event()
    await catalog.available(ME)
    server.back = back
    server.be("failed", "the reason")
    return catalog, server, back


async def test_a_call_waits_for_a_restarting_server_and_finds_the_same_tool() -> None:
    catalog, server, back = await restarting()
    asking = asyncio.create_task(catalog.resolve(ME, "clock:read"))
    await asyncio.sleep(0.01)
    assert not asking.done()
    server.be("running")
    back.set()
    assert (await asking).tool_name == "read"


async def test_a_call_waits_on_for_a_server_that_goes_away_again_at_once() -> None:
    catalog, server, back = await restarting()
    asking = asyncio.create_task(catalog.resolve(ME, "clock:read"))
    await asyncio.sleep(0.01)
    again = server.back = asyncio.Event()
    back.set()  # it ran for less than a round of the event loop
    await asyncio.sleep(0.01)
    assert not asking.done()
    server.be("running")
    again.set()
    assert (await asking).tool_name == "read"


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ([tool("read", "Now something else")], "its definition of this tool has changed"),
        ([tool("write")], "it no longer has this tool"),
    ],
)
async def test_a_tool_that_a_restart_changed_is_not_called(after: list[dict[str, Any]], reason: str) -> None:
    catalog, server, back = await restarting()
    asking = asyncio.create_task(refusal(catalog, "clock:read"))
    await asyncio.sleep(0)
    server.tools = after
    server.be("running")
    back.set()
    error = await asking
    assert error.code == "server_unavailable"
    assert reason in str(error)
    assert "Call tool_discovery" in error.text("search")
    assert "Call `tools/list`" in error.text("flat")
    assert "Ask the operator" in error.text("keys")


async def test_a_forbidden_tool_of_a_restarting_server_takes_as_long_as_an_unknown_one() -> None:
    catalog, server, back = await restarting()
    asking = [asyncio.create_task(refusal(catalog, key)) for key in ("clock:erase", "clock:nothing")]
    await asyncio.sleep(0.01)
    assert not any(each.done() for each in asking)
    server.be("running")
    back.set()
    assert [(await each).code for each in asking] == ["unknown_tool", "unknown_tool"]


async def test_a_call_of_a_server_that_does_not_come_back_or_is_switched_off_ends() -> None:
    catalog, _, back = await restarting()
    asking = asyncio.create_task(refusal(catalog, "clock:read"))
    await asyncio.sleep(0)
    back.set()
    assert "the reason" in str(await asking)
    catalog, _, _ = await restarting()
    catalog.reconfigure(config_of({"clock": {"enabled": False}}))
    with pytest.raises(UnknownToolError):
        catalog.resolve_known(ME, "clock:read")


async def test_a_call_whose_list_fails_because_the_server_dies_waits_for_the_restart() -> None:
    clock = Clock()
    behind = servers()
    server = behind["clock"]
    catalog = catalog_of(*behind.values(), config=CONFIG, clock=clock, waits=NEVER)
    known = await catalog.resolve(ME, "clock:read")
    clock.now += 60  # its list is too old
    server.may_answer.clear()
    server.inside.clear()
    asking = asyncio.create_task(catalog.resolve(ME, "clock:read"))
    await server.inside.wait()
    server.fails = lambda: ServerUnavailableError("clock", "it has ended")
    server.be("failed", "it has ended")
    server.back = asyncio.Event()
    server.may_answer.set()
    await asyncio.sleep(0.05)
    assert not asking.done()
    server.fails = None
    server.be("running")
    server.back.set()
    assert (await asking).digest == known.digest


@pytest.mark.parametrize("changed", [False, True])
async def test_a_tool_is_not_called_if_the_fetch_of_its_list_shows_a_restart_that_changed_it(changed: bool) -> None:
    clock, behind = Clock(), servers()
    server = behind["clock"]
    catalog = catalog_of(*behind.values(), config=CONFIG, clock=clock, waits=NEVER)
    known = await catalog.resolve(ME, "clock:read")
    clock.now += 60  # its list is too old
    server.may_answer.clear()
    server.inside.clear()
    asking = asyncio.create_task(catalog.resolve(ME, "clock:read"))
    await server.inside.wait()
    if changed:
        server.tools = [tool("read", "Now something else")]
    server.be("running")
    server.may_answer.set()
    if changed:
        with pytest.raises(ServerUnavailableError, match="its definition of this tool has changed"):
            await asking
    else:
        assert (await asking).digest == known.digest


async def test_a_call_does_not_wait_without_end_for_a_server_that_ends_whenever_it_is_asked_for_its_list() -> None:
    server = SmallServer("clock", tool("read"))

    def end_and_restart() -> ServerUnavailableError:
        server.be("running")
        return ServerUnavailableError("clock", "it has ended")

    server.fails = end_and_restart
    catalog = catalog_of(server, config=CONFIG, waits=NEVER)
    async with asyncio.timeout(30):
        assert (await refusal(catalog, "clock:read")).code == "server_unavailable"


@pytest.mark.parametrize("taken", ["token", "tool"])
async def test_a_right_that_a_reload_takes_away_ends_the_wait_for_a_restart(taken: str) -> None:
    catalog, _, _ = await restarting()
    asking = [asyncio.create_task(refusal(catalog, key)) for key in ("clock:read", "clock:erase")]
    await asyncio.sleep(0.01)
    catalog.reconfigure(CONFIG)  # changes nothing
    await asyncio.sleep(0.01)
    assert not any(each.done() for each in asking)
    without: dict[str, Any] = {"tokens": {}} if taken == "token" else {}
    forbidden = {"tool_permissions": {"erase": False, "read": taken == "token"}}
    catalog.reconfigure(config_of({**dict.fromkeys(servers()), "clock": forbidden}, **without))
    async with asyncio.timeout(30):
        assert (await asking[0]).code == "unknown_tool"
    assert not asking[1].done()  # it was forbidden before, and its wait must not tell
    asking[1].cancel()


async def test_a_list_that_fails_while_the_server_runs_is_not_waited_for() -> None:
    server = SmallServer("clock", tool("read"))
    server.fails = lambda: ServerUnavailableError("clock", "no answer")
    catalog = catalog_of(server, config=CONFIG, waits=NEVER)
    async with asyncio.timeout(30):
        assert (await refusal(catalog, "clock:read")).code == "server_unavailable"


async def test_a_call_waits_for_a_first_start_no_longer_than_a_discovery() -> None:
    server = SmallServer("clock", tool("read"))
    server.be("starting", "connecting")
    server.coming_up = asyncio.Event()
    catalog = catalog_of(server, config=config_of({"clock": None}, limits={"first_list_s": 0.05}))
    assert (await refusal(catalog, "clock:read")).code == "server_unavailable"
    asking = asyncio.create_task(catalog.resolve(ME, "clock:read"))
    await asyncio.sleep(0)
    server.be("running")
    server.coming_up.set()
    assert (await asking).tool_name == "read"


async def test_a_new_tool_is_found_although_the_list_is_only_good_for_calls() -> None:
    server = SmallServer("clock", tool("read"))
    server.ttl_ms = 0
    catalog = catalog_of(server, config=CONFIG)
    await catalog.resolve(ME, "clock:read")
    assert catalog.resolve_known(ME, "clock:read") is not None
    server.tools = [tool("read"), tool("write")]  # and no word about it
    assert (await catalog.resolve(ME, "clock:write")).tool_name == "write"
    assert server.asked == 2


async def test_a_server_that_gives_no_list_is_unavailable_at_once_the_second_time() -> None:
    server = SmallServer("clock", tool("read"), list_timeout_s=0.01)
    server.may_answer.clear()
    catalog = catalog_of(server, config=CONFIG, waits=NEVER)
    assert (await refusal(catalog, "clock:read")).code == "server_unavailable"
    with pytest.raises(ServerUnavailableError):
        catalog.resolve_known(ME, "clock:read")
    assert (await refusal(catalog, "clock:erase")).code == "server_unavailable"  # as for all names
    assert server.asked == 1


async def test_a_server_too_busy_to_list_its_tools_can_still_be_called() -> None:
    clock = Clock()
    server = SmallServer("clock", tool("read"), tool("erase"), list_timeout_s=0.01)
    catalog = catalog_of(server, config=CONFIG, waits=NEVER, clock=clock)
    known = await catalog.resolve(ME, "clock:read")
    server.may_answer.clear()
    clock.now += 60
    assert await catalog.resolve(ME, "clock:read") is known
    assert catalog.resolve_known(ME, "clock:read") is known
    assert (await refusal(catalog, "clock:other")).code == "unknown_tool"
    assert (await refusal(catalog, "clock:erase")).code == "unknown_tool"
    server.be("running")  # on a new connection the old list says nothing
    assert (await refusal(catalog, "clock:read")).code == "server_unavailable"


async def test_a_right_that_is_taken_away_while_the_list_is_fetched_is_gone() -> None:
    server = SmallServer("clock", tool("read"))
    server.may_answer.clear()
    catalog = catalog_of(server, config=CONFIG)
    asking = asyncio.create_task(refusal(catalog, "clock:read"))
    await server.inside.wait()
    catalog.reconfigure(config_of({"clock": {"tool_permissions": {"read": False}}}))
    server.may_answer.set()
    assert (await asking).code == "unknown_tool"


@pytest.mark.parametrize("change", ["revoked", "expired", "other project"])
async def test_a_caller_that_is_no_longer_one_finds_nothing(change: str) -> None:
    clock = Clock()
    catalog = catalog_of(*servers().values(), config=CONFIG, wall_clock=clock)
    await catalog.resolve(ME, "clock:read")
    token = CONFIG.tokens["laptop"]
    tokens: dict[str, Any] = {
        "revoked": {},
        "expired": {"laptop": token.model_copy(update={"expires": datetime(1970, 1, 1, tzinfo=UTC)})},
        "other project": {"laptop": token.model_copy(update={"projects": ("other",)})},
    }[change]
    catalog.reconfigure(CONFIG.model_copy(update={"tokens": tokens}))
    clock.now = 200_000.0
    assert (await refusal(catalog, "clock:read")).code == "unknown_tool"


async def test_a_key_of_megabytes_is_not_repeated() -> None:
    error = await refusal(catalog_of(*servers().values(), config=CONFIG), "clock:" + "x" * 1_000_000)
    assert len(str(error)) < 500


async def test_arguments_are_checked_and_bundled_servers_are_known() -> None:
    ours, theirs = SmallServer("archive", tool("t")), SmallServer("s", tool("t", n={"type": "integer"}))
    config = config_of({"s": None, "archive": {"command": None, "bundled": "archive"}})
    catalog = catalog_of(ours, theirs, config=config)
    assert catalog.bundled_servers == {"archive"}
    known = await catalog.resolve(ME, "s:t")
    assert known.check_arguments({"n": 5}) is None
    with pytest.raises(InvalidArgumentsError):
        known.check_arguments({"n": "five"})
