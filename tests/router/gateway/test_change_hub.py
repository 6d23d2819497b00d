"""The hub: nobody waits for a slow reader, equal changes become one, and rights are those of the moment."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from pointsman.catalog.rights import RightsIndex
from pointsman.core.model import Caller
from pointsman.core.seams import Change
from pointsman.router.gateway.changes import (
    MOST_PENDING,
    PROMPTS_CHANGED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    UPDATED,
    ChangeHub,
)
from tests.catalog.sources import config_of

ME = Caller("laptop", None)


class World:
    def __init__(self, **servers: Any) -> None:
        self.rights = RightsIndex(config_of(servers))
        self.hub = ChangeHub(lambda: self.rights, lambda server_id, uri: (f"{server_id}+{uri}",))

    def reload(self, more: dict[str, Any] | None = None, **servers: Any) -> None:
        self.rights = RightsIndex(config_of(servers, **(more or {})))
        self.hub.rights_changed()


async def heard(listener: Any, count: int) -> list[Change]:
    async with asyncio.timeout(30):
        return [await anext(listener) for _ in range(count)]


async def nothing_more(listener: Any) -> bool:
    pending = asyncio.ensure_future(anext(listener))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    quiet = not pending.done()
    pending.cancel()
    return quiet


async def test_equal_changes_become_one_and_the_newest_are_kept() -> None:
    world = World(lib=None)
    listener = world.hub.listen(ME)
    for _ in range(3):
        world.hub.publish("lib", Change(PROMPTS_CHANGED, {}))
    assert await heard(listener, 1) == [Change(PROMPTS_CHANGED, {})]
    assert await nothing_more(listener)
    for number in range(MOST_PENDING + 10):
        world.hub.publish("lib", Change(UPDATED, {"uri": str(number)}))
    told = await heard(listener, MOST_PENDING)
    assert [change.params["uri"] for change in told] == [f"lib+{n}" for n in range(10, MOST_PENDING + 10)]


async def test_what_waited_until_rights_were_gone_is_not_told() -> None:
    world = World(lib=None)
    listener = world.hub.listen(ME)
    world.hub.publish("lib", Change(UPDATED, {"uri": "a"}))
    world.reload(lib={"projects": ["other"]}, more={"projects": {"other": {}}})
    assert [change.method for change in await heard(listener, 2)] == [RESOURCES_CHANGED, PROMPTS_CHANGED]
    assert await nothing_more(listener)


async def test_a_reload_that_changes_nothing_for_a_caller_is_not_told() -> None:
    world = World(lib=None)
    listener = world.hub.listen(ME)
    world.reload(lib=None, other={"projects": ["elsewhere"]}, more={"projects": {"elsewhere": {}}})
    world.reload(lib={"tool_permissions": {"erase": False}})  # its two tools stay what they are
    assert await nothing_more(listener)


async def test_tools_are_told_of_where_they_are_listed() -> None:
    world = World(lib=None)
    listener = world.hub.listen(ME)
    world.hub.publish("lib", Change(TOOLS_CHANGED, {}))
    assert await nothing_more(listener)
    world.reload(lib=None, more={"unassigned": {"exposure": "flat"}})
    assert await heard(listener, 1) == [Change(TOOLS_CHANGED, {})]
    world.reload(lib={"tool_permissions": {"erase": False}}, more={"unassigned": {"exposure": "flat"}})
    assert await heard(listener, 1) == [Change(TOOLS_CHANGED, {})]


def limited(**limits: Any) -> dict[str, Any]:
    token = {"sha256": "a" * 64, "projects": ["*"], "servers": ["*"], **limits}
    return {"unassigned": {"exposure": "flat"}, "tokens": {"laptop": token}}


async def test_a_reload_of_scopes_patterns_and_trust_is_told_where_tools_are_listed() -> None:
    world = World()
    world.reload(lib=None, more=limited())
    listener = world.hub.listen(ME)
    for more in (limited(scopes=["read"]), limited(scopes=["read"], tools=["lib:*"]), limited()):
        world.reload(lib=None, more=more)
        assert await heard(listener, 1) == [Change(TOOLS_CHANGED, {})]
    world.reload(lib={"trust_annotations": True}, more=limited())
    assert await heard(listener, 1) == [Change(TOOLS_CHANGED, {})]
    world.reload(lib={"trust_annotations": True}, more=limited(scopes=["write"]))  # which may read nothing
    changes = await heard(listener, 3)
    assert [change.method for change in changes] == [TOOLS_CHANGED, RESOURCES_CHANGED, PROMPTS_CHANGED]


async def test_nobody_is_told_of_tools_or_resources_outside_of_the_scopes() -> None:
    world = World()
    world.reload(lib=None, more=limited(scopes=["read"]))
    reader = world.hub.listen(ME)
    world.hub.publish("lib", Change(TOOLS_CHANGED, {}))  # its tools count as destructive
    assert await nothing_more(reader)
    world.hub.publish("lib", Change(PROMPTS_CHANGED, {}))
    assert await heard(reader, 1) == [Change(PROMPTS_CHANGED, {})]
    world.reload(lib=None, more=limited(scopes=["write", "destructive"]))
    writer = world.hub.listen(ME)
    for method in (PROMPTS_CHANGED, RESOURCES_CHANGED, UPDATED):
        world.hub.publish("lib", Change(method, {"uri": "a"}))
    world.hub.publish("lib", Change(TOOLS_CHANGED, {}))
    assert await heard(writer, 1) == [Change(TOOLS_CHANGED, {})]


async def test_an_update_without_a_uri_is_dropped() -> None:
    world = World(lib=None)
    listener = world.hub.listen(ME)
    world.hub.publish("lib", Change(UPDATED, {"uri": 7}))
    world.hub.publish("lib", Change(UPDATED, {}))
    assert await nothing_more(listener)


async def test_a_closed_listener_ends_and_a_forgotten_one_goes() -> None:
    world = World(lib=None)
    listener = world.hub.listen(ME)
    waiting = asyncio.ensure_future(anext(listener, None))
    await asyncio.sleep(0)
    await listener.aclose()
    async with asyncio.timeout(30):
        assert await waiting is None
    del listener, waiting
    gc.collect()
    assert len(world.hub._listeners) == 0


async def test_what_happens_on_a_callers_own_connection_is_told_to_that_caller_only() -> None:
    world = World(lib=None)
    listener = world.hub.listen(ME)
    world.hub.publish("lib", Change(UPDATED, {"uri": "a"}, Caller("somebody-else", None)))
    assert await nothing_more(listener)
    world.hub.publish("lib", Change(UPDATED, {"uri": "a"}, ME))
    assert [change.params["uri"] for change in await heard(listener, 1)] == ["lib+a"]
