"""The figures of `make quality` are what their names say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.quality.metrics import area_under_curve, found_at, judge
from bench.quality.sets import Asked, load_sets, spread

ROOT = Path(__file__).parents[2]
TWO = Asked("", (frozenset({"a", "a2"}), frozenset({"b"})))


def test_an_equal_of_a_wanted_tool_counts_and_both_count_once() -> None:
    assert found_at(TWO, ["x", "a2", "a", "b"]) == [1, 3]


def test_recall_is_the_share_found_and_complete_means_all() -> None:
    figures = judge(TWO, ["a", "x", "x", "x", "x", "b"])
    assert (figures.recall_1, figures.recall_5, figures.recall_10, figures.complete_5) == (0.5, 0.5, 1, 0)
    assert figures.mrr == 1


def test_the_best_order_has_the_best_gain() -> None:
    assert judge(TWO, ["b", "a"]).ndcg_10 == 1
    assert judge(TWO, ["x", "b", "a"]).ndcg_10 == pytest.approx((0.6309 + 0.5) / 1.6309, abs=1e-4)
    assert judge(TWO, []).ndcg_10 == 0


def test_the_area_counts_equal_figures_half() -> None:
    assert area_under_curve([0.9, 0.8], [0.1, 0.2]) == 1
    assert area_under_curve([0.5], [0.5]) == 0.5
    assert area_under_curve([0.9, 0.1], [0.5]) == 0.5


def test_sets_without_requests_are_left_out(tmp_path: Path) -> None:
    for name, queries in (("one", '{"query": "q", "gold": ["s:t"], "alt": {"s:t": ["s:u"]}}\n'), ("two", "")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tools.jsonl").write_text('{"server": "s", "name": "t", "description": null, "inputSchema": {}}\n')
        (folder / "queries.jsonl").write_text(queries)
    [only] = load_sets(tmp_path)
    assert only.asked == (Asked("q", (frozenset({"s:t", "s:u"}),)),)
    assert only.documents[0].tool_key == "s:t"


def test_a_sample_comes_from_all_over_the_set() -> None:
    asked = tuple(Asked(str(number), ()) for number in range(10))
    assert [each.query for each in spread(asked, 5)] == ["0", "2", "4", "6", "8"]
    assert len(spread(asked, 20)) == 10


def test_without_the_sets_nothing_is_measured_and_nothing_fails() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "POINTSMAN_TOOL_SEARCH_DATA"}
    command = [sys.executable, "-m", "bench.quality", "sqlite"]  # tests/archive compares the engines
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "POINTSMAN_TOOL_SEARCH_DATA" in done.stdout
