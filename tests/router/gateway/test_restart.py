"""While a server that was running restarts, its tools stay findable, and a call that was not sent waits for it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.processes import descendants
from tests.gateway_process import gateway_process
from tests.router.conftest import WORKSHOP, Shop

# Becomes the workshop, but not while there is a file `hold`.
HELD = """
import os, sys, time
while os.path.exists(sys.argv[1]):
    time.sleep(0.01)
os.execv(sys.executable, [sys.executable, "-S", *sys.argv[2:]])
"""
PATIENCE_S = 60.0  # a bound against hanging
MIX = {"name": "mix", "description": "Mix two colours", "inputSchema": {"type": "object"}}


class HeldShop(Shop):
    """A workshop that `hold` keeps from starting again."""

    @property
    def hold(self) -> Path:
        return self.trace.with_name("hold")

    @property
    def more_tools(self) -> Path:
        return self.trace.with_name("more.json")

    def entry(self, **settings: Any) -> dict[str, Any]:
        args = ["-S", "-c", HELD, str(self.hold), str(WORKSHOP), str(self.trace)]
        env = {"MORE_TOOLS": str(self.more_tools)}
        return {"command": sys.executable, "args": args, "env": env, "era": "legacy", "pin": "off", **settings}

    async def found(self) -> tuple[set[str], str]:
        """The keys that a discovery returns, and its notice."""
        answer = await self.call("tool_discovery", {"query": ["paint an object in a colour"], "maxResults": 20})
        content = answer.json()["result"]["structuredContent"]
        return {hit["toolKey"] for hit in content["results"]}, content.get("notice", "")

    async def crash_and_hold(self) -> None:
        """End the server in the middle of a call; it cannot come back until `hold` is gone."""
        await self.found()  # its list is known from now on
        self.hold.touch()
        crashed = await self.execute("shop:crash")
        assert crashed["structuredContent"]["error"]["code"] == "server_unavailable"

    def calls(self, name: str) -> int:
        """How often a tool was called at the server."""
        return sum(message.get("params", {}).get("name") == name for message in self.ran())


@asynccontextmanager
async def held_shop(
    folder: Path, unassigned: Mapping[str, Any] | None = None, **limits: Any
) -> AsyncIterator[HeldShop]:
    (folder / "more.json").write_text(json.dumps([MIX]))
    async with asyncio.timeout(PATIENCE_S), httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        entry = HeldShop(None, http, folder / "trace").entry()  # type: ignore[arg-type]  # the entry needs no gateway
        config = {"servers": {"shop": entry}, "limits": limits, "unassigned": unassigned or {}}
        async with gateway_process(folder, config) as gateway:
            yield HeldShop(gateway, http, folder / "trace")


async def test_its_tools_stay_findable_and_a_call_waits_until_it_is_back(tmp_path: Path) -> None:
    async with held_shop(tmp_path) as shop:
        await shop.crash_and_hold()
        keys, notice = await shop.found()
        assert "shop:paint" in keys
        assert "These servers are restarting, and their tools are those of the last list: `shop`." in notice
        painting = asyncio.create_task(shop.execute("shop:paint", {"object": "door"}))
        await asyncio.sleep(0.1)
        assert not painting.done()
        shop.hold.unlink()
        assert (await painting)["structuredContent"]["result"]["painted"] == "door"
        keys, notice = await shop.found()
        assert "shop:paint" in keys
        assert "restarting" not in notice
        assert shop.calls("paint") == 1
        assert shop.calls("crash") == 1  # it was sent, so it is not sent again
        row = (await shop.rows("--tool", "shop:paint"))[0]
        assert row["outcome"] == "ok"


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ([{**MIX, "description": "Delete two colours"}], "its definition of this tool has changed"),
        ([], "it no longer has this tool"),
    ],
)
@pytest.mark.parametrize(
    ("strategy", "step"), [("bm25", "Call tool_discovery to see"), (None, "Ask the operator for the keys")]
)
async def test_a_call_is_not_sent_to_a_tool_that_the_restart_changed(
    after: list[dict[str, Any]], reason: str, strategy: str | None, step: str, tmp_path: Path
) -> None:
    async with held_shop(tmp_path, {"optimization": strategy}) as shop:
        await shop.crash_and_hold()
        mixing = asyncio.create_task(shop.execute("shop:mix"))
        await asyncio.sleep(0.1)
        shop.more_tools.write_text(json.dumps(after))
        shop.hold.unlink()
        error = (await mixing)["structuredContent"]["error"]
        assert error["code"] == "server_unavailable"
        assert f"{reason}. The call was not sent. {step}" in error["message"]
        assert shop.calls("mix") == 0


@pytest.mark.parametrize(
    "reloaded",
    [
        lambda shop: {"shop": shop.entry(enabled=False)},
        lambda shop: {},
        lambda shop: {"shop": shop.entry(cwd="/")},
    ],
    ids=["disabled", "removed", "changed"],
)
async def test_what_a_reload_changes_goes_at_once(
    reloaded: Callable[[HeldShop], dict[str, Any]], tmp_path: Path
) -> None:
    async with held_shop(tmp_path, first_list_s=0) as shop:
        await shop.crash_and_hold()
        painting = asyncio.create_task(shop.execute("shop:paint", {"object": "door"}))
        await asyncio.sleep(0.1)
        assert not painting.done()
        shop.gateway.write_config({"servers": reloaded(shop), "limits": {"first_list_s": 0}})
        shop.gateway.send_signal(signal.SIGHUP)
        assert (await painting)["structuredContent"]["error"]["code"] in {"server_unavailable", "unknown_tool"}
        assert (await shop.found())[0] == set()
        assert shop.calls("paint") == 0


async def test_a_call_that_was_queued_is_sent_after_the_restart_and_one_that_was_sent_is_not(tmp_path: Path) -> None:
    async with held_shop(tmp_path, server_calls=1, queue_s=30) as shop:
        await shop.found()
        sent = asyncio.create_task(shop.execute("shop:wait", {"object": str(tmp_path / "never")}))
        while not shop.calls("wait"):
            await asyncio.sleep(0.02)
        queued = asyncio.create_task(shop.execute("shop:paint", {"object": "door"}))
        await asyncio.sleep(0.1)
        [child] = [pid for pid, command in descendants(shop.gateway.pid).items() if str(WORKSHOP) in command]
        os.kill(child, signal.SIGKILL)
        assert (await sent)["structuredContent"]["error"]["code"] == "server_unavailable"
        assert (await queued)["structuredContent"]["result"]["painted"] == "door"
        assert (shop.calls("wait"), shop.calls("paint")) == (1, 1)
