"""`tool_permissions: {"*": false}`: only what is named can be found, listed and called, also when a server grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gateway_process import gateway_process
from tests.router.conftest import from_file
from tests.router.raw_client import ERAS, Era, speaker


def tools(*names: str) -> dict[str, object]:
    return {"tools": [{"name": name, "description": "Reads it", "inputSchema": {"type": "object"}} for name in names]}


@pytest.mark.parametrize("era", ERAS)
async def test_an_allow_list_holds_for_tools_that_come_later(tmp_path: Path, era: Era) -> None:
    file = tmp_path / "lists.json"
    permissions = {"*": False, "announce": True, "read": True}
    config = {
        "projects": {"flat": {"exposure": "flat"}},
        "servers": {
            one: from_file(file, "tag", tools("announce", "read", "erase"), tool_permissions=permissions, projects=home)
            for one, home in (("one", []), ("two", ["flat"]))
        },
    }
    async with (
        gateway_process(tmp_path, config) as gateway,
        speaker(gateway, era) as client,
        speaker(gateway, era, project="flat") as flat,
    ):
        for _ in range(2):
            found = await client.call("tool_discovery", {"query": "read", "maxResults": 100})
            keys = {result["toolKey"] for result in found["structuredContent"]["results"]}
            assert keys <= {"one:read", "one:announce"}
            assert "one:read" in keys
            for name in ("one:erase", "one:added"):
                refused = await client.call("tool_execute", {"toolKey": name})
                assert refused["structuredContent"]["error"]["code"] == "unknown_tool"
            assert "isError" not in await client.call("tool_execute", {"toolKey": "one:read"})
            assert {tool["name"] for tool in await flat.every("tools/list", "tools")} == {"two__announce", "two__read"}
            assert (await flat.error("tools/call", {"name": "two__erase", "arguments": {}}))["code"] == -32602
            file.write_text(json.dumps(tools("announce", "read", "erase", "added")))
            await client.call("tool_execute", {"toolKey": "one:announce"})
            await flat.call("two__announce")
