"""Scopes and patterns through a real gateway, in both eras: what a client finds, lists, reads and runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import pytest
from mcp import MCPError

from tests.e2e.client import BOTH_ERAS, Mode, assistant
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import from_file

HINTS = {"find": {"readOnlyHint": True}, "note": {"destructiveHint": False}, "erase": {}}
LISTS = {
    "tools": [
        {
            "name": f"{name}_page",
            "description": f"{name} a page",
            "inputSchema": {"type": "object"},
            "annotations": hints,
        }
        for name, hints in HINTS.items()
    ],
    "prompts": [{"name": "greet"}],
    "resources": [{"uri": "note://today", "name": "today"}],
}


def token(name: str, **limits: Any) -> dict[str, Any]:
    return {"sha256": sha256(f"ptm_{name}".encode()).hexdigest(), "projects": ["*"], "servers": ["*"], **limits}


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("scopes")
    homes: dict[str, Any] = {"trust_annotations": True}
    config = {
        "projects": {"flat": {"exposure": "flat"}, "few": {"tools": ["*:find_*"]}},
        "servers": {
            "wiki": from_file(folder / "wiki.json", "wiki", LISTS, **homes),
            "wild": from_file(folder / "wild.json", "wild", LISTS),
            "home": from_file(folder / "home.json", "home", LISTS, projects=["flat", "few"], **homes),
        },
        "tokens": {
            "test": token("test"),
            "reader": token("reader", scopes=["read"]),
            "writer": token("writer", scopes=["write"]),
            "some": token("some", tools=["wiki:*", "!*:erase_*"]),
        },
    }
    async with gateway_process(folder, config, token="ptm_test") as process:
        yield process


@pytest.mark.parametrize("mode", BOTH_ERAS)
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("reader", {"wiki:find_page"}),
        ("writer", {"wiki:note_page"}),
        ("some", {"wiki:find_page", "wiki:note_page"}),
        ("test", {f"{server}:{verb}_page" for server in ("wiki", "wild") for verb in HINTS}),
    ],
)
async def test_discovery_and_execution_have_the_same_tools(
    gateway: GatewayProcess, mode: Mode, name: str, keys: set[str]
) -> None:
    async with assistant(gateway, mode, token=f"ptm_{name}") as client:
        assert set(await client.found("find, note or erase a page", max_results=100)) == keys
        everything = {f"{server}:{verb}_page" for server in ("wiki", "wild", "none") for verb in HINTS}
        for key in everything:
            answer = await client.execute(key)
            if key in keys:
                assert not answer.is_error, answer
                continue
            assert "unknown_tool" in str(answer.structured_content)
            shown = str(answer).replace(key, "")  # the nearest keys are among its own
            assert not [other for other in everything - keys if other in shown]


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_flat_lists_and_projects_are_limited_alike(gateway: GatewayProcess, mode: Mode) -> None:
    async with assistant(gateway, mode, token="ptm_reader", project="flat") as client:
        assert await client.tool_names() == ["home__find_page"]
        with pytest.raises(MCPError, match="Tool not found"):
            await client.client.call_tool("home__erase_page", {})
    async with assistant(gateway, mode, token="ptm_test", project="few") as client:
        assert await client.found("page", max_results=100) == ["home:find_page"]
        assert await client.refusal("home:erase_page") == "unknown_tool"
        assert "note" not in str(client.client.instructions)


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_reads_need_the_scope_read_and_no_trust(gateway: GatewayProcess, mode: Mode) -> None:
    async with assistant(gateway, mode, token="ptm_reader") as client:
        prompts = [prompt.name for prompt in (await client.client.list_prompts()).prompts]
        assert prompts == ["wiki__greet", "wild__greet"]
        assert await client.client.get_prompt("wild__greet")
        assert len((await client.client.list_resources()).resources) == 2
        assert await client.client.read_resource("pointsman+wild+note://today")
    async with assistant(gateway, mode, token="ptm_writer") as client:
        assert (await client.client.list_prompts()).prompts == []
        assert (await client.client.list_resources()).resources == []
        for read in (
            client.client.get_prompt("wiki__greet"),
            client.client.read_resource("pointsman+wiki+note://today"),
        ):
            with pytest.raises(MCPError):
                await read
