"""What changes at a server is told to those that may know, in either era, and to nobody else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_process import gateway_process
from tests.router.gateway.test_resources import library
from tests.router.raw_client import ERAS, WAIT_S, Changes, Era, Speaker, speaker

RESOURCES = "notifications/resources/list_changed"
PROMPTS = "notifications/prompts/list_changed"
TOOLS = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
BOOK = "book://shelf/1"


def config(folder: Path, behind: Era = "legacy", **more: Any) -> dict[str, Any]:
    traced = ("--trace", str(folder / "trace"))
    return {
        "projects": {"closed": {}, "flat": {"exposure": "flat"}},
        "servers": {
            "lib": library("the library", behind, *traced, projects=["flat"]),
            "open": library("the open library", behind, *traced),
            "secret": library("the secret library", behind, projects=["closed"]),
            **more,
        },
    }


def traced(folder: Path, *methods: str) -> list[dict[str, Any]]:
    lines = (folder / "trace").read_text().splitlines() if (folder / "trace").exists() else []
    return [found for found in map(json.loads, lines) if found["method"] in methods]


async def until(folder: Path, count: int, *methods: str) -> list[dict[str, Any]]:
    async with asyncio.timeout(WAIT_S):
        while len(found := traced(folder, *methods)) < count:
            await asyncio.sleep(0.02)
    return found


async def heard(changes: Changes, client: Speaker, key: str, arguments: dict[str, Any], method: str) -> dict[str, Any]:
    """Have a server change something; what the stream says of it."""
    await client.call("tool_execute", {"toolKey": key, "arguments": arguments})
    return await changes.next(method)


@pytest.mark.parametrize("behind", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_changed_lists_are_told_and_the_new_list_is_there_at_once(tmp_path: Path, era: Era, behind: Era) -> None:
    async with (
        gateway_process(tmp_path, config(tmp_path, behind)) as gateway,
        speaker(gateway, era) as client,
        client.stream() as changes,
    ):
        assert len(await client.every("resources/list", "resources")) == 3
        await heard(changes, client, "open:add_book", {"uri": "book://shelf/new"}, RESOURCES)
        uris = [one["uri"] for one in await client.every("resources/list", "resources")]
        assert "pointsman+open+book://shelf/new" in uris
        await heard(changes, client, "open:add_prompt", {"name": "farewell"}, PROMPTS)
        names = [one["name"] for one in await client.every("prompts/list", "prompts")]
        assert names == ["open__greet", "open__farewell"]


@pytest.mark.parametrize("behind", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_watched_resource_is_told_of_under_the_uri_that_the_client_knows(
    tmp_path: Path, era: Era, behind: Era
) -> None:
    wrapped = f"pointsman+open+{BOOK}"
    async with (
        gateway_process(tmp_path, config(tmp_path, behind)) as gateway,
        speaker(gateway, era) as client,
        speaker(gateway, "legacy") as own_words,
        client.stream(wrapped) as changes,
        own_words.stream(BOOK) as others,
    ):
        await until_watched(tmp_path, behind)
        told = await heard(changes, client, "open:touch", {"uri": BOOK}, UPDATED)
        assert told["uri"] == wrapped
        assert (await others.next(UPDATED))["uri"] == BOOK


async def until_watched(folder: Path, behind: Era) -> None:
    """The server knows: by a request of its own, or by what the open one asks for."""
    if behind == "legacy":
        await until(folder, 1, "resources/subscribe")
        return
    async with asyncio.timeout(WAIT_S):
        while not any(
            BOOK in asked["notifications"].get("resourceSubscriptions", ())
            for asked in traced(folder, "subscriptions/listen")
        ):
            await asyncio.sleep(0.02)


async def test_the_server_is_told_when_the_last_watcher_leaves(tmp_path: Path) -> None:
    wrapped = f"pointsman+open+{BOOK}"
    async with gateway_process(tmp_path, config(tmp_path)) as gateway:
        async with speaker(gateway, "legacy") as one, speaker(gateway, "legacy") as two:
            for client in (one, two):
                await client.result("resources/subscribe", {"uri": wrapped})
            await one.result("resources/unsubscribe", {"uri": wrapped})
            await one.result("resources/unsubscribe", {"uri": wrapped})
            assert traced(tmp_path, "resources/unsubscribe") == []
            await two.result("resources/unsubscribe", {"uri": wrapped})
        [ended] = await until(tmp_path, 1, "resources/unsubscribe")
        assert ended["uri"] == BOOK


async def test_a_listener_that_leaves_ends_its_subscriptions(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, config(tmp_path)) as gateway, speaker(gateway, "modern") as client:
        async with client.stream(f"pointsman+open+{BOOK}"):
            await until(tmp_path, 1, "resources/subscribe")
        await until(tmp_path, 1, "resources/unsubscribe")


@pytest.mark.parametrize("era", ERAS)
async def test_nobody_hears_of_servers_that_are_not_theirs(tmp_path: Path, era: Era) -> None:
    async with (
        gateway_process(tmp_path, config(tmp_path)) as gateway,
        speaker(gateway, "modern", project="closed") as insider,
        speaker(gateway, era) as client,
        client.stream() as changes,
    ):
        refused = {"uri": f"pointsman+secret+{BOOK}"}
        if era == "legacy":
            assert (await client.error("resources/subscribe", refused))["code"] == -32002
        await insider.call("tool_execute", {"toolKey": "secret:add_prompt", "arguments": {"name": "psst"}})
        await heard(changes, client, "open:add_book", {"uri": "book://x"}, RESOURCES)
        await no_more(changes, client, PROMPTS)


async def no_more(changes: Changes, client: Speaker, method: str) -> None:
    """Nothing of `method` stands before the next change that is sure to be told."""
    await client.call("tool_execute", {"toolKey": "open:add_book", "arguments": {"uri": "book://y"}})
    async with asyncio.timeout(WAIT_S):
        async for message in changes.messages:
            assert message.get("method") != method
            if message.get("method") == RESOURCES:
                return


@pytest.mark.parametrize("era", ERAS)
async def test_changes_of_tools_are_told_where_tools_are_listed(tmp_path: Path, era: Era) -> None:
    async with (
        gateway_process(tmp_path, config(tmp_path)) as gateway,
        speaker(gateway, era, project="flat") as flat,
        speaker(gateway, era) as client,
        flat.stream() as told,
        client.stream() as changes,
    ):
        await flat.call("lib__add_tool")
        await told.next(TOOLS)
        await client.call("tool_execute", {"toolKey": "open:add_tool"})
        await no_more(changes, client, TOOLS)


@pytest.mark.parametrize("era", ERAS)
async def test_a_reload_that_changes_what_there_is_is_told(tmp_path: Path, era: Era) -> None:
    async with (
        gateway_process(tmp_path, config(tmp_path)) as gateway,
        speaker(gateway, era) as client,
        client.stream() as changes,
    ):
        gateway.write_config(config(tmp_path, secret=library("the secret library")))
        await changes.next(RESOURCES)
        await changes.next(PROMPTS)
        names = [one["name"] for one in await client.every("prompts/list", "prompts")]
        assert names == ["open__greet", "secret__greet"]


async def test_a_watch_outlives_the_server(tmp_path: Path) -> None:
    """The server is restarted by the reload, and is asked again without the client's doing anything."""
    wrapped = f"pointsman+open+{BOOK}"
    entries = config(tmp_path)
    async with (
        gateway_process(tmp_path, entries) as gateway,
        speaker(gateway, "legacy") as client,
        client.stream(wrapped) as changes,
    ):
        entries["servers"]["open"]["env"] = {"COLOUR": "red"}
        gateway.write_config(entries)
        await until(tmp_path, 2, "resources/subscribe")
        assert (await heard(changes, client, "open:touch", {"uri": BOOK}, UPDATED))["uri"] == wrapped
