"""Values in a request: addresses, paths and file names are said in words, names are told from plain words."""

from __future__ import annotations

import pytest

from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.bm25.query import names_in, parse
from pointsman.providers.bm25.values import words_for_values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("open https://example.com/prices.", ["url", "page", "website"]),
        ("open example.com", ["url", "page", "website"]),
        ("read notes/todo.md", ["file", "path"]),
        ("compare contract.docx", ["file", "document"]),
        ("open letter.txt", ["file", "read"]),
        ("print the contents of letter.txt", ["file", "read"]),
        ("What does README.md say?", ["file", "read"]),
        ("open an issue about letter.txt", ["file"]),
        ("store this text in notes.md", ["file", "write"]),
        ("save it as report.csv.", ["file", "write"]),
        ("look for the word in notes.md", ["file"]),
        ("rename old.md to new.md", ["file"]),
        ("how large is letter.txt", ["size", "file"]),
        ("show report.csv,", ["file", "read"]),
        ("crop photo.JPG", ["file", "image"]),
        ("what is in /var/log", ["path", "directory"]),
        ("what is in C:\\logs", ["path", "directory"]),
        ("write to anna@example.com", ["email"]),
        ("what time is it in Berlin", ["current"]),
        ("What's the time?", ["current"]),
        ("what's today's date", ["current", "time"]),
        ("what day is today", ["current", "time"]),
        ("What day is it?", ["current", "time"]),
        ("What is the date?", ["current", "time"]),
        ("date", ["current", "time"]),
        ("the date of the last commit", []),
        ("what was the reason for choosing YAML", ["why"]),
        ("why did we leave Oracle", ["reason", "decision"]),
        ("what is the time difference between Berlin and Rome", []),
        ("and/or 24/7 km/h owner/repository v1.2.3 3.14 e.g. this.", []),
    ],
)
def test_a_value_is_said_in_words(text: str, expected: list[str]) -> None:
    assert list(words_for_values(text)) == expected


def test_who_wants_to_be_rid_of_something_wants_it_deleted() -> None:
    asked = parse("Get rid of the file and throw away something else")
    assert set(asked.tokens.values()) == {"delete", "file", "else"}
    assert asked.kinds == ("removes", "removes")


def test_a_regular_expression_is_a_regex() -> None:
    assert set(parse("Match Regular Expressions").tokens.values()) == {"match", "regex"}


async def test_a_tool_that_says_regular_expression_is_found_by_regex() -> None:
    tools = [
        ToolDocument("s:a", "a", "s", "Tests a regular expression", {}),
        ToolDocument("s:b", "b", "s", "Shows a facial expression", {}),
    ]
    hits = await BM25SearchProvider(embeddings=False).search(SearchRequest(("try a regex",), None, tools, 5))
    assert [hit.tool_key for hit in hits] == ["s:a"]


def test_the_words_of_a_file_name_count_less() -> None:
    assert parse("print notes/letter.txt").faint == {"note", "letter", "txt", "path"}


def test_such_words_are_marked_as_unsaid() -> None:
    assert parse("plot report.csv").hints == {"file"}
    assert parse("plot the file report.csv").hints == frozenset()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Find a hotel in New York for Anna", ["new", "york", "anna"]),
        ("Book a table. Then call the Ritz", ["ritz"]),
        ("read the file", []),
    ],
)
def test_a_capital_inside_a_sentence_marks_a_name(text: str, names: list[str]) -> None:
    assert list(names_in(text)) == names


def test_names_and_numbers_are_no_plain_words() -> None:
    query = parse("find a hotel in Oslo for 3 nights")
    assert query.names == {"oslo"}
    assert query.values == {"oslo", "3"}


def test_a_request_in_capitals_throughout_has_no_names() -> None:
    assert parse("Find A Hotel For Three Nights").names == frozenset()


def test_the_words_of_an_identifier_count_less() -> None:
    assert {"load", "user"} <= parse("callers of load_user").faint
    assert {"pars", "config"} <= parse("where is parseConfig called").faint
    assert parse("load the user").faint == frozenset()
