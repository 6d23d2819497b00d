"""Values in a request: addresses, paths and file names are said in words, names are told from plain words."""

from __future__ import annotations

import pytest

from pointsman.providers.bm25.query import names_in, parse
from pointsman.providers.bm25.values import words_for_values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("open https://example.com/prices.", ["url", "page", "website"]),
        ("open example.com", ["url", "page", "website"]),
        ("read notes/todo.md", ["file", "document", "path"]),
        ("show report.csv,", ["file"]),
        ("crop photo.JPG", ["file", "image"]),
        ("what is in /var/log", ["path", "directory"]),
        ("what is in C:\\logs", ["path", "directory"]),
        ("write to anna@example.com", ["email"]),
        ("what time is it in Berlin", ["current"]),
        ("What's the time?", ["current"]),
        ("what was the reason for choosing YAML", ["why"]),
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


def test_such_words_are_marked_as_unsaid() -> None:
    assert parse("show report.csv").hints == {"file"}
    assert parse("show the file report.csv").hints == frozenset()


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
