"""The archive's tools, found among those of eight real servers by people who have not read their descriptions.

Share of requests whose right tool is first / among the first three, by words and with embeddings, and with embeddings
but without the tools' example requests, which words do not read:

    set                            words     embeddings    without examples
    first (archive_strangers)    .61 / .92    .71 / .90      .63 / .88
    names A                      .90 / .97    .92 / .98      .83 / 1.0
    names B                      .75 / .95    .78 / .97      .78 / .93
    names C                      .80 / .90    .82 / .95      .83 / .92
    names D                      .75 / .88    .80 / .93
    second                       .26 / .61    .45 / .66      .29 / .63
    held out                     .64 / .73    .64 / .83      .60 / .76

The descriptions are worded for the needs in the first set, A and B, and the wording of one (`documents_list_documents`)
was chosen from half a dozen by the totals of all sets but the last, C and D. The authors of the example requests have
seen none of the sets; how much they count was chosen by the totals of all but C and D, which were written later: of the
sixty requests of C two count as found because of `also`. One author wrote A and B; strangers' requests do worse.

More than half of what is missed of the first set shares a word with the name of the tool that wins (`reset`, `upload`,
`branch`, `key`), which no description outweighs. `also` names tools that an expert would accept as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from ruamel.yaml import YAML

from pointsman.providers.bm25.provider import BM25SearchProvider
from tests.catalog.sources import SmallServer, catalog_of
from tests.e2e.foreign_servers import a_repository, real_servers
from tests.golden.golden import ME, keys, place
from tests.golden.test_archive import archive, both_ways

START_S = 120.0
UNLIKELY = 0.2
MOST_UNLIKELY = 0.05  # of the right hits

pytestmark = pytest.mark.foreign


class Asked(NamedTuple):
    ask: str
    right: tuple[str, ...]


class Floors(NamedTuple):
    """The share of requests whose right tool must be first, and among the first three."""

    first: float
    first_three: float


FLOORS = {  # some requests below the figures, to leave room for changes of the ranking
    ("archive_strangers.yaml", False): Floors(0.56, 0.86),
    ("archive_strangers.yaml", True): Floors(0.61, 0.88),
    ("archive_names_a.yaml", False): Floors(0.80, 0.95),
    ("archive_names_a.yaml", True): Floors(0.80, 0.95),
    ("archive_strangers_second.yaml", False): Floors(0.20, 0.49),
    ("archive_strangers_second.yaml", True): Floors(0.39, 0.62),
    ("archive_names_b.yaml", False): Floors(0.67, 0.88),
    ("archive_names_b.yaml", True): Floors(0.73, 0.90),
    ("archive_names_c.yaml", False): Floors(0.73, 0.83),
    ("archive_names_c.yaml", True): Floors(0.75, 0.88),
    ("archive_names_d.yaml", False): Floors(0.68, 0.81),
    ("archive_names_d.yaml", True): Floors(0.70, 0.86),
    ("archive_held_out.yaml", False): Floors(0.59, 0.68),
    ("archive_held_out.yaml", True): Floors(0.59, 0.76),
}
SETS = sorted({name for name, _ in FLOORS})

TOPICS = ("invoices", "public holidays", "customer complaints", "parental leave", "the billing module")
OTHERS_WORDS = ("screenshots", "the network settings", "file permissions", "backups", "commits", "browser tabs")
NAMES = ("parse_invoice", "calcDiscount", "PaymentGateway", "LEGACY_AUTH", "toSlug")  # no word of another tool's name
# How people ask for a tool, and the place that it must reach whatever the matter.
PHRASES = (
    ("which page covers {}", (*TOPICS, *OTHERS_WORDS), "documents_search", 1),
    ("which page of the docs explains {}", (*TOPICS, *OTHERS_WORDS), "documents_search", 1),
    ("why did we choose this for {}", TOPICS, "context_search", 1),
    ("why did we drop {}", (*TOPICS, "MongoDB"), "context_search", 1),  # there is a `browser_drop`
    ("the code that handles {}", TOPICS, "context_search", 1),  # there is a `browser_run_code_unsafe`
    ("who calls {}", NAMES, "grep_codebase", 1),
    ("where is {} used", NAMES, "grep_codebase", 2),
    ("all usages of {}", NAMES, "grep_codebase", 1),
    ("index this text about {}", TOPICS, "search_add_document", 1),
    ("add this text about {} to the index", TOPICS, "search_add_document", 1),
    ("search the documents for {}", TOPICS, "documents_search", 1),  # there is a `documents_search_batch`
    ("search the docs for {}", TOPICS, "documents_search", 1),
    ("documents about {}", TOPICS, "documents_search", 1),
    ("search the docs for {} and these questions in one go", TOPICS, "documents_search_batch", 1),
    ("search the {} with a regular expression", ("code", "codebase"), "grep_codebase", 1),
)
# Requests that a file's name makes one for a tool for files, and such about the clock.
FILES_AND_TIMES = (
    ("find the file named lease.txt", ("search_files",)),
    ("search my disk for lease.txt", ("search_files",)),
    ("summarise the paper at https://arxiv.org/abs/2401.00001", ("fetch",)),
    ("what does the policy at https://example.com/privacy say about cookies", ("fetch",)),
    ("give me the text of the document https://example.com/a.txt", ("fetch",)),
    ("print the contents of letter.txt", ("read_file", "read_text_file", "read_multiple_files")),
    ("store this text in notes.md", ("write_file",)),
    ("put hello into hello.txt", ("write_file",)),
    ("save the summary as report.md", ("write_file",)),
    ("what's in config.toml", ("read_file", "read_text_file")),
    ("how large is letter.txt", ("get_file_info", "list_directory_with_sizes")),
    ("rename old.txt to new.txt", ("move_file",)),
    ("what's today's date", ("get_current_time",)),
    ("what day is today", ("get_current_time",)),
    ("date", ("get_current_time",)),
)


@pytest.fixture(scope="module")
async def strangers(tmp_path_factory: pytest.TempPathFactory) -> list[SmallServer]:
    """The tools of the real servers, as they list them now."""
    entries, absent = real_servers(a_repository(tmp_path_factory.mktemp("work") / "repository"))
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)} (run `make foreign`)")
    async with asyncio.timeout(START_S):
        listed = await asyncio.gather(*map(_listed, entries.values()))
    return [SmallServer(name, *tools) for name, tools in zip(entries, listed, strict=True)]


@both_ways
@pytest.mark.parametrize("name", SETS)
async def test_the_right_tool_is_found_among_those_of_real_servers(
    strangers: Sequence[SmallServer], name: str, embeddings: bool
) -> None:
    tools = catalog_of(*strangers, archive(), local=BM25SearchProvider(embeddings))
    asked = load(name)
    places = [place(keys(await tools.search(ME, [each.ask], None, 3)), each.right) for each in asked]
    first, found = places.count(0) / len(asked), 1 - places.count(None) / len(asked)
    floors = FLOORS[name, embeddings]
    assert first >= floors.first
    assert found >= floors.first_three


@both_ways
async def test_what_is_right_is_hardly_ever_called_unlikely(strangers: Sequence[SmallServer], embeddings: bool) -> None:
    """By words 7 of 282 right hits are below .2, with embeddings 3 of 303.

    Of the other sets it was 17 of 143 with embeddings, and this count chose the rule that lowered it.
    """
    tools = catalog_of(*strangers, archive(), local=BM25SearchProvider(embeddings))
    found = [(each, await tools.search(ME, [each.ask], None, 1)) for name in SETS for each in load(name)]
    right = [
        (each.ask, outcome.results[0].relevance) for each, outcome in found if place(keys(outcome), each.right) == 0
    ]
    unlikely = [ask for ask, relevance in right if relevance < UNLIKELY]
    assert len(right) > 180
    assert len(unlikely) <= MOST_UNLIKELY * len(right), unlikely


@both_ways
@pytest.mark.parametrize(("phrase", "matters", "right", "within"), PHRASES, ids=[phrase for phrase, *_ in PHRASES])
async def test_the_phrases_of_a_need_find_its_tool(
    strangers: Sequence[SmallServer], phrase: str, matters: Sequence[str], right: str, within: int, embeddings: bool
) -> None:
    tools = catalog_of(*strangers, archive(), local=BM25SearchProvider(embeddings))
    found = {each: keys(await tools.search(ME, [phrase.format(each)], None, within)) for each in matters}
    assert {each: best for each, best in found.items() if f"archive:{right}" not in best} == {}


@both_ways
@pytest.mark.parametrize(("ask", "right"), FILES_AND_TIMES, ids=[ask for ask, _ in FILES_AND_TIMES])
async def test_a_file_name_and_a_date_are_not_taken_for_matters_of_the_archive(
    strangers: Sequence[SmallServer], ask: str, right: tuple[str, ...], embeddings: bool
) -> None:
    tools = catalog_of(*strangers, archive(), local=BM25SearchProvider(embeddings))
    (best,) = keys(await tools.search(ME, [ask], None, 1))
    assert best.partition(":")[2] in right


def load(name: str) -> list[Asked]:
    """Without those that no tool of the archive answers."""
    entries: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).with_name(name))
    return [Asked(each["ask"], _keys([*each["right"], *each.get("also", [])])) for each in entries if each["right"]]


def _keys(tools: Sequence[str]) -> tuple[str, ...]:
    return tuple(tool if ":" in tool else f"archive:{tool}" for tool in tools)


async def _listed(entry: dict[str, Any]) -> list[dict[str, Any]]:
    parameters = StdioServerParameters(command=entry["command"], args=entry.get("args", []), env=entry.get("env"))
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        listed = await session.list_tools()
        return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]
