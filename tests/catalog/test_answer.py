"""What a discovery shows: the best in full, the others in short, all of them, and always the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pointsman.catalog.answer import (
    DESCRIPTION,
    MAX_DESCRIPTION,
    MAX_FURTHER_SCHEMA,
    MAX_OUTPUT_SCHEMA,
    MAX_SCHEMA,
    render_answer,
)
from pointsman.catalog.results import NOTHING_FITS, SearchOutcome, fit_notice, gap_notices
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
    for other in others:
        assert other["signature"] == "(place: string, unit?: 'C'|'F')"
        assert "inputSchema" not in other
        assert other["description"].endswith("book.…")
        assert other.keys() >= ALWAYS
    assert best.keys() >= ALWAYS


async def test_descriptions_have_about_150_characters_and_end_with_a_sentence() -> None:
    prose = "Reads a sensor of the house. " * 3 + "Gives the last value and its time, or an error if it is off. " * 3
    tools = [definition(f"t{n}", description=f"Sensor {n}. {prose}") for n in range(10)]
    _, *others = render_answer(await found(*hits(10), tools=tools))["results"]
    for other in others:
        assert 0.8 * DESCRIPTION <= len(other["description"]) <= 1.2 * DESCRIPTION + 1
        assert other["description"].endswith(".…")


async def test_the_sections_of_a_docstring_are_not_repeated_beside_the_schema() -> None:
    docstring = "Read a sensor.\n\n    Args:\n        place: " + PROSE
    tools = [definition(f"t{n}", description=docstring) for n in range(2)]
    best, other = render_answer(await found(*hits(2), tools=tools))["results"]
    assert best["description"] == docstring
    assert other["description"] == "Read a sensor."


async def test_no_two_descriptions_are_cut_to_the_same_text() -> None:
    own = ["Only the first floor.", "Only the second floor.", "Both floors.", "Both floors, and the roof of the house."]
    tools = [definition(f"t{n}", description=f"{PROSE}{text} {PROSE}") for n, text in enumerate(own)]
    descriptions = [one["description"] for one in render_answer(await found(*hits(4), tools=tools))["results"]]
    for text, shown in zip(own[1:], descriptions[1:], strict=True):
        assert shown.startswith(f"…{text}")
        assert len(shown) <= 1.2 * DESCRIPTION + 2
    assert len(set(descriptions)) == 4


async def test_equal_descriptions_stay_equal() -> None:
    tools = [definition(f"t{n}") for n in range(3)]
    _, one, other = render_answer(await found(*hits(3), tools=tools))["results"]
    assert one["description"] == other["description"]
    assert one["description"].startswith("Looks it up")


async def test_a_description_with_which_others_begin_is_shown_as_its_sentence() -> None:
    sentence = f"Reads {'one record after the other ' * 6}from the place in which it was stored."
    more = ["", "", " Then it closes the place.", " Afterwards it waits for others."]
    tools = [
        definition("t0", description="First."),
        *(definition(f"t{n}", description=sentence + m) for n, m in enumerate(more, 1)),
    ]
    shown = [one["description"] for one in render_answer(await found(*hits(5), tools=tools))["results"]]
    assert shown[1:3] == [sentence, sentence]
    assert shown[3:] == ["…Then it closes the place.", "…Afterwards it waits for others."]


async def test_descriptions_that_differ_late_in_a_long_sentence_are_told_apart() -> None:
    begun = f"Reads a sensor. It {'goes through every one of the rooms and ' * 8}"
    tools = [definition("t0", description="First.")]
    tools += [
        definition(f"t{n}", description=f"{begun}{end} {PROSE}") for n, end in enumerate(("stops", "waits", "rests"), 1)
    ]
    shown = [one["description"] for one in render_answer(await found(*hits(4), tools=tools))["results"]]
    assert len(set(shown)) == 4
    assert [text.split()[0] for text in shown[1:]] == ["…stops", "…waits", "…rests"]


async def test_a_hundred_descriptions_that_begin_alike_are_told_apart() -> None:
    tools = [definition(f"t{n}", description=f"{'Reads it all. ' * 270}Kind {n}. {PROSE}") for n in range(100)]
    scores = [SearchHit(f"one:t{n}", 0.5) for n in range(100)]
    shown = render_answer(await found(*scores, tools=tools, max_results=100))["results"]
    assert len({one["description"] for one in shown}) == 100


async def test_a_doubtful_result_has_the_names_of_its_parameters() -> None:
    more = {"outputSchema": SMALL_OUTPUT, "annotations": {"readOnlyHint": True}}
    tools = [definition(f"t{n}", **more) for n in range(2)]
    _, other = render_answer(await found(SearchHit("one:t0", 0.9), SearchHit("one:t1", 0.1), tools=tools))["results"]
    assert other["signature"] == "(place, unit?)"
    assert other.keys() == {"toolKey", "toolName", "serverName", "description", "relevance", "signature"}


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ({"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True}, {"readOnlyHint": True}),
        ({"destructiveHint": False, "openWorldHint": False, "title": "Tee"}, {"destructiveHint": False}),
        ({"readOnlyHint": False, "destructiveHint": True, "title": "Tee"}, None),
        ({}, None),
    ],
)
async def test_only_annotations_that_differ_from_the_default_are_shown(sent: Json, shown: Json | None) -> None:
    tools = [definition(f"t{n}", annotations=sent) for n in range(2)]
    for result in render_answer(await found(*hits(2), tools=tools))["results"]:
        assert result.get("annotations") == shown


@pytest.mark.parametrize(
    ("explanation", "shown"),
    [
        ("query in name; ~query in parameter description", None),
        ("similar in meaning", None),
        ("it is the only one that asks the oracle", "it is the only one that asks the oracle"),
    ],
)
async def test_an_explanation_that_repeats_the_query_is_left_out(explanation: str, shown: str | None) -> None:
    [result] = render_answer(await found(SearchHit("one:t0", 0.9, explanation), tools=[definition("t0")]))["results"]
    assert result.get("explanation") == shown


async def test_the_best_shows_its_schema_without_what_says_nothing() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "title": "T0Arguments"}
    [best] = render_answer(await found(*hits(1), tools=[definition("t0", inputSchema=schema)]))["results"]
    assert best["inputSchema"] == {"type": "object"}


async def test_the_best_for_each_query_is_shown_in_full_where_it_can_be_afforded() -> None:
    schema = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
    tools = [definition(f"t{n}", inputSchema=schema, description="Says it") for n in range(4)]
    intents = [(0,), (0,), (0, 1), (2,)]
    scores = [SearchHit(f"one:t{n}", 0.9 - n * 0.15, None, intents[n]) for n in range(4)]
    shown = render_answer(await found(*scores, tools=tools, queries=3))["results"]
    assert [result["toolName"] for result in shown] == ["t0", "t2", "t3", "t1"]  # the best of each before all others
    assert ["inputSchema" in result for result in shown] == [True, True, True, False]
    assert [result["intents"] for result in shown] == [[0], [0, 1], [2], [0]]


async def test_a_long_schema_of_a_further_query_is_told_in_short() -> None:
    long = {"type": "object", "properties": {"place": {"type": "string", "description": "x" * MAX_FURTHER_SCHEMA}}}
    scores = [SearchHit(f"one:t{n}", 0.9, None, (n,)) for n in range(2)]
    tools = [definition(f"t{n}", inputSchema=long) for n in range(2)]
    first, second = render_answer(await found(*scores, tools=tools, queries=2))["results"]
    assert first["inputSchema"] == long
    assert second["signature"] == "(place?: string)"


async def test_the_best_for_a_query_goes_by_the_relevance_for_that_query() -> None:
    scores = [
        SearchHit("one:t0", 0.9, None, (0, 1), (0.9, 0.4)),
        SearchHit("one:t1", 0.85, None, (0,), (0.85,)),
        SearchHit("one:t2", 0.8, None, (1,), (0.8,)),
    ]
    tools = [definition(f"t{n}") for n in range(3)]
    shown = render_answer(await found(*scores, tools=tools, queries=2))["results"]
    assert [result["toolName"] for result in shown] == ["t0", "t2", "t1"]


def related(*names: str) -> list[Json]:
    return [definition(name, inputSchema={"type": "object"}) for name in names]


async def test_the_other_tools_of_the_best_server_are_named_in_one_line() -> None:
    tools = related("create_issue", "list_issues", "merge_branch")
    shown = render_answer(await found(SearchHit("one:create_issue", 0.9), tools=tools))
    assert shown["more"] == "one also has list_issues, merge_branch"


async def test_of_a_large_server_only_tools_with_a_word_in_common_are_named() -> None:
    others = [f"tracker_{noun}_get" for noun in ("branch", "build", "wiki", "page", "user", "team", "label")]
    tools = related("tracker_issue_create", *others, *(f"tracker_run{n}" for n in range(9)), "tracker_issue_close")
    shown = render_answer(await found(SearchHit("one:tracker_issue_create", 0.9), tools=tools))
    assert shown["more"] == "one also has tracker_issue_close"


@pytest.mark.parametrize("relevance", [0.1, 0.45])
async def test_a_best_result_that_may_be_wrong_names_no_next_step(relevance: float) -> None:
    shown = render_answer(await found(SearchHit("one:a", relevance), tools=related("a", "b")))
    assert "more" not in shown


async def test_many_or_long_names_make_no_long_line() -> None:
    names = ["spin", *(f"spin_{'x' * 30}_{n}" for n in range(200)), *(f"turn{n}" for n in range(300))]
    shown = render_answer(await found(SearchHit("one:spin", 0.9), tools=related(*names)))
    assert "and 198 more" in shown["more"]
    assert len(shown["more"]) < 120
    shown = render_answer(await found(SearchHit("one:spin", 0.9), tools=related("spin", "b" * 300)))
    assert "more" not in shown


async def test_one_query_needs_no_intents() -> None:
    [shown] = render_answer(await found(*hits(1, intents=(0,)), tools=[definition("t0")]))["results"]
    assert "intents" not in shown


async def test_intents_that_were_never_asked_for_are_not_shown() -> None:
    [shown] = render_answer(await found(*hits(1, intents=(7, 1, -1, 1)), tools=[definition("t0")], queries=2))[
        "results"
    ]
    assert shown["intents"] == [1]


SMALL_OUTPUT: Json = {"type": "object", "properties": {"celsius": {"type": "number"}}}
TOLD_OUTPUT: Json = {"type": "object", "properties": {"celsius": {"type": "number", "description": "In the shade"}}}
LARGE_OUTPUT: Json = {"type": "object", "properties": {f"value{n}": {"type": "number"} for n in range(200)}}


@pytest.mark.parametrize(
    ("output", "in_short"),
    [
        (SMALL_OUTPUT, "{celsius?: number}"),
        (TOLD_OUTPUT, "{celsius?: number}"),
        (LARGE_OUTPUT, "{value0?: number, value1?: number, …}"),
    ],
)
async def test_what_a_tool_returns_is_shown_in_short_and_of_the_best_by_a_schema_that_says_more(
    output: Json, in_short: str
) -> None:
    tools = [definition(f"t{n}", outputSchema=output) for n in range(2)] + [definition("t2")]
    scores = [SearchHit(f"one:t{n}", relevance) for n, relevance in enumerate((0.9, 0.4, 0.3))]
    best, other, undeclared = render_answer(await found(*scores, tools=tools))["results"]
    if output is TOLD_OUTPUT:
        assert best["outputSchema"] == output
        assert "returns" not in best
    else:
        assert "outputSchema" not in best
        assert best["returns"].startswith(in_short[:18])
        assert len(best["returns"]) <= 200
    assert "inputSchema" in best
    assert "outputSchema" not in other
    assert other["returns"].startswith(in_short[:18])
    assert not {"returns", "outputSchema"} & undeclared.keys()


@pytest.mark.parametrize("output", [{"type": "object"}, {"properties": {"content": {"type": "string"}}}])
async def test_an_output_schema_that_declares_a_text_says_nothing(output: Json) -> None:
    tools = [definition(f"t{n}", outputSchema=output) for n in range(2)]
    for result in render_answer(await found(*hits(2), tools=tools))["results"]:
        assert not {"returns", "outputSchema"} & result.keys()


async def test_an_output_schema_of_120_tokens_is_shown_and_a_longer_one_is_not() -> None:
    def output(chars: int) -> Json:
        empty = len(json.dumps({"type": "integer", "description": ""}, separators=(",", ":")))
        return {"type": "integer", "description": "x" * (chars - empty)}

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


async def test_a_hundred_results_have_a_bounded_length_whatever_servers_declare() -> None:
    hints = {"title": "Tee " * 5_000, "note": "x" * 14_000, "readOnlyHint": True}
    properties = {f"option{n}": {"type": "string", "description": PROSE} for n in range(500)}
    schema = {"type": "object", "properties": properties}
    more = {"outputSchema": LARGE_OUTPUT, "annotations": hints, "description": PROSE * 100}
    tools = [definition(f"t{n}", inputSchema=schema, **more) for n in range(100)]
    scores = [SearchHit(f"one:t{n}", 0.9, "hello in description") for n in range(100)]
    shown = render_answer(await found(*scores, tools=tools, max_results=100))["results"]
    assert len(shown) == 100
    assert all(len(json.dumps(other, ensure_ascii=False)) < 600 for other in shown[1:])


async def test_the_same_outcome_gives_the_same_bytes() -> None:
    tools = [definition(f"t{n}") for n in range(5)]
    written = {json.dumps(render_answer(await found(*hits(5), tools=tools))) for _ in range(3)}
    assert len(written) == 1


async def test_doubtful_results_are_shown_with_a_notice() -> None:
    outcome = await found(SearchHit("one:t0", 0.32), tools=[definition("t0")])
    shown = render_answer(outcome)
    assert len(shown["results"]) == 1
    assert "No tool seems to fit" in shown["notice"]
    assert "notice" not in render_answer(await found(SearchHit("one:t0", 0.33), tools=[definition("t0")]))


def test_an_empty_query_and_one_in_another_language_get_sentences_of_their_own() -> None:
    nothing = SearchHits([], [0.0])
    assert fit_notice((), nothing, ["file"]) == NOTHING_FITS
    assert fit_notice((), nothing, ["", " \n"]) == "The query is empty. Say in a few words what should be done."
    nothing.foreign = True
    assert "ask again in English" in (fit_notice((), nothing, ["wetter in berlin morgen"]) or "")
    assert fit_notice((), nothing, ["天気"], in_script=False) == NOTHING_FITS  # another notice says so


async def test_a_request_is_in_another_script_by_its_own_words_and_those_of_the_whole_catalog() -> None:
    english, chinese = definition("read"), {**definition("read"), "description": "读取文件的内容。"}
    for tool, query, foreign in (
        (english, "读取文件 notes.txt", True),
        (english, "读取文件notes/long-name-of-a-file.txt", True),
        (english, "open 读取.txt", False),
        (english, "list /home/юзер/файлы", False),
        (english, "fetch https://example.com/страница", False),
        (english, "прочитай /home/юзер/файлы", True),
        (chinese, "今天天气怎么样", False),
        (chinese, "сохранить", True),
    ):
        outcome = await catalog_of(SmallServer("one", tool)).search(ME, [query], None, 5)
        assert ("another script" in (outcome.notice or "")) == foreign, query


async def test_a_notice_names_few_of_many_queries() -> None:
    best = [0.9, *[0.1] * 40]
    notice = await noticed(SearchHit("one:t0", 0.9, None, (0,)), best_by_query=best)
    assert notice == (
        f"No tool seems to fit {', '.join(f'query[{n}]' for n in range(1, 11))} and 30 more. Try other words for that."
    )


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
        assert [result["signature"] for result in shown] == ["()", "()"]
        assert not any("inputSchema" in result for result in shown)


async def test_a_schema_that_would_drown_everything_is_told_in_short() -> None:
    properties = {f"option{n}": {"type": "string", "description": PROSE} for n in range(100)}
    schema = {"type": "object", "properties": {"place": {"type": "string"}, **properties}, "required": ["place"]}
    tools = [definition("t0", inputSchema=schema), definition("t1")]
    shown = render_answer(await found(SearchHit("one:t0", 0.9), SearchHit("one:t1", 0.5), tools=tools))
    best = shown["results"][0]
    assert "inputSchema" not in best
    assert best["signature"].startswith("(place: string, option0?, option1?, ")
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
    assert best["signature"] == "()"


@pytest.mark.parametrize(
    "output", [{"type": []}, {"type": [[]]}, {"allOf": [{"type": []}]}, {"enum": []}, {"anyOf": []}]
)
async def test_an_output_schema_that_says_nothing_spoils_no_answer(output: Json) -> None:
    best, other = render_answer(
        await found(*hits(2), tools=[definition(f"t{n}", outputSchema=output) for n in range(2)])
    )["results"]
    assert not {"returns", "outputSchema"} & (best.keys() | other.keys())


def test_a_notice_names_only_the_first_of_many_servers() -> None:
    [sentence] = gap_notices({f"s{number}": "failed" for number in range(800)})
    assert len(sentence) < 350
    assert "`s19` and 780 more. " in sentence
