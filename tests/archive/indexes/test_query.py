"""The query language of indexes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.archive.indexes.query import parse
from pointsman.archive.model.indexes import Tokenizer


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("", {}),
        ("rate limiting API", {"terms": ["rate", "limiting", "api"]}),
        ('+python "machine learning"', {"must": ["python"], "phrases": ["machine learning"]}),
        ("python -java", {"terms": ["python"], "must_not": ["java"]}),
        ('python -"big data"', {"terms": ["python"], "must_not": ["big data"]}),
        ('+"machine learning"', {"phrases": ["machine learning"]}),
        ('"python"', {"must": ["python"]}),
        ('"not closed', {"phrases": ["not closed"]}),
        ('"" + - x "a"', {}),
        ("rate-limiting", {"terms": ["rate", "limiting"]}),
        ("-rate-limiting api", {"terms": ["api"], "must_not": ["rate limiting"]}),
        ("word word +must +must", {"terms": ["word"], "must": ["must"]}),
        ("collection:docs AND (x OR title:*)", {"terms": ["collection", "docs", "and", "or", "title"]}),
        ('pre"in side"post', {"terms": ["pre", "post"], "phrases": ["in side"]}),
        ('"learn a language" -"b c"', {"phrases": ["learn * language"]}),
        ("Größe", {"terms": ["größe"]}),
    ],
)
def test_only_plus_minus_and_quotes_mean_anything(text: str, parsed: dict[str, Any]) -> None:
    empty: dict[str, Any] = {"terms": [], "must": [], "must_not": [], "phrases": []}
    assert parse(text, Tokenizer()).as_json() == empty | parsed


def test_the_tokenizer_of_the_index_reads_the_query() -> None:
    query = parse("Go is A-1 Language", Tokenizer(lowercase=False, min_length=3))
    assert query.terms == ("Language",)


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    query = parse(text, Tokenizer(min_length=1))
    assert all(word == word.strip() and word for word in query.scored)
