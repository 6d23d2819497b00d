"""Prompts and completions of all servers, under names that lead back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.gateway.test_resources import assert_names_the_absent, config, mortal, take_away
from tests.router.raw_client import ERAS, WAIT_S, Era, Speaker, speaker


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    async with gateway_process(tmp_path_factory.mktemp("gateway"), config()) as process:
        yield process


@pytest.mark.parametrize("era", ERAS)
async def test_prompts_are_listed_with_their_servers_prefix_and_got_by_that_name(
    gateway: GatewayProcess, era: Era
) -> None:
    async with speaker(gateway, era) as client:
        names = [prompt["name"] for prompt in await client.every("prompts/list", "prompts")]
        assert names == ["old__greet", "new_one__greet"]
        for name, tag in (("old__greet", "the old library"), ("new_one__greet", "the new library")):
            answer = await client.result("prompts/get", {"name": name, "arguments": {"who": "Ada"}})
            assert answer["messages"][0]["content"]["resource"] == {
                "uri": "note://prompt",
                "text": f"{tag} greets Ada",
            }


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_prefix_the_first_in_the_file_has_the_name(gateway: GatewayProcess, era: Era) -> None:
    async with speaker(gateway, era, project="bare") as client:
        assert [prompt["name"] for prompt in await client.every("prompts/list", "prompts")] == ["greet"]
        answer = await client.result("prompts/get", {"name": "greet"})
        assert answer["messages"][0]["content"]["resource"]["text"] == "bare a greets you"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["secret__greet", "none__greet", "greet", "old__", ""])
async def test_what_may_not_be_used_looks_like_what_does_not_exist(
    gateway: GatewayProcess, era: Era, name: str
) -> None:
    async with speaker(gateway, era) as client:
        refused = await client.error("prompts/get", {"name": name})
        unknown = await client.error("prompts/get", {"name": "no-such-prompt"})
        completion = {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "who", "value": "A"}}
        assert (await client.error("completion/complete", completion)) == unknown
    assert refused == unknown
    assert refused["code"] == -32602


async def test_a_servers_own_refusal_passes(gateway: GatewayProcess) -> None:
    async with speaker(gateway, "modern") as client:
        refused = await client.error("prompts/get", {"name": "old__nothing"})
    assert (refused["code"], refused["message"]) == (-32602, "Unknown prompt nothing")


@pytest.mark.parametrize("era", ERAS)
async def test_completions_go_where_the_reference_leads(gateway: GatewayProcess, era: Era) -> None:
    argument = {"name": "who", "value": "A"}
    async with speaker(gateway, era) as client:
        for ref, value in (
            ({"type": "ref/prompt", "name": "new_one__greet"}, "the new library:greet:A"),
            (
                {"type": "ref/resource", "uri": "pointsman+old+book://shelf/{number}{?edition}"},
                "the old library:book://shelf/{number}{?edition}:A",
            ),
        ):
            answer = await client.result("completion/complete", {"ref": ref, "argument": argument})
            assert answer["completion"]["values"] == [value]
        for ref in ({"type": "ref/resource", "uri": "pointsman+secret+note://{+path}"}, {"type": "ref/else"}, {}):
            error = await client.error("completion/complete", {"ref": ref, "argument": argument})
            assert error["code"] == -32602


async def test_a_prompt_never_goes_over_to_another_server_while_its_own_is_away(tmp_path: Path) -> None:
    entries = {"servers": {one: mortal(tmp_path, one, prefix="") for one in ("f1", "f2")}}
    async with gateway_process(tmp_path, entries) as gateway, speaker(gateway, "modern") as client:
        assert await greeting(client, "greet") == "f1 greets you"
        await client.call("tool_execute", {"toolKey": "f2:add_prompt", "arguments": {"name": "only-here"}})
        async with asyncio.timeout(WAIT_S):
            while len(await client.every("prompts/list", "prompts")) < 2:
                await asyncio.sleep(0.02)
        await take_away(tmp_path, client, "f1")
        assert_names_the_absent(await client.error("prompts/get", {"name": "greet"}), "f1")
        assert_names_the_absent(await client.error("completion/complete", completion_of("greet")), "f1")
        assert [prompt["name"] for prompt in await client.every("prompts/list", "prompts")] == ["only-here"]
        assert await greeting(client, "only-here") == "f2 greets you"


@pytest.mark.parametrize("heard", [True, False])
async def test_a_server_that_is_away_is_named_beside_one_without_a_prefix(tmp_path: Path, heard: bool) -> None:
    entries = {"servers": {"f1": mortal(tmp_path, "f1", prefix=""), "f4": mortal(tmp_path, "f4")}}
    async with gateway_process(tmp_path, entries) as gateway, speaker(gateway, "modern") as client:
        if heard:
            assert await greeting(client, "f4__greet") == "f4 greets you"
        await take_away(tmp_path, client, "f4")
        assert_names_the_absent(await client.error("prompts/get", {"name": "f4__greet"}), "f4")
        assert_names_the_absent(await client.error("completion/complete", completion_of("f4__greet")), "f4")
        assert await greeting(client, "greet") == "f1 greets you"


async def greeting(client: Speaker, name: str) -> str:
    answer = await client.result("prompts/get", {"name": name})
    text: str = answer["messages"][0]["content"]["resource"]["text"]
    return text


def completion_of(name: str) -> dict[str, Any]:
    return {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "who", "value": "A"}}
