"""Discovery over the tools of nine real servers: requests of one step that went wrong once, and tasks of several.

`real_servers.json` has the tool lists of the servers for files, git, time, fetch, memory, SQLite, GitHub and Slack
(modelcontextprotocol/servers) and of Playwright (microsoft/playwright-mcp) as of November 2026, without the limits in
their schemas.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from ruamel.yaml import YAML

from pointsman.catalog.results import DOUBTFUL
from pointsman.catalog.service import ToolCatalogService
from pointsman.providers.bm25.provider import BM25SearchProvider
from tests.catalog.sources import SmallServer, catalog_of
from tests.golden.golden import HERE, ME, keys, place


@dataclass(frozen=True)
class Floor:
    """The share of steps whose tool must be among the first five, and of tasks of which all steps must be."""

    steps: float
    tasks: float


# The ranking was developed with the first set. The second only measures: .74 and 9 of 20 by words, .80 and 12 of 20
# with embeddings; its floors are one or two steps and one task below.
FLOORS = {
    ("real_steps.yaml", False): Floor(0.80, 0.5),
    ("real_steps.yaml", True): Floor(0.80, 0.5),
    ("real_steps_second.yaml", False): Floor(0.72, 0.4),
    ("real_steps_second.yaml", True): Floor(0.75, 0.55),
}

both_ways = pytest.mark.parametrize("embeddings", [False, True], ids=["words", "embeddings"])


@dataclass(frozen=True)
class Asked:
    ask: str
    right: tuple[str, ...]
    within: tuple[int, int]  # the place that it must reach, by words and with embeddings


@dataclass(frozen=True)
class Task:
    ask: str
    right: tuple[tuple[str, ...], ...]  # for each step


def real_servers() -> list[SmallServer]:
    lists = json.loads((HERE / "real_servers.json").read_text())
    return [SmallServer(server_id, *tools) for server_id, tools in lists.items()]


def asked() -> list[Asked]:
    entries = YAML(typ="safe").load(HERE / "real_requests.yaml")
    return [Asked(entry["ask"], tuple(entry["right"]), tuple(entry.get("within", (1, 1)))) for entry in entries]


def tasks(name: str) -> list[Task]:
    entries = YAML(typ="safe").load(HERE / name)
    return [Task(entry["ask"], tuple(map(tuple, entry["right"]))) for entry in entries]


@pytest.fixture(scope="module")
def catalogs() -> dict[bool, ToolCatalogService]:
    return {each: catalog_of(*real_servers(), local=BM25SearchProvider(each)) for each in (False, True)}


def test_every_right_answer_exists() -> None:
    known = {f"{server.id}:{tool['name']}" for server in real_servers() for tool in server.tools}
    assert {key for each in asked() for key in each.right} <= known
    for name, size in {"real_steps.yaml": 30, "real_steps_second.yaml": 20}.items():
        assert {key for task in tasks(name) for right in task.right for key in right} <= known
        assert len(tasks(name)) == size
        assert {len(task.right) for task in tasks(name)} == {2, 3, 4}


@both_ways
async def test_the_right_tool_comes_first_or_near_it(
    embeddings: bool, catalogs: dict[bool, ToolCatalogService]
) -> None:
    missed = {}
    for each in asked():
        found = keys(await catalogs[embeddings].search(ME, [each.ask], None, 10))
        if place(found[: each.within[embeddings]], each.right) is None:
            missed[each.ask] = found[:3]
    assert missed == {}


@both_ways
async def test_what_is_right_is_not_called_doubtful(embeddings: bool, catalogs: dict[bool, ToolCatalogService]) -> None:
    found = {each: await catalogs[embeddings].search(ME, [each.ask], None, 5) for each in asked()}
    right = {each.ask: outcome for each, outcome in found.items() if place(keys(outcome), each.right) == 0}
    doubtful = [ask for ask, outcome in right.items() if outcome.results[0].relevance < DOUBTFUL]
    assert doubtful == ([] if embeddings else ["show report.csv"])  # .32: no tool says `show` or `report`


@both_ways
@pytest.mark.parametrize("name", ["real_steps.yaml", "real_steps_second.yaml"])
async def test_the_steps_of_a_task_are_served(
    name: str, embeddings: bool, catalogs: dict[bool, ToolCatalogService]
) -> None:
    served: list[list[bool]] = []
    for task in tasks(name):
        found = keys(await catalogs[embeddings].search(ME, [task.ask], None, 5))
        served.append([place(found, right) is not None for right in task.right])
    steps = [step for task in served for step in task]
    assert sum(steps) / len(steps) >= FLOORS[name, embeddings].steps
    assert sum(map(all, served)) / len(served) >= FLOORS[name, embeddings].tasks


@pytest.mark.no_cover
async def test_a_verb_that_tools_share_does_not_make_them_fit(catalogs: dict[bool, ToolCatalogService]) -> None:
    """With embeddings; 13 of 30 had a relevance of DOUBTFUL or more before the object counted apart, 5 have it now."""
    requests = YAML(typ="safe").load(HERE / "real_unfit.yaml")
    assert len(requests) == 30
    best = {ask: (await catalogs[True].search(ME, [ask], None, 1)).results for ask in requests}
    fitting = [ask for ask, results in best.items() if results and results[0].relevance >= DOUBTFUL]
    assert len(fitting) <= 6, fitting


@both_ways
@pytest.mark.parametrize(
    ("ask", "tool"),
    [
        ("who created this branch", "git_create_branch"),
        ("which entities were created", "create_entities"),
        ("when was the file moved", "move_file"),
        ("what did I write to the file", "write_file"),
        ("what did I delete", "delete_observations"),
        ("which files did I add", "git_add"),
        ("never delete, only show entities", "delete_entities"),
        ("do not delete anything", "delete_observations"),
        ("without git_reset, stage a.txt", "git_reset"),
        ("never call delete_entities", "delete_entities"),
        ("not git_commit but git_log", "git_commit"),
        ("do not convert the time", "convert_time"),
        ("instead of a screenshot give me a snapshot", "browser_take_screenshot"),
        ("rm a.txt", "delete_observations"),
        ("read the file a.txt", "read_file"),  # it calls itself deprecated
    ],
)
async def test_what_was_done_or_is_not_to_be_done_is_not_what_to_do(
    ask: str, tool: str, embeddings: bool, catalogs: dict[bool, ToolCatalogService]
) -> None:
    results = (await catalogs[embeddings].search(ME, [ask], None, 5)).results
    best = [found.tool.tool_name for found in results[:1] if found.relevance >= DOUBTFUL]
    assert tool not in best


@dataclass(frozen=True)
class Everyday:
    """The share of requests whose tool must be first and among the first three; how often relevance may mislead."""

    first: float
    first_three: float
    unlikely: int  # right hits below `UNLIKELY`
    unserved: int  # requests that no tool serves
    fitting: int  # of them with a result that is not called doubtful


UNLIKELY = 0.2
# Some requests below the figures. Everyday words: .41 and .74 by words, .47 and .74 with embeddings; 1 of 41 right hits
# and 1 of 47 below .2; 6 and 4 of the 40 requests that no tool serves above .33. By an author who knew the names: .66
# and .89, .75 and .90; 1 of 66 and 0 of 75; 19 and 11 of 50. Before half of the misses were read: .63 and .85, .69 and
# .85; 1 of 63 and 0 of 69.
EVERYDAY = {
    ("real_everyday.yaml", False): Everyday(0.34, 0.64, 2, 40, 8),
    ("real_everyday.yaml", True): Everyday(0.38, 0.64, 2, 40, 7),
    ("real_names.yaml", False): Everyday(0.60, 0.83, 2, 50, 22),
    ("real_names.yaml", True): Everyday(0.69, 0.84, 2, 50, 14),
}


@pytest.mark.parametrize(("name", "embeddings"), EVERYDAY)
async def test_requests_in_other_words_than_the_descriptions(
    name: str, embeddings: bool, catalogs: dict[bool, ToolCatalogService]
) -> None:
    requests = YAML(typ="safe").load(HERE / name)
    found = [(each, await catalogs[embeddings].search(ME, [each["ask"]], None, 3)) for each in requests]
    served = [
        (place(keys(outcome), (*each["right"], *each.get("also", ()))), outcome)
        for each, outcome in found
        if each["right"]
    ]
    places, best = [at for at, _ in served], [outcome.results[0].relevance for at, outcome in served if at == 0]
    unfit = [outcome.results for each, outcome in found if not each["right"]]
    floor = EVERYDAY[name, embeddings]
    assert (len(served), len(unfit)) == (100, floor.unserved)
    assert places.count(0) / len(places) >= floor.first
    assert 1 - places.count(None) / len(places) >= floor.first_three
    assert sum(relevance < UNLIKELY for relevance in best) <= floor.unlikely
    assert sum(results[0].relevance >= DOUBTFUL for results in unfit if results) <= floor.fitting


@both_ways
async def test_a_request_that_nothing_fits_is_asked_for_in_english_only_if_it_is_not(
    embeddings: bool, catalogs: dict[bool, ToolCatalogService]
) -> None:
    english = ("what's the weather like in Oslo tomorrow", "tell me a joke", "order a pizza")
    others = ("prends une capture d'écran de la page", "lies die Datei config.json", "schick Anna eine Nachricht")
    for ask in (*english, *others):
        notice = (await catalogs[embeddings].search(ME, [ask], None, 10)).notice or ""
        assert "No tool seems to fit" in notice, ask
        assert ("ask again in English" in notice) == (ask in others), ask


@both_ways
async def test_no_plain_request_of_the_golden_sets_is_taken_for_another_language(
    embeddings: bool, catalogs: dict[bool, ToolCatalogService]
) -> None:
    asks = [*(each.ask for each in asked()), *YAML(typ="safe").load(HERE / "real_unfit.yaml")]
    found = {ask: (await catalogs[embeddings].search(ME, [ask], None, 10)).notice or "" for ask in asks}
    assert [ask for ask, notice in found.items() if "English" in notice] == []


@both_ways
async def test_a_request_between_two_pieces_of_a_log_is_found(
    embeddings: bool, catalogs: dict[bool, ToolCatalogService]
) -> None:
    lines = (
        f"2026-11-03 10:{n % 60:02}:00 ERROR worker-{n} cannot reach 10.0.0.{n}: connection refused" for n in range(99)
    )
    log = "\n".join(lines)[:3_000]
    query = f"{log}\n\nsave this log to a file\n\n{log}"
    alone = await catalogs[embeddings].search(ME, ["save this log to a file"], None, 10)
    assert (await catalogs[embeddings].search(ME, [query], None, 10)).results == alone.results


@both_ways
@pytest.mark.parametrize(
    ("query", "context"),
    [
        ("compare them", "two git branches"),
        ("read it", "a text file"),
        ("list them", "github issues"),
        ("log", "slack"),
    ],
)
async def test_the_order_follows_the_relevance_also_with_a_context(
    query: str, context: str, embeddings: bool, catalogs: dict[bool, ToolCatalogService]
) -> None:
    results = (await catalogs[embeddings].search(ME, [query], context, 10)).results
    shown = [result.relevance for result in results]
    assert shown == sorted(shown, reverse=True)
    alone = (await catalogs[embeddings].search(ME, [query], None, 10)).results
    assert shown[0] <= max(0.3, alone[0].relevance)  # a context makes nothing fit


ALIKE = [
    ("list the branches", "show the branches", "which branches exist", "list branches"),
    (
        *("read a file", "read a page", "read a branch", "read a note", "read a graph", "read a window"),
        *("read a tab", "read a section", "read a collection", "read an index", "write a file", "write a page"),
    ),
]


@both_ways
@pytest.mark.parametrize("queries", ALIKE, ids=len)
async def test_of_queries_that_are_alike_each_has_the_best_three_that_it_has_alone(
    queries: tuple[str, ...], embeddings: bool, catalogs: dict[bool, ToolCatalogService]
) -> None:
    most = max(10, 3 * len(queries))
    results = (await catalogs[embeddings].search(ME, queries, None, most, least_each=3)).results
    for index, query in enumerate(queries):
        alone = keys(await catalogs[embeddings].search(ME, [query], None, 3))
        assert set(alone) <= {one.tool.document.tool_key for one in results if index in one.intents}, query
    assert len(results) <= 2 * most / 3  # what serves several is listed once, and nothing fills the room
