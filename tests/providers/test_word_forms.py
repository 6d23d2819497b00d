"""Irregular forms and British spellings have the stem of the plain form."""

from __future__ import annotations

import pytest

from pointsman.providers.text import stem


@pytest.mark.parametrize(
    ("form", "plain"),
    [
        ("wrote", "write"),
        ("sent", "send"),
        ("people", "person"),
        ("indices", "index"),
        ("colours", "color"),
        ("organised", "organize"),
        ("analysing", "analyze"),
        ("catalogue", "catalog"),
    ],
)
def test_both_have_one_stem(form: str, plain: str) -> None:
    assert stem(form) == stem(plain)


@pytest.mark.parametrize(("one", "other"), [("left", "leave"), ("hour", "hor"), ("status", "statuz")])
def test_words_of_their_own_stay_apart(one: str, other: str) -> None:
    assert stem(one) != stem(other)
