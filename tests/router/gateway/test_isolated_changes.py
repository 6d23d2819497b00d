"""`isolation: per-caller`: what a caller watches is watched on its own connection, and told to that caller only."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_process import gateway_process
from tests.router.gateway.test_changes import BOOK, PROMPTS, UPDATED, heard, traced
from tests.router.gateway.test_resources import library
from tests.router.raw_client import ERAS, WAIT_S, Changes, Era, Speaker, speaker

WRAPPED = f"pointsman+open+{BOOK}"
TOUCH = "open:touch"


def config(folder: Path, behind: Era, isolation: str = "per-caller") -> dict[str, Any]:
    entry = library("the library", behind, "--trace", str(folder / "trace"), isolation=isolation, projects=["a", "b"])
    return {"projects": {"a": {}, "b": {}}, "servers": {"open": entry}}


def asked_to_watch(folder: Path) -> list[int]:
    """The ids of the processes that were asked to watch the book, once for each time they were."""
    found = traced(folder, "resources/subscribe", "subscriptions/listen")
    return [
        entry["pid"]
        for entry in found
        if entry["method"] == "resources/subscribe" or BOOK in entry["notifications"].get("resourceSubscriptions", ())
    ]


async def until_asked(folder: Path, count: int) -> list[int]:
    async with asyncio.timeout(WAIT_S):
        while len(set(found := asked_to_watch(folder))) < count:
            await asyncio.sleep(0.02)
    return list(dict.fromkeys(found))


async def touch(client: Speaker) -> None:
    await client.call("tool_execute", {"toolKey": TOUCH, "arguments": {"uri": BOOK}})


async def hears_nothing(changes: Changes, client: Speaker) -> None:
    """No update stands before the next change that is sure to be told."""
    await client.call("tool_execute", {"toolKey": "open:add_prompt", "arguments": {"name": "marker"}})
    async with asyncio.timeout(WAIT_S):
        async for message in changes.messages:
            assert message.get("method") != UPDATED
            if message.get("method") == PROMPTS:
                return


@pytest.mark.parametrize("behind", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_caller_hears_of_its_own_process_and_of_no_other(tmp_path: Path, era: Era, behind: Era) -> None:
    async with (
        gateway_process(tmp_path, config(tmp_path, behind)) as gateway,
        speaker(gateway, era, project="a") as ada,
        speaker(gateway, era, project="b") as bob,
        ada.stream(WRAPPED) as hers,
    ):
        await until_asked(tmp_path, 1)
        async with bob.stream(WRAPPED) as his:
            await until_asked(tmp_path, 2)  # two processes, one for each caller
            assert (await heard(hers, ada, TOUCH, {"uri": BOOK}, UPDATED))["uri"] == WRAPPED
            await hears_nothing(his, bob)
            assert (await heard(his, bob, TOUCH, {"uri": BOOK}, UPDATED))["uri"] == WRAPPED


async def test_the_last_unsubscribe_of_a_caller_ends_its_own_only(tmp_path: Path) -> None:
    async with (
        gateway_process(tmp_path, config(tmp_path, "legacy")) as gateway,
        speaker(gateway, "legacy", project="a") as ada,
        speaker(gateway, "legacy", project="a") as also_ada,
        speaker(gateway, "legacy", project="b") as bob,
        bob.stream(WRAPPED) as his,
    ):
        for client in (ada, also_ada):
            await client.result("resources/subscribe", {"uri": WRAPPED})
        bobs, adas = await until_asked(tmp_path, 2)
        await ada.result("resources/unsubscribe", {"uri": WRAPPED})
        assert traced(tmp_path, "resources/unsubscribe") == []
        await also_ada.result("resources/unsubscribe", {"uri": WRAPPED})
        assert [entry["pid"] for entry in traced(tmp_path, "resources/unsubscribe")] == [adas]
        assert bobs != adas
        assert (await heard(his, bob, TOUCH, {"uri": BOOK}, UPDATED))["uri"] == WRAPPED


@pytest.mark.parametrize("behind", ERAS)
async def test_a_watch_outlives_a_crash_of_the_process_that_it_is_kept_in(tmp_path: Path, behind: Era) -> None:
    async with (
        gateway_process(tmp_path, config(tmp_path, behind)) as gateway,
        speaker(gateway, "legacy", project="a") as ada,
        ada.stream(WRAPPED) as hers,
    ):
        [crashing] = await until_asked(tmp_path, 1)
        os.kill(crashing, signal.SIGKILL)
        await until_asked(tmp_path, 2)  # the next process, before anybody called it
        assert (await heard(hers, ada, TOUCH, {"uri": BOOK}, UPDATED))["uri"] == WRAPPED


@pytest.mark.parametrize("behind", ERAS)
async def test_a_watch_outlives_changes_of_the_isolation(tmp_path: Path, behind: Era) -> None:
    async with (
        gateway_process(tmp_path, config(tmp_path, behind, "shared")) as gateway,
        speaker(gateway, "legacy", project="a") as ada,
        speaker(gateway, "modern", project="b") as bob,
        ada.stream(WRAPPED) as hers,
        bob.stream(WRAPPED) as his,
    ):
        await until_asked(tmp_path, 1)
        gateway.write_config(config(tmp_path, behind))
        await until_asked(tmp_path, 3)
        await told_after_all(hers, ada)
        await hears_nothing(his, bob)
        gateway.write_config(config(tmp_path, behind, "shared"))
        await until_asked(tmp_path, 4)
        await told_after_all(hers, ada)
        assert (await his.next(UPDATED))["uri"] == WRAPPED


async def told_after_all(changes: Changes, client: Speaker) -> None:
    """While a connection replaces another, a call may still go to the old one, which is on its way out."""
    told = asyncio.create_task(changes.next(UPDATED))
    async with asyncio.timeout(WAIT_S):
        while not told.done():
            await touch(client)
            await asyncio.wait([told], timeout=0.1)
    assert (await told)["uri"] == WRAPPED
