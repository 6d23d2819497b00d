"""A document that is kept for long holds what search reads of it, and nothing else."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pointsman.providers.base import ToolDocument
from pointsman.providers.documents import lean, meaning_of, texts_of
from pointsman.providers.text import tokens

TEXTS = st.text(st.sampled_from("ab天气_ .\n"), max_size=900)
SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.fixed_dictionaries({}, optional={"description": TEXTS}),
    lambda inner: st.fixed_dictionaries(
        {"properties": st.dictionaries(st.text("ab天 _", max_size=400), inner, max_size=4)},
        optional={"description": TEXTS, "items": inner},
    ),
    max_leaves=8,
)


@given(TEXTS, SCHEMAS)
def test_search_reads_the_same_in_it(description: str, schema: dict[str, Any]) -> None:
    whole = ToolDocument("s:a", "getWeather", "sky", description, schema)
    kept = lean(whole)
    read, read_of_kept = texts_of(whole), texts_of(kept)
    for field, text in read.items():
        assert tokens(read_of_kept[field]) == tokens(text), field
    assert meaning_of(read_of_kept).split() == meaning_of(read).split()


def test_it_is_small_however_large_the_tool_is() -> None:
    schema = {"properties": {f"p{n}": {"description": "x " * 5_000, "default": ["y"] * 5_000} for n in range(300)}}
    kept = lean(ToolDocument("s:a", "a", "s", "z " * 100_000, schema))
    assert len(kept.description) + len(repr(kept.input_schema)) < 2_500
