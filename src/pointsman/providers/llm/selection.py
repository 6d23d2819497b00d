"""Applies a language model's selection to a ranking, within tight bounds whatever the model says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from pointsman.providers.base import SearchHit
from pointsman.providers.llm.question import ids
from pointsman.providers.visible import visible_line

MAX_PLACES = 9  # that a tool moves, up or down
MAX_SHIFT = 0.25  # of its relevance
MAX_REASON_CHARS = 200


class InvalidSelectionError(ValueError):
    """The answer does not have the requested shape, or no valid entry."""

    def __init__(self, invented: int = 0) -> None:
        super().__init__("the answer is not a selection")
        self.invented = invented  # entries for tools that were not in the shortlist


@dataclass(frozen=True, slots=True)
class Choice:
    score: float  # 0..1
    reason: str


@dataclass(frozen=True, slots=True)
class Selection:
    choices: Mapping[int, Choice]  # by their place in the shortlist
    invented: int  # entries for tools that were not in the shortlist


def read(answer: Any, shown: int) -> Selection:
    """Parse the answer. Invalid entries are skipped as long as there is a valid one. Raises InvalidSelectionError."""
    entries = answer.get("selection") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise InvalidSelectionError
    places = {name: place for place, name in enumerate(ids(shown))}
    choices: dict[int, Choice] = {}
    invented = 0
    for entry in entries:
        named, score = (entry.get("id"), entry.get("score")) if isinstance(entry, dict) else (None, None)
        place = places.get(named) if isinstance(named, str) else None
        if place is None:
            invented += 1
        elif place not in choices and (figure := _figure(score)) is not None:
            reason = entry.get("reason")
            choices[place] = Choice(figure, visible_line(reason, MAX_REASON_CHARS) if isinstance(reason, str) else "")
    if entries and not choices:
        raise InvalidSelectionError(invented)  # an empty selection is valid, one of invalid entries is not
    return Selection(choices, invented)


def _figure(score: object) -> float | None:
    """The score within 0..1; None: not a number. A JSON integer may be too large for a float."""
    if isinstance(score, int) or (isinstance(score, float) and math.isfinite(score)):
        return float(min(max(score, 0), 1))
    return None


def apply(hits: Sequence[SearchHit], shown: int, selection: Selection) -> list[SearchHit]:
    """Reorder `hits`, of which the model saw the first `shown`, by its selection.

    Each tool moves at most `MAX_PLACES` and its relevance at most `MAX_SHIFT`. The result is ordered by relevance, as
    `hits` must be.
    """
    wanted = [_wanted(hit, place, shown, selection) for place, hit in enumerate(hits)]
    order = _order(wanted)
    relevance = 0.0
    moved: list[SearchHit] = []
    for place in reversed(order):
        # A tool that could not move far enough gets the relevance of the one below it, which was below it before, too,
        # so that it stays within its own bounds.
        relevance = max(relevance, wanted[place])
        choice = selection.choices.get(place)
        explanation = choice.reason if choice is not None and choice.reason else hits[place].explanation
        moved.append(replace(hits[place], relevance=relevance, explanation=explanation))
    return moved[::-1]


def _wanted(hit: SearchHit, place: int, shown: int, selection: Selection) -> float:
    """The model's relevance within the bounds; 0, before bounds, for a tool that it saw and did not choose."""
    if place >= shown:
        return hit.relevance
    choice = selection.choices.get(place)
    score = choice.score if choice is not None else 0.0
    return min(max(score, hit.relevance - MAX_SHIFT), hit.relevance + MAX_SHIFT)


def _order(wanted: Sequence[float]) -> list[int]:
    """The old places in their new order: at each place the best tool that may move there, unless one must."""
    left = list(range(len(wanted)))
    order: list[int] = []
    for place in range(len(wanted)):
        if left[0] <= place - MAX_PLACES:
            best = left[0]
        else:
            best = max((old for old in left if old <= place + MAX_PLACES), key=lambda old: (wanted[old], -old))
        left.remove(best)
        order.append(best)
    return order
