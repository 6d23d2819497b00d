"""Patterns over tool keys, against regular expressions, and within a bound of time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.globs import MAX_PATTERN_CHARS, Globs, check_pattern

TEXTS = st.text("ab:_*.", max_size=12)


@given(st.lists(TEXTS, max_size=4), TEXTS)
def test_a_star_stands_for_anything_and_all_else_for_itself(patterns: list[str], text: str) -> None:
    expressions = [".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns]
    expected = any(re.fullmatch(one, text, re.DOTALL) for one in expressions)
    assert Globs(patterns).matches(text) == expected


def test_a_pattern_made_to_backtrack_is_answered_at_once() -> None:
    pattern, text = "a*" * 127 + "b", "a" * 1_000_000
    assert not Globs([pattern]).matches(text)  # a matcher that tries all ways would never end
    assert Globs([pattern]).matches(text + "b")


@pytest.mark.parametrize("pattern", ["", "x" * (MAX_PATTERN_CHARS + 1), "a:\x00", "delete_file"])
def test_a_pattern_that_could_match_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="a pattern"):
        check_pattern(pattern)


@pytest.mark.parametrize("pattern", ["files:delete_file", "files:*", "*", "*delete*", "f*:*"])
def test_other_patterns_are_kept_as_they_are(pattern: str) -> None:
    assert check_pattern(pattern) == pattern
