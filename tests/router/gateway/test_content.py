"""Nothing is lost on the way through: all kinds of content, large results, rounds of questions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import audit_rows
from tests.router.gateway.test_resources import library
from tests.router.raw_client import ERAS, Era, Speaker, speaker
from tests.servers.library import HALF_A_PAIR, MEDIA

FORM: dict[str, Any] = {"elicitation": {"form": {}}}


def config() -> dict[str, Any]:
    return {
        "projects": {"flat": {"exposure": "flat"}},
        "servers": {
            "old": library("old", "legacy", projects=[]),
            "new": library("new", "modern", projects=[]),
            "old-flat": library("old", "legacy", prefix="old__", projects=["flat"]),
            "new-flat": library("new", "modern", prefix="new__", projects=["flat"]),
        },
    }


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    async with gateway_process(tmp_path_factory.mktemp("gateway"), config()) as process:
        yield process


@pytest.mark.parametrize("behind", ["old", "new"])
@pytest.mark.parametrize("era", ERAS)
async def test_all_kinds_of_content_pass_unchanged(gateway: GatewayProcess, era: Era, behind: str) -> None:
    async with speaker(gateway, era) as client, speaker(gateway, era, project="flat") as flat:
        meta = await client.call("tool_execute", {"toolKey": f"{behind}:media"})
        plain = await flat.call(f"{behind}__media")
    assert meta["content"] == plain["content"] == MEDIA
    assert meta["structuredContent"] == {"result": {"kinds": 6}}
    assert plain["structuredContent"] == {"kinds": 6}
    assert meta["_meta"]["vendor/total"] == plain["_meta"]["vendor/total"] == 6


@pytest.mark.parametrize("behind", ["old", "new"])
async def test_half_a_character_in_one_description_costs_no_tool(gateway: GatewayProcess, behind: str) -> None:
    async with speaker(gateway, "modern", project="flat") as flat:
        listed = {tool["name"]: tool for tool in await flat.every("tools/list", "tools")}
    assert listed[f"{behind}__media"]["description"] == HALF_A_PAIR.replace("\ud83d", "\ufffd")
    assert f"{behind}__touch" in listed


@pytest.mark.parametrize("behind", ["old", "new"])
@pytest.mark.parametrize("era", ERAS)
async def test_results_of_several_megabytes_pass(gateway: GatewayProcess, era: Era, behind: str) -> None:
    size = 6_000_000
    async with speaker(gateway, era) as client, speaker(gateway, era, project="flat") as flat:
        client.meta = {"pointsman/whole": True}
        answer = await client.call("tool_execute", {"toolKey": f"{behind}:big", "arguments": {"bytes": size}})
        assert len(answer["content"][0]["text"]) == size
        answer = await flat.call(f"{behind}__big", {"bytes": size})
        assert len(answer["content"][0]["text"]) == size


@pytest.mark.parametrize("era", ERAS)
async def test_lists_as_structured_content_reach_those_that_may_have_them(gateway: GatewayProcess, era: Era) -> None:
    async with speaker(gateway, era) as client, speaker(gateway, era, project="flat") as flat:
        wrapped = await client.call("tool_execute", {"toolKey": "new:list"})
        plain = await flat.call("new__list")
    assert wrapped["structuredContent"] == {"result": [1, 2]}
    assert plain.get("structuredContent") == (None if era == "legacy" else [1, 2])
    assert plain["content"][0]["text"] == "[1,2]"


async def test_an_answer_of_the_wrong_shape_never_reaches_a_legacy_server(gateway: GatewayProcess) -> None:
    call = {"name": "tool_execute", "arguments": {"toolKey": "old:confirm"}}
    async with speaker(gateway, "modern", capabilities=FORM) as client:
        asked = await client.result("tools/call", call)
        [key] = asked["inputRequests"]
        retry = {**call, "requestState": asked["requestState"]}
        broken = await client.error("tools/call", {**retry, "inputResponses": {key: {"action": "perhaps"}}})
        assert (broken["code"], f"`inputResponses.{key}`: `action`" in broken["message"]) == (-32602, True)
        answer = await client.result("tools/call", {**retry, "inputResponses": {key: {"action": "decline"}}})
    assert answer["content"][0]["text"] == "decline"


async def confirmed(client: Speaker, name: str, arguments: dict[str, Any]) -> str:
    """Two rounds: a question, and the same request again with the answer."""
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    asked = await client.result("tools/call", params)
    assert asked["resultType"] == "input_required"
    [key] = asked["inputRequests"]
    again = {"inputResponses": {key: {"action": "accept", "content": {}}}, "requestState": asked["requestState"]}
    answer = await client.result("tools/call", params | again)
    text: str = answer["content"][0]["text"]
    return text


@pytest.mark.parametrize(("behind", "said"), [("old", "accept"), ("new", "accept state-of-the-library")])
async def test_each_round_of_questions_of_a_modern_client_is_a_row(tmp_path: Path, behind: str, said: str) -> None:
    async with (
        gateway_process(tmp_path, config()) as gateway,
        speaker(gateway, "modern", capabilities=FORM) as client,
        speaker(gateway, "modern", project="flat", capabilities=FORM) as flat,
        speaker(gateway, "modern") as mute,
    ):
        assert await confirmed(client, "tool_execute", {"toolKey": f"{behind}:confirm"}) == said
        assert await confirmed(flat, f"{behind}__confirm", {}) == said
        if behind == "old":
            answer = await mute.call("tool_execute", {"toolKey": "old:confirm"})
            assert "accept" not in answer["content"][0]["text"]
    rows = [(row["toolKey"], row["outcome"]) for row in await audit_rows(tmp_path / "state")]
    assert rows[:4] == [
        (f"{behind}:confirm", "input_required"),
        (f"{behind}:confirm", "ok"),
        (f"{behind}-flat:confirm", "input_required"),
        (f"{behind}-flat:confirm", "ok"),
    ]
    assert rows[4:] == ([("old:confirm", "ok")] if behind == "old" else [])
