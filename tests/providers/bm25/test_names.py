"""A tool that is asked for by its name comes first, however the name is spelt."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.catalog.results import MAX_LIFT
from pointsman.providers.base import SearchHits, SearchRequest, ToolDocument
from pointsman.providers.bm25.names import OF_NAMED_SERVER, ONE_OF_SEVERAL, OTHERS, ExactNames
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.bm25.query import parse

NAMES = {
    "files": {
        "read_file": "Read the complete contents of a text file. Read text from any file: read_text_file reads.",
        "read_text_file": "Old",
        "readMultipleFiles": "Read several files at once",
        "list_directory": "List a directory of files",
    },
    "docs": {
        "documents_list_documents": "List the documents of a collection, or documents of all collections.",
        "documents_list_collections": "What there is",
        "search": "Search documents",
    },
    "web": {"search": "Search the web", "fetch-page": "Fetch a page of the web", "the": "An article"},
}
DISPLAYED = {"files": "File System", "docs": "Documents", "web": "The Web"}


def documents() -> list[ToolDocument]:
    return [
        ToolDocument(f"{server}:{name}", name, DISPLAYED[server], description, {"type": "object"})
        for server, tools in NAMES.items()
        for name, description in tools.items()
    ]


async def found(*queries: str, max_results: int = 5, context: str | None = None) -> SearchHits:
    provider = BM25SearchProvider(embeddings=False)
    return await provider.search(SearchRequest(queries, context, documents(), max_results))


@pytest.mark.parametrize(
    "query",
    [
        "without read_text_file",
        "Don't use readTextFile, please",
        "never call the tool `files:read_text_file`",
        "don't use web:search or read_text_file.",
        "do not use web:search, list_directory or read_text_file to read",
        "do not use web:search, list_directory, or read_text_file",
        "don't use list_directory/read_text_file",
        "never call web:search, list_directory",
        "never call web:search, list_directory. List files.",
        "never call web:search, list_directory, but show files",
    ],
)
async def test_a_name_that_is_forbidden_is_not_asked_for(query: str) -> None:
    assert all(hit.relevance < ONE_OF_SEVERAL for hit in await found(query))


def test_a_forbidden_name_leaves_the_marks_behind_it() -> None:
    names = ExactNames(documents())
    assert names.without_forbidden("list it without read_text_file. Then push") == "list it . Then push"
    assert names.without_forbidden("do not use read_text_file and push") == " and push"
    assert names.without_forbidden("do not use it") == "do not use it"
    assert names.without_forbidden("do not use read_text_file, list files") == ", list files"
    assert names.without_forbidden("do not use list_directory/read_text_file, push") == ", push"
    assert names.without_forbidden("do not use a/read_text_file") == "do not use a/read_text_file"


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("do not use read_file, list_directory instead", "list_directory instead"),
        ("do not use read_file, list_directory is enough", "list_directory is enough"),
        ("do not use read_file and fetch-page, list_directory is enough", "list_directory is enough"),
        ("instead of read_file, list_directory", "list_directory"),
        ("rather than read_file, list_directory", "list_directory"),
        ("without read_file, list_directory.", "list_directory."),
        ("call fetch-page and not read_file, list_directory", "call fetch-page and , list_directory"),
        ("call fetch-page and not read_file, list_directory next", "call fetch-page and , list_directory next"),
        ("do not use read_file. list_directory or fetch-page", ". list_directory or fetch-page"),
    ],
)
def test_a_name_behind_a_comma_that_is_asked_for_instead_stays(query: str, left: str) -> None:
    assert ExactNames(documents()).without_forbidden(query).removeprefix(", ") == left


@pytest.mark.parametrize(
    "query",
    [
        "do not use read_file, fetch-page or list_directory to list files",
        "instead of read_file, fetch-page and list_directory to list files",
    ],
)
def test_of_a_list_that_closes_with_a_conjunction_no_name_stays(query: str) -> None:
    assert ExactNames(documents()).without_forbidden(query) == " to list files"


async def test_of_a_list_of_forbidden_names_none_is_asked_for_and_the_name_behind_it_is() -> None:
    best, *others = await found("do not use web:search, list_directory or fetch-page, but read_text_file")
    assert best.tool_key == "files:read_text_file"
    assert all(hit.relevance <= OTHERS for hit in others)


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("read_text_file", "files:read_text_file"),
        ("readTextFile", "files:read_text_file"),
        ("ReadTextFile", "files:read_text_file"),
        ("read-text-file", "files:read_text_file"),
        ("read text file", "files:read_text_file"),
        ("READ_TEXT_FILE", "files:read_text_file"),
        (" `read_text_file` ", "files:read_text_file"),
        ("files:read_text_file", "files:read_text_file"),
        ("files__read_text_file", "files:read_text_file"),
        ("files.readTextFile", "files:read_text_file"),
        ("File System: read_text_file", "files:read_text_file"),
        ("read_multiple_files", "files:readMultipleFiles"),
        ("documents_list_collections", "docs:documents_list_collections"),
        ("documentsListCollections", "docs:documents_list_collections"),
        ("docs:documents_list_collections", "docs:documents_list_collections"),
        ("fetchPage", "web:fetch-page"),
        ("docs:search", "docs:search"),
        ("web search", "web:search"),
        ("the", "web:the"),
    ],
)
async def test_a_tool_asked_for_by_name_comes_first(query: str, key: str) -> None:
    best, *others = await found(query)
    assert best.tool_key == key
    assert best.relevance >= 0.95
    assert best.explanation == "exact name"
    assert all(other.relevance <= 0.9 for other in others)


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("use read_text_file", "files:read_text_file"),
        ("call the `readTextFile` tool", "files:read_text_file"),
        ("Run documents_list_collections, please.", "docs:documents_list_collections"),
        ("which collections are there (docs:documents_list_collections)?", "docs:documents_list_collections"),
        ("search documents with web:search", "web:search"),
        ("read a file of the web with fetch-page", "web:fetch-page"),
    ],
)
async def test_an_identifier_in_a_sentence_that_is_a_name_comes_first(query: str, key: str) -> None:
    best, *others = await found(query)
    assert (best.tool_key, best.explanation) == (key, "exact name")
    assert all(other.relevance <= 0.9 for other in others)


async def test_of_several_names_in_a_sentence_all_come_first() -> None:
    hits = await found("list_directory and then read_text_file")
    assert {hit.tool_key for hit in hits[:2]} == {"files:list_directory", "files:read_text_file"}


async def test_of_several_tools_with_one_name_all_come_first_and_are_less_sure() -> None:
    first, second, *others = await found("search")
    assert {first.tool_key, second.tool_key} == {"docs:search", "web:search"}
    assert first.relevance == second.relevance == 0.95
    assert all(other.relevance <= 0.9 for other in others)


async def test_a_name_among_several_queries_comes_first_and_serves_its_own() -> None:
    hits = await found("read all files of a text directory", "documents_list_collections", context="read file text")
    assert hits[0].tool_key == "docs:documents_list_collections"
    assert hits[0].intents == (1,)
    assert hits.best_by_query[1] >= 0.95
    both = await found("search the web", "readMultipleFiles", "documents_list_collections", max_results=2)
    assert {hit.tool_key for hit in both} == {"files:readMultipleFiles", "docs:documents_list_collections"}


@pytest.mark.parametrize(
    "query",
    [
        *("read a text file", "list collections", "read_text", "read_text_files_now", "", " _-"),
        *("use search", "then read_text", "search: the web", "__search __ the"),
    ],
)
async def test_what_is_not_a_whole_name_is_ranked_as_before(query: str) -> None:
    assert all(hit.explanation != "exact name" for hit in await found(query))


@given(st.sampled_from(documents()), st.sampled_from(["", "_", "-", " ", ".", "camel"]), st.booleans())
def test_every_spelling_of_a_name_leads_to_it(tool: ToolDocument, joint: str, with_server: bool) -> None:
    words = tool.tool_name.replace("-", "_").replace("M", "_m").replace("F", "_f").split("_")
    spelt = "".join(map(str.capitalize, words)) if joint == "camel" else joint.join(words)
    query = f"{tool.tool_key.partition(':')[0]}:{spelt}" if with_server else spelt
    keys = [hit.tool_key for hit in asyncio.run(found(query)) if hit.explanation == "exact name"]
    assert tool.tool_key in keys


def test_usage_cannot_lift_another_tool_past_the_name() -> None:
    def log_odds(relevance: float) -> float:
        return math.log(relevance / (1 - relevance))

    assert log_odds(OTHERS) + MAX_LIFT < log_odds(ONE_OF_SEVERAL)


ISSUES = tuple(
    ToolDocument(f"tracker:{name}", name, "Tracker", "An entry of the tracker", {"type": "object"})
    for name in ("get_issue", "list_issues", "get_issues", "status")
)


@pytest.mark.parametrize("embeddings", [False, True], ids=["words", "embeddings"])
@pytest.mark.parametrize(
    ("query", "best"), [("get the issue", "get_issue"), ("get all issues", "get_issues"), ("the status", "status")]
)
async def test_singular_and_plural_of_a_name_are_told_apart(query: str, best: str, embeddings: bool) -> None:
    hits = await BM25SearchProvider(embeddings).search(SearchRequest((query,), None, ISSUES, 5))
    assert hits[0].tool_key == f"tracker:{best}"


@pytest.mark.parametrize("embeddings", [False, True], ids=["words", "embeddings"])
async def test_a_plural_asks_for_the_tool_that_lists(embeddings: bool) -> None:
    tools = [tool for tool in ISSUES if tool.tool_name != "get_issues"]
    hits = await BM25SearchProvider(embeddings).search(SearchRequest(("which issues are open",), None, tools, 5))
    assert hits[0].tool_key == "tracker:list_issues"


@pytest.mark.parametrize("query", ["what channels have we got", "we've got which channels?", "what's he got there"])
def test_to_have_got_something_asks_for_no_tool_that_gets(query: str) -> None:
    assert "get" not in parse(query).tokens


@pytest.mark.parametrize("query", ["get the channels", "she got the file, get me mine", "I have got to get the files"])
def test_other_forms_of_to_get_do(query: str) -> None:
    assert "get" in parse(query).tokens


@pytest.mark.parametrize("embeddings", [False, True], ids=["words", "embeddings"])
@pytest.mark.parametrize(
    "query",
    [
        *("tracker", "Tracker MCP", "use the tracker server", "what can the tracker do?", "list all tracker tools"),
        *("what tools does the tracker server provide", "which tools are provided by the tracker?"),
        *("how do i use tracker", "tell me about tracker", "help with tracker", "I need the tracker"),
    ],
)
async def test_a_request_that_names_only_a_server_gets_its_tools(query: str, embeddings: bool) -> None:
    tools = [*ISSUES, *documents()]
    hits = await BM25SearchProvider(embeddings).search(SearchRequest((query,), None, tools, len(ISSUES)))
    assert {hit.tool_key for hit in hits} == {tool.tool_key for tool in ISSUES}
    assert all(hit.relevance >= OF_NAMED_SERVER for hit in hits)


@pytest.mark.parametrize(
    "query",
    [
        "get the tracker",
        "erase the tracker",
        "list tracker",
        "get me help with the tracker",
        "without the tracker",
        "what can you do",
        "tools",
    ],
)
async def test_a_request_that_names_more_or_no_server_does_not_raise_its_tools(query: str) -> None:
    tools = [*ISSUES, *documents()]
    hits = await BM25SearchProvider(embeddings=False).search(SearchRequest((query,), None, tools, len(tools)))
    assert any(hit.relevance < OF_NAMED_SERVER for hit in hits if hit.tool_key.startswith("tracker:")) or not hits


@pytest.mark.parametrize("shown", ["Tracker", "tracker-mcp", "The Tracker Server"])
async def test_the_words_of_a_name_that_mean_a_server_do_not_count(shown: str) -> None:
    tools = [ToolDocument(f"t:{one.tool_name}", one.tool_name, shown, one.description, {}) for one in ISSUES]
    hits = await BM25SearchProvider(embeddings=False).search(SearchRequest(("tracker",), None, tools, 5))
    assert [hit.relevance >= OF_NAMED_SERVER for hit in hits] == [True] * len(ISSUES)
