"""Walking a list, whatever the server sends."""

from __future__ import annotations

from typing import Any

import pytest

from pointsman.catalog.lists.pages import MalformedListError, walk
from pointsman.core.errors import DownstreamError, ServerUnavailableError
from tests.catalog.sources import tool


class Pages:
    """Answers a script: each entry is a page or an error, in the order of the questions."""

    def __init__(self, *script: Any) -> None:
        self._script = list(script)
        self.cursors: list[str | None] = []

    async def __call__(self, cursor: str | None) -> Any:
        self.cursors.append(cursor)
        answer = self._script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def page(*names: str, following: Any = None, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = {"tools": [tool(name) for name in names], **more}
    return answer if following is None else {**answer, "nextCursor": following}


async def test_all_pages_are_walked_in_order() -> None:
    pages = Pages(page("a", following="1"), page("b", following="2"), page("c"))
    walked = await walk(pages)
    assert list(walked.items) == ["a", "b", "c"]
    assert pages.cursors == [None, "1", "2"]
    assert not walked.cut


async def test_an_empty_cursor_is_the_end() -> None:
    walked = await walk(Pages(page("a", following="")))
    assert list(walked.items) == ["a"]
    assert not walked.cut


async def test_cursors_that_lead_in_a_circle_are_left() -> None:
    walked = await walk(Pages(page("a", following="1"), page("b", following="2"), page("c", following="1")))
    assert list(walked.items) == ["a", "b", "c"]
    assert walked.cut


@pytest.mark.parametrize("cursor", [7, ["x"], {"x": 1}, True])
async def test_a_cursor_of_another_type_ends_the_walk(cursor: object) -> None:
    walked = await walk(Pages(page("a", following=cursor)))
    assert list(walked.items) == ["a"]
    assert walked.cut


async def test_an_endless_list_is_cut_by_pages() -> None:
    walked = await walk(Pages(*(page(f"t{n}", following=str(n)) for n in range(9))), max_pages=4)
    assert list(walked.items) == ["t0", "t1", "t2", "t3"]
    assert walked.cut


async def test_an_endless_page_is_cut_by_tools() -> None:
    walked = await walk(Pages(page("a", "b", "c", "d")), max_items=3)
    assert list(walked.items) == ["a", "b", "c"]
    assert walked.cut


@pytest.mark.parametrize(
    "broken",
    [
        None,
        "read",
        {},
        {"name": 5, "inputSchema": {}},
        {"name": "", "inputSchema": {}},
        {"name": "x" * 5000, "inputSchema": {}},
        {"name": "x", "inputSchema": None},
        {"name": "x", "inputSchema": []},
        {"name": "x", "inputSchema": "object"},
    ],
)
async def test_an_entry_that_is_no_tool_is_skipped_and_counted(broken: object) -> None:
    walked = await walk(Pages({"tools": [broken, tool("good")]}))
    assert list(walked.items) == ["good"]
    assert walked.skipped == 1


async def test_a_tool_without_a_schema_takes_anything() -> None:
    assert list((await walk(Pages({"tools": [{"name": "bare"}]}))).items) == ["bare"]


async def test_of_two_tools_with_one_name_the_first_counts() -> None:
    walked = await walk(Pages({"tools": [tool("a", "first"), tool("a", "second")], "nextCursor": "1"}, page("a")))
    assert walked.items["a"]["description"] == "first"
    assert walked.skipped == 2


async def test_one_bad_page_costs_only_itself() -> None:
    walked = await walk(Pages(page("a", following="1"), {"tools": "none", "nextCursor": "2"}, page("b")))
    assert list(walked.items) == ["a", "b"]
    assert walked.skipped == 1


@pytest.mark.parametrize("answer", [None, [], "tools", {}, {"tools": None}, {"tools": {"name": "a"}}])
async def test_an_answer_without_any_list_is_no_empty_list(answer: object) -> None:
    with pytest.raises(MalformedListError):
        await walk(Pages(answer))


async def test_an_expired_cursor_starts_the_walk_again_once() -> None:
    expired = DownstreamError(-32602, "cursor expired")
    pages = Pages(page("old", following="1"), expired, page("a", following="2"), page("b"))
    assert list((await walk(pages)).items) == ["a", "b"]

    with pytest.raises(DownstreamError):
        await walk(Pages(page("a", following="1"), expired, page("a", following="1"), expired))


@pytest.mark.parametrize(
    "error",
    [
        DownstreamError(-32601, "no such method"),
        DownstreamError(-32602, "no"),
        ServerUnavailableError("s", "x"),
    ],
)
async def test_other_refusals_are_passed_on(error: Exception) -> None:
    pages = Pages(error)
    with pytest.raises(type(error)):
        await walk(pages)
    assert len(pages.cursors) == 1


@pytest.mark.parametrize(
    ("said", "ttl_s"),
    [(None, None), (2500, 2.5), (0, 0.0), (-5, 0.0), (10**400, 86_400.0), (True, None), ("1000", None)],
)
async def test_the_time_to_live_is_read_from_the_page(said: object, ttl_s: float | None) -> None:
    walked = await walk(Pages(page("a") if said is None else page("a", ttlMs=said)))
    assert walked.ttl_s == ttl_s


async def test_the_shortest_time_to_live_of_all_pages_counts() -> None:
    walked = await walk(Pages(page("a", following="1", ttlMs=9000), page("b", ttlMs=4000), page("c", ttlMs=6000)))
    assert walked.ttl_s == 4.0
