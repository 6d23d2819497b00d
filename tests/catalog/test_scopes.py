"""A tool outside of a caller's scopes and patterns is like one that no server has, wherever tools are named."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.catalog.answer import render_answer
from pointsman.catalog.definitions import KnownTool
from pointsman.catalog.effects import Effect
from pointsman.catalog.flat import FlatTools
from pointsman.catalog.overview import INSTRUCTIONS, INSTRUCTIONS_WITHOUT_SERVERS
from pointsman.catalog.service import ToolCatalogService
from pointsman.config.model import GatewayConfig
from pointsman.core.errors import GatewayError, ServerUnavailableError, UnknownToolError
from pointsman.core.model import Caller
from pointsman.router.downstream.talk.server_memory import ServerMemory
from tests.catalog.sources import SmallServer, catalog_of, config_of, tool

ME = Caller("laptop", None)
SERVERS = ("git", "notes", "shop")
NAMES = ("read_note", "write_note", "erase_note", "open")
HINTS: dict[Effect, dict[str, bool]] = {
    "read": {"readOnlyHint": True},
    "write": {"destructiveHint": False},
    "destructive": {},
}
EFFECTS: tuple[Effect, ...] = ("read", "write", "destructive")
PATTERNS = ("*:*", "git:*", "*:*_note", "!*:erase*", "!notes:*", "!*:open", "shop:read_note", "notes:*e*")

entries = st.fixed_dictionaries(
    {},
    optional={
        "trust_annotations": st.booleans(),
        "tool_permissions": st.dictionaries(st.sampled_from(NAMES), st.booleans()),
    },
)
limits = st.fixed_dictionaries(
    {},
    optional={
        "scopes": st.lists(st.sampled_from(EFFECTS), min_size=1),
        "tools": st.lists(st.sampled_from(PATTERNS), min_size=1),
    },
)
lists = st.fixed_dictionaries(dict.fromkeys(SERVERS, st.dictionaries(st.sampled_from(NAMES), st.sampled_from(EFFECTS))))
of_project = st.none() | st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2)


@settings(max_examples=40, deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(SERVERS, entries)), limits, of_project, lists, st.booleans())
def test_a_tool_that_may_not_be_used_is_like_one_that_does_not_exist(
    entries: Mapping[str, Any],
    limits: Mapping[str, Any],
    project_tools: list[str] | None,
    lists: Mapping[str, Mapping[str, Effect]],
    flat: bool,
) -> None:
    """The same answers come from a gateway whose servers have only what this caller may use."""
    settings: dict[str, Any] = {"describe_catalog": True, "exposure": "flat" if flat else "meta"}
    limited = limited_config(entries, limits, unassigned={**settings, "tools": project_tools})
    rights = catalog_of(config=limited).rights
    left = {
        server_id: {name: one for name, one in listed.items() if rights.may_use(ME, server_id, name, one)}
        for server_id, listed in lists.items()
    }
    granted = limited_config({}, {"servers": list(rights.tool_servers(ME))}, unassigned=settings)
    restart = all(
        left[server_id] for server_id in rights.tool_servers(ME)
    )  # an empty list is not kept for the next run
    assert asyncio.run(all_answers(limited, lists, restart)) == asyncio.run(all_answers(granted, left, restart))


def limited_config(entries: Mapping[str, Any], limits: Mapping[str, Any], **more: Any) -> GatewayConfig:
    config = config_of({server_id: entries.get(server_id) for server_id in SERVERS})
    token = {"sha256": config.tokens["laptop"].sha256, "projects": ["*"], "servers": ["*"], **limits}
    data = config.model_dump(include={"servers"}, exclude_unset=True)
    return GatewayConfig.model_validate({**data, "tokens": {"laptop": token}, **more})


async def all_answers(config: GatewayConfig, lists: Mapping[str, Mapping[str, Effect]], restart: bool) -> list[Any]:
    """Whatever names tools: with servers that run, with servers that ended, and after a restart of the gateway."""
    memory = ServerMemory()
    for server_id in SERVERS:
        memory.of(server_id, config.servers[server_id])
    servers = servers_of(lists)
    catalog = catalog_of(*servers, config=config, names=memory)
    found = await catalog.search(ME, ["note", "open"], None, 10)
    answers: list[Any] = [
        render_answer(found) if found.results else None,
        [one["name"] for one in catalog.known_tools(ME)],
        await named(catalog),
    ]
    for server in servers:
        server.be("failed", "it ended")
    answers += await named(catalog)
    if restart:
        answers += await named(catalog_of(*ended(servers_of(lists)), config=config, names=memory))
    return answers


async def named(catalog: ToolCatalogService) -> list[Any]:
    flat = FlatTools(catalog)
    collected = await catalog.collected(ME)
    texts = [f"{server_id}{between}{name}" for server_id, between, name in product(SERVERS, ":_.", (*NAMES, "missing"))]
    return [
        list(flat.named(ME, catalog.permitted(ME, collected))),
        await catalog.overview(ME),
        await catalog.instructions(ME),
        [await outcome(catalog.resolve(ME, text)) for text in texts],
        [await outcome(flat.resolve(ME, f"{one}__{name}")) for one, name in product(SERVERS, (*NAMES, "missing"))],
        [catalog.nearest_keys(ME, text) for text in texts],
        [await outcome(catalog.read_key(ME, text)) for text in (*texts, *NAMES)],
    ]


async def outcome(answer: Any) -> str:
    try:
        found = await answer
    except GatewayError as error:
        return f"{error.code}: {error}"
    return found.document.tool_key if isinstance(found, KnownTool) else str(found)


def servers_of(lists: Mapping[str, Mapping[str, Effect]]) -> list[SmallServer]:
    return [
        SmallServer(server_id, *({**tool(name), "annotations": HINTS[effect]} for name, effect in listed.items()))
        for server_id, listed in lists.items()
    ]


def ended(servers: Sequence[SmallServer]) -> Sequence[SmallServer]:
    for server in servers:
        server.be("failed", "it ended")
    return servers


NOTES: dict[str, dict[str, Effect]] = {
    "notes": {"read_note": "read", "write_note": "write", "erase_note": "destructive"}
}


@pytest.mark.parametrize(
    ("trusted", "scopes", "names"),
    [
        (True, ["read"], ["read_note"]),
        (True, ["read", "write"], ["read_note", "write_note"]),
        (True, ["write"], ["write_note"]),
        (True, None, ["read_note", "write_note", "erase_note"]),
        (False, ["read"], []),
        (False, ["read", "write"], []),
        (False, ["destructive"], ["read_note", "write_note", "erase_note"]),
    ],
)
async def test_scopes_choose_by_the_effect_that_counts(
    trusted: bool, scopes: list[str] | None, names: list[str]
) -> None:
    catalog = notes_catalog(trusted, {"scopes": scopes} if scopes else {})
    assert [one.tool_name for one in (await catalog.available(ME)).tools] == names


def notes_catalog(trusted: bool, limits: Mapping[str, Any], **more: Any) -> ToolCatalogService:
    config = limited_config({"notes": {"trust_annotations": trusted}}, limits, **more)
    return catalog_of(*servers_of(NOTES), config=config)


async def test_a_server_without_any_tool_for_the_caller_is_neither_asked_nor_named_nor_waited_for() -> None:
    config = limited_config({"git": {"trust_annotations": True}}, {"scopes": ["read"]})
    git, notes = servers_of({"git": {"open": "read"}, **NOTES})
    notes.may_answer.clear()  # a list of it would never come
    catalog = catalog_of(git, notes, config=config)
    found = await catalog.search(ME, ["note"], None, 5)
    assert notes.asked == 0
    assert "notes" not in str(render_answer(found))
    assert await catalog.instructions(ME) == f"{INSTRUCTIONS} Servers: git (open)."
    notes.be("failed", "it ended")
    with pytest.raises(UnknownToolError):
        await catalog.resolve(ME, "notes:read_note")
    await catalog.close()


async def test_a_read_only_caller_of_untrusted_servers_learns_what_the_operator_can_check() -> None:
    catalog = notes_catalog(False, {"scopes": ["read"]})
    found = await catalog.search(ME, ["note"], None, 5)
    assert found.notice is not None
    assert "The operator checks `tool_permissions`, `tools`, the token's `scopes`" in found.notice
    assert "`trust_annotations` of the servers" in found.notice
    assert await catalog.instructions(ME) == INSTRUCTIONS_WITHOUT_SERVERS


async def test_a_tool_that_becomes_destructive_is_lost_to_a_read_only_caller_with_the_next_list() -> None:
    config = limited_config({"notes": {"trust_annotations": True}}, {"scopes": ["read"]})
    [notes] = servers_of(NOTES)
    catalog = catalog_of(notes, config=config)
    assert (await catalog.resolve(ME, "notes:read_note")).claimed == "read"
    notes.change(tool("read_note"))
    with pytest.raises(UnknownToolError):
        await catalog.resolve(ME, "notes:read_note")


async def test_a_reload_of_scopes_or_of_trust_counts_at_once() -> None:
    catalog = notes_catalog(True, {})
    erase = await catalog.resolve(ME, "notes:erase_note")
    catalog.reconfigure(limited_config({"notes": {"trust_annotations": True}}, {"scopes": ["read"]}))
    with pytest.raises(UnknownToolError):
        await catalog.resolve(ME, erase.document.tool_key)
    assert catalog.resolve_known(ME, "notes:read_note") is not None
    catalog.reconfigure(limited_config({}, {"scopes": ["read"]}))
    with pytest.raises(UnknownToolError):
        catalog.resolve_known(ME, "notes:read_note")


async def test_the_effects_of_the_last_run_count_while_a_server_is_away() -> None:
    config = limited_config({"notes": {"trust_annotations": True}}, {"scopes": ["read"]})
    memory = ServerMemory()
    memory.of("notes", config.servers["notes"])
    await catalog_of(*servers_of(NOTES), config=config, names=memory).available(ME)
    away = catalog_of(*ended(servers_of(NOTES)), config=config, names=memory)
    with pytest.raises(ServerUnavailableError):
        await away.resolve(ME, "notes:read_note")
    with pytest.raises(UnknownToolError):
        await away.resolve(ME, "notes:erase_note")


async def test_the_words_of_a_server_are_those_of_the_callers_own_tools() -> None:
    config = limited_config({"notes": {"trust_annotations": True}}, {"scopes": ["read"]})
    tokens = {
        **config.tokens,
        "other": config.tokens["laptop"].model_copy(update={"scopes": ("write",), "sha256": "b" * 64}),
    }
    [notes] = servers_of({"notes": {"find_song": "read", "burn_disc": "write"}})
    catalog = catalog_of(
        notes, config=config.model_copy(update={"tokens": tokens, "servers": {"notes": config.servers["notes"]}})
    )
    assert "(find, song)" in str(await catalog.instructions(ME))
    assert "(burn, disc)" in str(await catalog.instructions(Caller("other", None)))
    assert "(find, song)" in str(await catalog.instructions(ME))


async def test_only_a_token_that_reads_has_resources_and_prompts_of_any_server() -> None:
    """Both are reads by the protocol, so trust in annotations does not matter, and neither do patterns."""
    for scopes, readable in ((["read"], SERVERS), (["write", "destructive"], ())):
        catalog = notes_catalog(False, {"scopes": scopes, "tools": ["!*"]})
        assert catalog.readable_servers(ME) == readable
