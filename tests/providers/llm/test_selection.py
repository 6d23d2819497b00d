"""Whatever a language model says: the same tools, near their places, with nearly their relevance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.providers.base import SearchHit
from pointsman.providers.llm.question import ids
from pointsman.providers.llm.selection import MAX_PLACES, MAX_SHIFT, InvalidSelectionError, apply, read

SHOWN = 20
FIGURES = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0])
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(ids(SHOWN + 3)) | st.text(max_size=3) | st.integers(),
        "score": st.floats() | st.integers() | st.just(10**400) | st.text(max_size=3) | st.none() | st.booleans(),
        "reason": st.text(max_size=300) | st.none() | st.integers(),
    },
)
ANSWERS = st.fixed_dictionaries({"selection": st.lists(ENTRIES | st.none() | st.text(max_size=2), max_size=40)})


def ranking(figures: list[float]) -> list[SearchHit]:
    ordered = sorted(figures, reverse=True)
    return [SearchHit(f"s:{place}", figure, "words", (0,)) for place, figure in enumerate(ordered)]


@settings(deadline=None)
@given(st.lists(FIGURES, max_size=60), ANSWERS)
def test_no_answer_moves_a_tool_far_or_adds_or_drops_one(figures: list[float], answer: dict[str, Any]) -> None:
    hits = ranking(figures)
    shown = min(SHOWN, len(hits))
    try:
        selection = read(answer, shown)
    except InvalidSelectionError:
        return  # nothing of it is applied
    moved = apply(hits, shown, selection)
    assert sorted(hit.tool_key for hit in moved) == sorted(hit.tool_key for hit in hits)
    before = {hit.tool_key: (place, hit.relevance) for place, hit in enumerate(hits)}
    for place, hit in enumerate(moved):
        old_place, old_relevance = before[hit.tool_key]
        assert abs(place - old_place) <= MAX_PLACES
        assert abs(hit.relevance - old_relevance) <= MAX_SHIFT + 1e-9
        assert 0 <= hit.relevance <= 1
        assert hit.intents == (0,)
        assert len(hit.explanation or "") <= 200
        assert (hit.explanation or "").isprintable()
    assert [hit.relevance for hit in moved] == sorted((hit.relevance for hit in moved), reverse=True)


def test_what_the_model_chooses_rises_and_what_it_leaves_out_sinks() -> None:
    hits = ranking([0.5, 0.45, 0.4, 0.35])
    answer = {"selection": [{"id": "t4", "score": 0.9, "reason": "  sends\nmail "}, {"id": "t2", "score": 0.5}]}
    moved = apply(hits, 4, read(answer, 4))
    assert [(hit.tool_key, round(hit.relevance, 3), hit.explanation) for hit in moved] == [
        ("s:3", 0.6, "sends mail"),
        ("s:1", 0.5, "words"),
        ("s:0", 0.25, "words"),
        ("s:2", 0.15, "words"),
    ]


def test_the_last_of_twenty_rises_nine_places_at_most() -> None:
    hits = ranking([0.5] * 20)
    moved = apply(hits, 20, read({"selection": [{"id": "t20", "score": 1, "reason": "me first"}]}, 20))
    assert [hit.tool_key for hit in moved].index("s:19") == 19 - MAX_PLACES


def test_invented_tools_are_counted_and_the_first_word_on_a_tool_counts() -> None:
    entries = [
        {"id": "t9", "score": 1},
        {"id": 1, "score": 1},
        "t1",
        {"id": "t1", "score": 7},
        {"id": "t1", "score": 0},
    ]
    selection = read({"selection": entries}, 2)
    assert selection.invented == 3
    assert selection.choices.keys() == {0}
    assert selection.choices[0].score == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "text",
        5,
        {},
        {"selection": None},
        {"selection": {"id": "t1"}},
        {"selection": [{"id": "t9", "score": 1}]},
        {"selection": [{"id": "t1"}]},
    ],
)
def test_what_is_no_selection_is_refused(answer: object) -> None:
    with pytest.raises(InvalidSelectionError):
        read(answer, 3)
