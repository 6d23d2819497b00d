"""We speak with servers that are built on the mcp SDK, in both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pointsman.core.model import Json
from pointsman.core.seams import Era
from pointsman.router.downstream.connection import Call
from tests.router.downstream.http_parts import Back, call_of, connected, front_request, text_of
from tests.servers.http_sdk import sdk_server


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with sdk_server() as found:
        yield found


async def test_the_modern_era_is_found_by_itself(url: str) -> None:
    async with connected(url) as connection:
        assert connection.introduction.era == "modern"
        assert connection.introduction.server_info["name"] == "sdk"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_tools_are_listed_and_called(url: str, era: Era) -> None:
    async with connected(url, era) as connection:
        assert connection.introduction.era == era
        page = await connection.request(Call("tools/list", {}))
        assert {tool["name"] for tool in page["tools"]} == {"add", "steps", "greet"}
        for number in range(3):
            assert text_of(await connection.request(call_of("add", a=number, b=1))) == str(number + 1)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_progress_arrives(url: str, era: Era) -> None:
    back = Back()
    async with connected(url, era) as connection:
        await connection.request(call_of("steps", back, front_request(progress_token="p")))
    assert [params["progress"] for _, params in back.told] == [1, 2, 3]


async def test_a_question_is_answered(url: str) -> None:
    async def answer(method: str, params: Json) -> Json:
        return {"action": "accept", "content": {"name": "Ada"}}

    async with connected(url, "legacy") as connection:
        assert text_of(await connection.request(call_of("greet", Back(answer)))) == "hello Ada"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_unknown_tool_is_the_servers_own_error(url: str, era: Era) -> None:
    async with connected(url, era) as connection:
        result = await connection.request(call_of("nothing"))
        assert result["isError"] is True
