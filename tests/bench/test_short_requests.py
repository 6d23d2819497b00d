"""Short requests made from the descriptions of tools: put to servers that do not have the tool."""

from __future__ import annotations

from random import Random

from bench.quality.short_requests import EACH, LONGEST, draw_all
from pointsman.providers.base import ToolDocument


def servers() -> list[ToolDocument]:
    """Each has a tool of its own, one that every fifth server has, and one that does not say what it does."""
    return [
        ToolDocument(f"s{number}:{name}", name, f"s{number}", description, {})
        for number in range(100)
        for name, description in (
            (f"delete_thing_{number}", f"Delete thing {number} by its `id`, at once and for good"),
            (f"list_kind_{number % 5}", f"List kind {number % 5} for customers of server {number}. Sorted."),
            (f"misc_{number}", "Miscellaneous"),
        )
    ]


def test_a_request_is_right_only_where_another_author_has_a_tool_of_that_name() -> None:
    drawn = list(draw_all(servers(), Random(1)))
    assert drawn
    for each in drawn:
        keys = {tool.tool_key for tool in each.tools}
        assert 0 < len(each.right) <= EACH
        assert 0 < len(each.foreign) <= EACH
        for asked in each.right:
            (wanted,) = asked.wanted
            assert asked.query.startswith("List kind")
            assert wanted <= keys
        for asked in each.foreign:
            assert f"s{asked.query.split()[2]}:delete_thing_{asked.query.split()[2]}" not in keys


def test_a_request_says_what_is_done_without_details() -> None:
    asked = [each for drawn in draw_all(servers(), Random(2)) for each in (*drawn.right, *drawn.foreign)]
    assert {each.query.split()[0] for each in asked} == {"Delete", "List"}
    assert max(len(each.query.split()) for each in asked) <= LONGEST
    assert not any("id" in each.query for each in asked)
