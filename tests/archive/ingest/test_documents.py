"""The metadata of a document."""

from __future__ import annotations

from typing import Any

import pytest

from pointsman.archive.ingest.documents import date_of, other_metadata, source_of, tags_of, title_of, url_of
from pointsman.archive.text.outline import outline

MTIME = 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    ("told", "given", "text", "title"),
    [
        ({"title": "From  front\nmatter"}, "given", "# Heading", "From front matter"),
        ({"title": 2024}, None, "", "2024"),
        ({"title": ["no"]}, "Given", "# Heading", "Given"),
        ({}, None, "## Two\n# `One` and [link](x) {#id}", "One and link"),
        ({"title": " "}, None, "no heading", "my-note"),
    ],
)
def test_the_title(told: dict[str, Any], given: str | None, text: str, title: str) -> None:
    assert title_of(told, given, outline(text), "sub/my-note.md") == title


@pytest.mark.parametrize(
    ("told", "given", "path", "date"),
    [
        ({"date": "2024-05-01"}, None, "2023-01-01.md", "2024-05-01"),
        ({"date": "2024-05-01T12:00:00+02:00"}, None, "a.md", "2024-05-01T10:00:00Z"),
        ({"date": "2024-05-01 12:00:00 GMT"}, None, "a.md", "2024-05-01"),
        ({"date": "in May"}, "2024-06-01T00:00:00Z", "a.md", "2024-06-01T00:00:00Z"),
        ({}, None, "journal/2023-12-31/2024-02-29-note.md", "2024-02-29"),
        ({}, None, "2024-13-01/2023-02-03.md", "2023-02-03"),
        ({}, None, "12024-01-01.md", "2023-11-14T22:13:20Z"),
    ],
)
def test_the_date_comes_from_front_matter_then_the_page_then_the_path_then_the_file(
    told: dict[str, Any], given: str | None, path: str, date: str
) -> None:
    assert date_of(told, given, path, MTIME) == date


def test_a_file_from_no_known_year_has_a_date_too() -> None:
    assert date_of({}, None, "a.md", 10**30) == "1970-01-01"


def test_tags() -> None:
    assert tags_of({"tags": ["a", " #b ", 3, "a", "", {"no": 1}]}) == ("a", "b", "3")
    assert tags_of({"tags": "one, two words"}) == ("one", "two words")
    assert tags_of({"tags": "one #two"}) == ("one", "two")
    assert tags_of({"tags": 7}) == tags_of({}) == ()


def test_source_and_url() -> None:
    assert source_of({"source": "url"}, None) == "url"
    assert source_of({"source": "url"}, "research") == "research"
    assert source_of({"source": "https://example.org"}, None) == "url"
    assert source_of({"source": "my head"}, None) == source_of({}, None) == "research"
    assert url_of({"source": "https://example.org"}, None) == "https://example.org"
    assert url_of({"url": "https://a.example", "source": "https://b.example"}, None) == "https://a.example"
    assert url_of({"url": "javascript:x"}, "https://c.example") == "https://c.example"


def test_the_rest_is_kept() -> None:
    assert other_metadata({"title": "x", "author": "me", "n": [1]}) == {"author": "me", "n": [1]}
    assert other_metadata({"title": "x"}) is None
