"""Addresses, paths and file names in a request are said in words."""

from __future__ import annotations

import pytest

from pointsman.providers.bm25.query import parse
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
        ("and/or 24/7 km/h owner/repository v1.2.3 3.14 e.g. this.", []),
    ],
)
def test_a_value_is_said_in_words(text: str, expected: list[str]) -> None:
    assert list(words_for_values(text)) == expected


def test_such_words_are_marked_as_unsaid() -> None:
    assert parse("show report.csv").hints == {"file"}
    assert parse("show the file report.csv").hints == frozenset()
