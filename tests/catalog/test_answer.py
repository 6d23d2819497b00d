"""What a discovery shows: the best in full, the others in short, all of them, and always the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pointsman.catalog.answer import BUDGET, BUDGET_EACH, MAX_DESCRIPTION, MAX_OUTPUT_SCHEMA, MAX_SCHEMA, render_answer
from pointsman.catalog.results import SearchOutcome, gap_notices
from pointsman.core.model import Caller, Json
from pointsman.providers.base import SearchHit, SearchHits, SearchRequest
from tests.catalog.sources import SmallServer, catalog_of, config_of

ME = Caller("laptop", None)
PROSE = "Looks it up in the big book. " * 20
ALWAYS = {"toolKey", "toolName", "serverName", "description", "relevance", "annotations"}


def definition(name: str, **more: Any) -> dict[str, Any]:
    properties = {"place": {"type": "string", "description": PROSE}, "unit": {"enum": ["C", "F"]}}
    return {
        "name": name,
        "description": PROSE,
        "inputSchema": {"type": "object", "properties": properties, "required": ["place"]},
        "annotations": {"readOnlyHint": True},
        **more,
    }


class Scripted:
    name = "cloud"

    def __init__(self, *hits: SearchHit) -> None:
        self._hits = list(hits)

    async def search(self, request: SearchRequest) -> list[SearchHit]:
        return self._hits


async def found(*hits: SearchHit, tools: list[Json], queries: int = 1, max_results: int = 10) -> SearchOutcome:
    config = config_of({"one": None}, unassigned={"optimization": "cloud"})
    catalog = catalog_of(SmallServer("one", *tools), config=config, cloud=Scripted(*hits))
    return await catalog.search(ME, [f"query {index}" for index in range(queries)], None, max_results)


def hits(count: int, **more: Any) -> list[SearchHit]:
    return [SearchHit(f"one:t{n}", round(0.9 - n * 0.1, 3), "place in name", **more) for n in range(count)]


async def test_the_best_is_shown_in_full_and_the_others_with_a_signature() -> None:
    tools = [definition(f"t{n}") for n in range(5)]
    best, *others = render_answer(await found(*hits(5), tools=tools))["results"]
    assert best["inputSchema"] == tools[0]["inputSchema"]
    assert best["description"] == PROSE
    assert "signature" not in best
    for index, other in enumerate(others, 1):
        assert other["signature"] == f't{index}(place: string, unit?: "C"|"F") -> any'
        assert "inputSchema" not in other
        assert other["description"].endswith("book.…")
        assert other.keys() >= ALWAYS
    assert best.keys() >= ALWAYS


async def test_small_tools_are_all_shown_in_full_while_the_budget_lasts() -> None:
    tools = [{"name": f"t{n}", "description": "Says hello", "inputSchema": {"type": "object"}} for n in range(3)]
    scores = [SearchHit(f"one:t{n}", 0.9) for n in range(3)]
    shown = render_answer(await found(*scores, tools=tools))["results"]
    assert all(result["inputSchema"] == {"type": "object"} for result in shown)


async def test_a_result_far_from_the_best_keeps_its_signature() -> None:
    tools = [{"name": f"t{n}", "description": "Says hello", "inputSchema": {"type": "object"}} for n in range(2)]
    shown = render_answer(await found(SearchHit("one:t0", 0.9), SearchHit("one:t1", 0.3), tools=tools))["results"]
    assert "inputSchema" in shown[0]
    assert shown[1]["signature"] == "t1() -> any"


async def test_the_answer_stays_near_its_budget_and_holds_as_many_results_as_were_asked_for() -> None:
    tools = [definition(f"t{n}", inputSchema={"type": "object"}, description="Says hello") for n in range(100)]
    scores = [SearchHit(f"one:t{n}", 0.9, "hello in description") for n in range(100)]
    shown = render_answer(await found(*scores, tools=tools, max_results=100))
    assert len(shown["results"]) == 100
    assert len(json.dumps(shown, separators=(",", ":"))) < (BUDGET + BUDGET_EACH * 100) * 1.05


async def test_the_best_for_each_query_is_shown_in_full_where_it_can_be_afforded() -> None:
    schema = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
    tools = [definition(f"t{n}", inputSchema=schema, description="Says it") for n in range(4)]
    intents = [(0,), (0,), (0, 1), (2,)]
    scores = [SearchHit(f"one:t{n}", 0.9 - n * 0.2, None, intents[n]) for n in range(4)]
    shown = render_answer(await found(*scores, tools=tools, queries=3))["results"]
    assert ["inputSchema" in result for result in shown] == [True, False, True, True]
    assert [result["intents"] for result in shown] == [[0], [0], [0, 1], [2]]


async def test_one_query_needs_no_intents() -> None:
    [shown] = render_answer(await found(*hits(1, intents=(0,)), tools=[definition("t0")]))["results"]
    assert "intents" not in shown


async def test_intents_that_were_never_asked_for_are_not_shown() -> None:
    [shown] = render_answer(await found(*hits(1, intents=(7, 1, -1, 1)), tools=[definition("t0")], queries=2))[
        "results"
    ]
    assert shown["intents"] == [1]


SMALL_OUTPUT = {"type": "object", "properties": {"celsius": {"type": "number"}}}
LARGE_OUTPUT = {"type": "object", "properties": {f"value{n}": {"type": "number"} for n in range(200)}}


@pytest.mark.parametrize(
    ("output", "in_short"),
    [(SMALL_OUTPUT, "{celsius?: number}"), (LARGE_OUTPUT, "{value0?: number, value1?: number, …}")],
)
async def test_the_best_shows_what_it_returns_by_a_small_schema_and_all_others_in_short(
    output: Json, in_short: str
) -> None:
    little = {"inputSchema": {"type": "object"}, "description": "Says it"}
    tools = [definition(f"t{n}", outputSchema=output, **little) for n in range(3)] + [definition("t3")]
    scores = [SearchHit(f"one:t{n}", relevance) for n, relevance in enumerate((0.9, 0.85, 0.4, 0.3))]
    best, near, far, undeclared = render_answer(await found(*scores, tools=tools))["results"]
    if output is SMALL_OUTPUT:
        assert best["outputSchema"] == output
        assert "returns" not in best
    else:
        assert "outputSchema" not in best
        assert best["returns"].startswith("{value0?: number, value1?: number, value2?: number")
        assert len(best["returns"]) <= 200
    assert "inputSchema" in best
    assert "inputSchema" in near
    for other in (near, far):
        assert "outputSchema" not in other
        assert other["returns"].startswith(in_short[:18])
    assert far["signature"] == "t2()"
    assert undeclared["signature"].endswith("-> any")
    assert not {"returns", "outputSchema"} & undeclared.keys()


async def test_an_output_schema_of_120_tokens_is_shown_and_a_longer_one_is_not() -> None:
    def output(chars: int) -> Json:
        empty = len(json.dumps({"description": ""}, separators=(",", ":")))
        return {"description": "x" * (chars - empty)}

    for chars, shown in ((MAX_OUTPUT_SCHEMA, True), (MAX_OUTPUT_SCHEMA + 1, False)):
        tools = [definition("t0", outputSchema=output(chars))]
        [best] = render_answer(await found(*hits(1), tools=tools))["results"]
        assert ("outputSchema" in best) == shown
        assert ("returns" in best) != shown
    assert MAX_OUTPUT_SCHEMA == 4 * 120


async def test_a_doubtful_best_says_in_short_what_it_returns() -> None:
    [best] = render_answer(await found(SearchHit("one:t0", 0.1), tools=[definition("t0", outputSchema=SMALL_OUTPUT)]))[
        "results"
    ]
    assert best["returns"] == "{celsius?: number}"
    assert not {"inputSchema", "outputSchema"} & best.keys()


async def test_what_tools_return_and_their_annotations_are_part_of_the_budget() -> None:
    hints = {"readOnlyHint": True, "destructiveHint": False}
    more = {"outputSchema": LARGE_OUTPUT, "annotations": {"title": "Tee " * 5_000, "note": "x" * 14_000, **hints}}
    tools = [definition(f"t{n}", inputSchema={"type": "object"}, **more) for n in range(50)]
    scores = [SearchHit(f"one:t{n}", 0.9, "hello in description") for n in range(50)]
    shown = render_answer(await found(*scores, tools=tools, max_results=50))
    best, *others = shown["results"]
    assert best["annotations"].pop("title").endswith("Tee…")
    assert best["annotations"] == hints
    assert all(other["returns"] and other["annotations"] == hints for other in others)
    in_full = len(PROSE)  # the best is shown in full, whatever that costs
    size = len(json.dumps(shown, separators=(",", ":"), ensure_ascii=False))
    assert size < (BUDGET + BUDGET_EACH * 50) * 1.1 + in_full


async def test_the_same_outcome_gives_the_same_bytes() -> None:
    tools = [definition(f"t{n}") for n in range(5)]
    written = {json.dumps(render_answer(await found(*hits(5), tools=tools))) for _ in range(3)}
    assert len(written) == 1


async def test_doubtful_results_are_shown_with_a_notice() -> None:
    outcome = await found(SearchHit("one:t0", 0.19), tools=[definition("t0")])
    shown = render_answer(outcome)
    assert len(shown["results"]) == 1
    assert "No tool seems to fit" in shown["notice"]
    assert "notice" not in render_answer(await found(SearchHit("one:t0", 0.2), tools=[definition("t0")]))


async def test_a_query_that_nothing_fits_is_named() -> None:
    tools = [definition(f"t{n}") for n in range(3)]
    scores = [
        SearchHit("one:t0", 0.9, None, (0,)),
        SearchHit("one:t1", 0.1, None, (1,)),
        SearchHit("one:t2", 0.5, None, (2,)),
    ]
    outcome = await found(*scores, tools=tools, queries=3)
    assert outcome.notice == "No tool seems to fit query[1]. Try other words for that."


async def test_a_provider_that_does_not_tell_queries_apart_gets_no_such_notice() -> None:
    outcome = await found(*hits(2), tools=[definition("t0"), definition("t1")], queries=2)
    assert outcome.notice is None


class Judging(Scripted):
    """Tells how well the best of all tools fits each query, too."""

    def __init__(self, *hits: SearchHit, best_by_query: list[float]) -> None:
        self._hits = SearchHits(hits, best_by_query)


async def noticed(*hits: SearchHit, best_by_query: list[float], max_results: int = 10) -> str | None:
    config = config_of({"one": None}, unassigned={"optimization": "cloud"})
    server = SmallServer("one", *(definition(f"t{n}") for n in range(3)))
    catalog = catalog_of(server, config=config, cloud=Judging(*hits, best_by_query=best_by_query))
    queries = [f"query {index}" for index in range(len(best_by_query))]
    return (await catalog.search(ME, queries, None, max_results)).notice


async def test_a_query_whose_tools_had_no_room_is_not_said_to_have_none() -> None:
    notice = await noticed(SearchHit("one:t0", 0.9, None, (1,)), best_by_query=[0.6, 0.9, 0.7], max_results=1)
    assert notice is not None
    assert "No tool seems to fit" not in notice
    assert "no room for the tools that fit query[0], query[2]" in notice
    assert "`maxResults`" in notice


async def test_a_query_that_nothing_fits_is_named_though_the_tool_of_another_stands_for_it() -> None:
    notice = await noticed(SearchHit("one:t0", 0.9, None, (0, 1)), best_by_query=[0.9, 0.1])
    assert notice == "No tool seems to fit query[1]. Try other words for that."


async def test_both_kinds_of_query_without_a_result_are_named_apart() -> None:
    notice = await noticed(SearchHit("one:t0", 0.9, None, (0,)), best_by_query=[0.9, 0.1, 0.8], max_results=1)
    assert notice is not None
    assert "seems to fit query[1]." in notice
    assert "the tools that fit query[2]:" in notice


async def test_where_nothing_fits_no_schema_is_spent_on_it() -> None:
    tools = [definition(f"t{n}", inputSchema={"type": "object"}) for n in range(2)]
    doubtful = [SearchHit("one:t0", 0.19, None, (0,)), SearchHit("one:t1", 0.1, None, (1,))]
    for queries in (1, 2):
        shown = render_answer(await found(*doubtful, tools=tools, queries=queries))["results"]
        assert [result["signature"] for result in shown] == ["t0() -> any", "t1() -> any"]
        assert not any("inputSchema" in result for result in shown)


async def test_a_schema_that_would_drown_everything_is_told_in_short() -> None:
    properties = {f"option{n}": {"type": "string", "description": PROSE} for n in range(100)}
    schema = {"type": "object", "properties": {"place": {"type": "string"}, **properties}, "required": ["place"]}
    tools = [definition("t0", inputSchema=schema), definition("t1")]
    shown = render_answer(await found(SearchHit("one:t0", 0.9), SearchHit("one:t1", 0.5), tools=tools))
    best = shown["results"][0]
    assert "inputSchema" not in best
    assert best["signature"].startswith("t0(place: string, option0?: string, option1?")
    assert "tool_execute shows it" in best["hint"]
    assert len(json.dumps(shown)) < MAX_SCHEMA / 2
    assert best.keys() >= ALWAYS


async def test_a_description_that_would_drown_everything_is_cut() -> None:
    tools = [definition("t0", description="Send it all. " * 10_000)]
    [best] = render_answer(await found(*hits(1), tools=tools))["results"]
    assert len(best["description"]) <= MAX_DESCRIPTION
    assert best["description"].endswith("…")
    assert best["inputSchema"] == tools[0]["inputSchema"]


async def test_the_best_has_a_signature_where_it_has_no_schema() -> None:
    nothing = {key: value for key, value in definition("t0").items() if key != "inputSchema"}
    [best] = render_answer(await found(*hits(1), tools=[nothing]))["results"]
    assert best["signature"] == "t0() -> any"


@pytest.mark.parametrize(
    "output", [{"type": []}, {"type": [[]]}, {"allOf": [{"type": []}]}, {"enum": []}, {"anyOf": []}]
)
async def test_an_output_schema_that_says_nothing_spoils_no_answer(output: Json) -> None:
    best, other = render_answer(
        await found(*hits(2), tools=[definition(f"t{n}", outputSchema=output) for n in range(2)])
    )["results"]
    assert best["outputSchema"] == output
    assert other["returns"] == "any"


def test_a_notice_names_only_the_first_of_many_servers() -> None:
    [sentence] = gap_notices({f"s{number}": "failed" for number in range(800)})
    assert len(sentence) < 350
    assert "`s19` and 780 more. " in sentence
