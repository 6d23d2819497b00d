"""Usage changes the order a little: near ties are settled, plain matches stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from pointsman.catalog.results import MAX_LIFT, USAGE_NOTE, SearchOutcome, SearchResult, rank_by_usage
from pointsman.core.model import Caller
from pointsman.providers.base import SearchHit, SearchRequest
from tests.catalog.sources import SmallServer, catalog_of, config_of, tool

ME = Caller("laptop", None)


class Scripted:
    name = "cloud"

    def __init__(self, relevances: Mapping[str, float]) -> None:
        self._relevances = relevances

    async def search(self, request: SearchRequest) -> list[SearchHit]:
        hits = [SearchHit(f"one:{name}", relevance, "words") for name, relevance in self._relevances.items()]
        return hits[: request.max_results]


async def searched(
    relevances: Mapping[str, float], figures: Mapping[str, float], max_results: int = 10, usage: bool = True
) -> SearchOutcome:
    def known(project_id: str | None, queries: Sequence[str]) -> Mapping[str, float]:
        return {f"one:{name}": figure for name, figure in figures.items()}

    config = config_of({"one": None}, unassigned={"optimization": "cloud"}, search={"usage": usage})
    server = SmallServer("one", *(tool(name) for name in relevances))
    catalog = catalog_of(server, config=config, cloud=Scripted(relevances), usage=known)
    return await catalog.search(ME, ["a request"], None, max_results)


def order(outcome: SearchOutcome) -> str:
    return "".join(found.tool.tool_name for found in outcome.results)


async def test_of_two_that_fit_alike_the_one_that_was_chosen_before_comes_first_and_says_why() -> None:
    outcome = await searched({"a": 0.6, "b": 0.58}, {"b": 0.9})
    assert order(outcome) == "ba"
    assert outcome.results[0].explanation == f"{USAGE_NOTE}; words"
    assert outcome.results[1].explanation == "words"
    assert outcome.results[0].relevance == 0.58


async def test_a_plainly_better_match_is_never_passed() -> None:
    assert order(await searched({"a": 0.9, "b": 0.6}, {"b": 1.0})) == "ab"
    assert order(await searched({"a": 0.9, "b": 0.6}, {"b": 1e9})) == "ab"


async def test_what_does_not_fit_is_not_lifted() -> None:
    assert order(await searched({"a": 0.2, "b": 0.19}, {"b": 1.0})) == "ab"


async def test_where_both_were_chosen_alike_the_better_match_stays_first() -> None:
    outcome = await searched({"a": 0.6, "b": 0.58}, {"a": 0.7, "b": 0.7})
    assert order(outcome) == "ab"
    assert outcome.results[0].explanation == "words"


async def test_a_tool_just_below_the_number_asked_for_can_move_in_and_the_number_holds() -> None:
    assert order(await searched({"a": 0.6, "b": 0.59, "c": 0.58}, {"c": 1.0}, max_results=2)) == "ca"
    assert order(await searched({"a": 0.6, "b": 0.59, "c": 0.58}, {}, max_results=2)) == "ab"


async def test_it_can_be_switched_off() -> None:
    outcome = await searched({"a": 0.6, "b": 0.58}, {"b": 0.9}, usage=False)
    assert order(outcome) == "ab"
    assert outcome.results[0].explanation == "words"


async def test_figures_that_make_no_sense_do_nothing() -> None:
    assert order(await searched({"a": 0.6, "b": 0.58}, {"b": float("nan")})) == "ab"
    assert order(await searched({"a": 0.6, "b": 0.58}, {"b": -5.0})) == "ab"


async def some_results(relevances: Sequence[float]) -> tuple[SearchResult, ...]:
    outcome = await searched({f"t{n}": relevance for n, relevance in enumerate(relevances)}, {}, usage=False)
    return outcome.results


@given(st.lists(st.tuples(st.floats(0.02, 0.98), st.floats(0, 1)), min_size=2, max_size=10))
async def test_nothing_passes_what_fits_better_by_more_than_the_bound(drawn: list[tuple[float, float]]) -> None:
    drawn.sort(key=lambda pair: -pair[0])
    results = await some_results([relevance for relevance, _ in drawn])
    figures = {found.tool.document.tool_key: figure for found, (_, figure) in zip(results, drawn, strict=True)}
    after = rank_by_usage(results, figures)
    assert {found.tool for found in after} == {found.tool for found in results}
    bound = 2.7182818284590452**MAX_LIFT * 1.000001
    for place, found in enumerate(after):
        for above in after[:place]:
            odds = found.relevance / (1 - found.relevance)
            assert odds <= above.relevance / (1 - above.relevance) * bound
