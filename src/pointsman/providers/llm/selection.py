"""What a language model's selection may do to a ranking: little, whatever it says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pointsman.providers.base import SearchHit
from pointsman.providers.llm.question import ids
from pointsman.providers.visible import visible_line

MAX_PLACES = 9  # that a tool moves, up or down
MAX_SHIFT = 0.25  # of its relevance
MAX_REASON_CHARS = 200


class InvalidSelectionError(ValueError):
    """The answer has not the shape that was asked for, or holds nothing that makes sense."""

    def __init__(self, invented: int = 0) -> None:
        super().__init__("the answer is no selection")
        self.invented = invented  # entries for tools that were not there


@dataclass(frozen=True, slots=True)
class Choice:
    score: float  # 0..1
    reason: str


@dataclass(frozen=True, slots=True)
class Selection:
    choices: Mapping[int, Choice]  # by their place in the shortlist
    invented: int  # entries for tools that were not there


def read(answer: Any, shown: int) -> Selection:
    """Raises InvalidSelectionError. An entry that makes no sense is left out, as long as another one does."""
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
        raise InvalidSelectionError(
            invented
        )  # to choose nothing is a judgement; to say nothing that makes sense is none
    return Selection(choices, invented)


def _figure(score: object) -> float | None:
    """Within 0..1. A whole number of JSON may be too large for a float, and is a figure all the same."""
    if isinstance(score, int) or (isinstance(score, float) and math.isfinite(score)):
        return float(min(max(score, 0), 1))
    return None


def applied(hits: Sequence[SearchHit], shown: int, selection: Selection) -> list[SearchHit]:
    """`hits`, of which the model saw the first `shown`, in the order that follows from what it said.

    The same tools, each at most `MAX_PLACES` from where it was and with at most `MAX_SHIFT` more or less relevance,
    and ordered by that. Expects `hits` to be ordered by relevance.
    """
    wanted = [_wanted(hit, place, shown, selection) for place, hit in enumerate(hits)]
    order = _order(wanted)
    relevance = 0.0
    moved: list[SearchHit] = []
    for place in reversed(order):
        # One that could not move far enough is worth what stands below it. That was below it before, too, so that
        # it stays within its own bounds.
        relevance = max(relevance, wanted[place])
        choice = selection.choices.get(place)
        explanation = choice.reason if choice is not None and choice.reason else hits[place].explanation
        moved.append(replace(hits[place], relevance=relevance, explanation=explanation))
    return moved[::-1]


def _wanted(hit: SearchHit, place: int, shown: int, selection: Selection) -> float:
    """The relevance that the model gives, as far as it may; what it saw and did not choose, it gives none."""
    if place >= shown:
        return hit.relevance
    choice = selection.choices.get(place)
    score = choice.score if choice is not None else 0.0
    return min(max(score, hit.relevance - MAX_SHIFT), hit.relevance + MAX_SHIFT)


def _order(wanted: Sequence[float]) -> list[int]:
    """Old places in their new order: the best first of all that may stand here, unless one must."""
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
