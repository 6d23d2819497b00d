"""Moves tools up that a project chose before for such requests: a little, and never past a plainly better match."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pointsman.catalog.notices import DOUBTFUL
from pointsman.catalog.results import Found

# For a project and its queries: by tool key, from 0 to 1, how regularly it was chosen for such requests.
UsageFigures = Callable[[str | None, Sequence[str]], Mapping[str, float]]

# What usage can be worth at the most, in log odds of the relevance: .40 gets past .50 and .70 past .79, not more.
MAX_LIFT = 0.5
LOOK_BELOW = 10  # results beyond those asked for that may still move up
NOTE = "chosen before for such requests"

_SURE = 0.98  # the odds of a certainty would be without bounds


def no_usage(project_id: str | None, queries: Sequence[str]) -> Mapping[str, float]:
    return {}


def lifted(results: Sequence[Found], figures: Mapping[str, float]) -> tuple[Found, ...]:
    """The results in the order that usage gives them; one that moved up says so. The relevance stays as it was."""
    order: list[Found] = []
    for found in results:
        lift = _lift(found, figures)
        place = len(order)
        while lift and place and _odds(found) + lift > _odds(order[place - 1]) + _lift(order[place - 1], figures):
            place -= 1
        moved = place < len(order)
        order.insert(place, replace(found, explanation=_noted(found.explanation)) if moved else found)
    return tuple(order)


def _lift(found: Found, figures: Mapping[str, float]) -> float:
    if found.relevance < DOUBTFUL:
        return 0.0  # what does not fit is not made to fit by being popular
    figure = figures.get(found.tool.document.tool_key, 0.0)
    return MAX_LIFT * min(max(figure, 0.0), 1.0) if figure == figure else 0.0  # NaN


def _odds(found: Found) -> float:
    relevance = min(max(found.relevance, 1 - _SURE), _SURE)
    return math.log(relevance / (1 - relevance))


def _noted(explanation: str | None) -> str:
    return f"{NOTE}; {explanation}" if explanation else NOTE
