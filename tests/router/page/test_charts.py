"""Charts as SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from pointsman.router.page.charts import bars, lines, nice_top


@pytest.mark.parametrize(("most", "top"), [(0, 1), (1, 1), (3, 5), (10, 10), (11, 20), (999, 1000), (51_000, 100_000)])
def test_the_axis_ends_at_a_round_number(most: float, top: float) -> None:
    assert nice_top(most) == top


def test_bars_are_as_high_as_their_share_and_errors_stand_at_the_foot() -> None:
    svg = ElementTree.fromstring(bars([(10, 5), (0, 0), (5, 0)], label="a & b <c>", first="x", last="y"))
    heights = [(each.get("class"), float(each.get("height", 0))) for each in svg.iter("rect")]
    assert heights[0][1] == pytest.approx(2 * heights[1][1])
    assert [name for name, _ in heights] == ["bar", "bar-bad", "bar"]
    assert svg.get("aria-label") == "a & b <c>"


def test_lines_have_gaps_and_single_values_are_dots() -> None:
    svg = ElementTree.fromstring(
        lines([("p50", [1, 2, None, 3])], label="latency", unit=" ms", first="then", last="now")
    )
    assert len(list(svg.iter("polyline"))) == 1
    assert len(list(svg.iter("circle"))) == 1


def test_nothing_is_said_to_be_nothing() -> None:
    assert "Nothing in the last hour" in bars([(0, 0)] * 60, label="", first="", last="")
