"""Discovery on the golden set: the gates that no change may fall below, by words alone and with embeddings."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from pointsman.catalog.answer import render_answer
from pointsman.catalog.results import DOUBTFUL, NOTHING_FITS
from pointsman.catalog.service import ToolCatalogService
from tests.golden.golden import ME, golden_catalog, keys, place, requests, servers, steps, unfit

MAX_TOKENS = 400  # of the median answer with five results
MIN_AUC = 0.95  # area under the ROC curve, of right hits against requests that nothing fits
LOW = 0.2  # what is right is not shown below this


@dataclass(frozen=True)
class Floor:
    """The share of requests whose right tool must come first, and be among the first three."""

    first: float
    first_three: float


WORDS = {
    "plain": Floor(0.96, 1.0),
    "terse": Floor(1.0, 1.0),
    "wordy": Floor(1.0, 1.0),
    "other words": Floor(0.39, 0.67),
    "japanese": Floor(1.0, 1.0),
    "chinese": Floor(0.8, 1.0),
    "mixed": Floor(1.0, 1.0),
}
EMBEDDINGS = WORDS | {"plain": Floor(1.0, 1.0), "other words": Floor(0.5, 0.67)}
FLOORS = {False: WORDS, True: EMBEDDINGS}

both_ways = pytest.mark.parametrize("embeddings", [False, True], ids=["words", "embeddings"])


def test_the_set_is_large_enough_and_every_right_answer_exists() -> None:
    known = {f"{server.id}:{tool['name']}" for server in servers() for tool in server.tools}
    named = {key for request in requests() for key in request.right}
    named |= {key for task in steps() for right in task.right for key in right}
    assert named <= known
    assert len(known) >= 120
    assert len(servers()) >= 15
    assert len(requests()) >= 60
    assert len(unfit()) >= 15
    assert {request.how for request in requests()} == WORDS.keys()


@pytest.mark.no_cover
@both_ways
@pytest.mark.parametrize("how", WORDS)
async def test_the_right_tool_comes_first_or_among_the_first(how: str, embeddings: bool) -> None:
    catalog = golden_catalog(embeddings)
    places: dict[str, int | None] = {}
    for request in requests():
        if request.how == how:
            outcome = await catalog.search(ME, [request.ask], None, 10)
            places[request.ask] = place(keys(outcome), request.right)
    missed = {ask: at for ask, at in places.items() if at != 0}
    assert _share(at == 0 for at in places.values()) >= FLOORS[embeddings][how].first, missed
    within = _share(at is not None and at < 3 for at in places.values())
    assert within >= FLOORS[embeddings][how].first_three, missed


@both_ways
async def test_what_nothing_fits_gets_low_figures_and_is_told_so(embeddings: bool) -> None:
    catalog = golden_catalog(embeddings)
    best = await best_of_unfit(catalog)
    assert {ask: relevance for ask, relevance in best.items() if relevance >= DOUBTFUL} == {}
    for ask in best:
        notice = (await catalog.search(ME, [ask], None, 10)).notice
        assert notice is not None
        assert notice.startswith(NOTHING_FITS)


@both_ways
async def test_what_is_found_is_seldom_called_doubtful(embeddings: bool) -> None:
    found = await best_of_right(golden_catalog(embeddings))
    doubtful = {ask: relevance for ask, relevance in found.items() if relevance < DOUBTFUL}
    assert len(doubtful) <= 0.07 * len(found), doubtful
    assert {ask: relevance for ask, relevance in found.items() if relevance < LOW} == {}


@both_ways
async def test_relevance_tells_right_hits_from_requests_that_nothing_fits(embeddings: bool) -> None:
    catalog = golden_catalog(embeddings)
    right, wrong = (await best_of_right(catalog)).values(), (await best_of_unfit(catalog)).values()
    pairs = [1.0 if good > bad else 0.5 if good == bad else 0.0 for good in right for bad in wrong]
    assert statistics.mean(pairs) >= MIN_AUC


@both_ways
async def test_the_steps_of_a_task_have_their_tools_among_five_results(embeddings: bool) -> None:
    catalog = golden_catalog(embeddings)
    served: dict[str, bool] = {}
    for task in steps():
        outcome = await catalog.search(ME, task.ask, None, 5)
        assert {index for found in outcome.results for index in found.intents} == set(range(len(task.ask)))
        for index, right in enumerate(task.right):
            at = place(keys(outcome), right)
            served[task.ask[index]] = at is not None and index in outcome.results[at].intents
    assert _share(served.values()) >= 0.94, [ask for ask, found in served.items() if not found]


@both_ways
async def test_the_median_answer_is_short(embeddings: bool) -> None:
    catalog = golden_catalog(embeddings)
    sizes = []
    for request in requests():
        shown = render_answer(await catalog.search(ME, [request.ask], None, 5))
        sizes.append(len(json.dumps(shown, separators=(",", ":"), ensure_ascii=False)) / 4)
    assert statistics.median(sizes) <= MAX_TOKENS


async def best_of_right(catalog: ToolCatalogService) -> dict[str, float]:
    """The relevance of the first result, for the requests where it is the right one."""
    outcomes = {request: await catalog.search(ME, [request.ask], None, 10) for request in requests()}
    return {
        request.ask: outcome.results[0].relevance
        for request, outcome in outcomes.items()
        if place(keys(outcome), request.right) == 0
    }


async def best_of_unfit(catalog: ToolCatalogService) -> dict[str, float]:
    outcomes = {ask: await catalog.search(ME, [ask], None, 10) for ask in unfit()}
    return {ask: max((found.relevance for found in outcome.results), default=0.0) for ask, outcome in outcomes.items()}


def _share(found: Iterable[bool]) -> float:
    return statistics.mean(map(float, found))
