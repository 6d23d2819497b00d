"""A document that is kept for long holds what search reads of it, and nothing else."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pointsman.providers.base import ToolDocument
from pointsman.providers.bm25.documents import lean, texts_of

TEXTS = st.text(st.sampled_from("ab天气_ .\n"), max_size=900)
SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.fixed_dictionaries({}, optional={"description": TEXTS}),
    lambda inner: st.fixed_dictionaries(
        {"properties": st.dictionaries(st.text("ab天 _", max_size=400), inner, max_size=4)},
        optional={"description": TEXTS, "items": inner},
    ),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(TEXTS, SCHEMAS)
def test_search_reads_the_same_in_it(description: str, schema: dict[str, Any]) -> None:
    whole = ToolDocument("s:a", "getWeather", "sky", description, schema)
    assert texts_of(lean(whole)) == texts_of(whole)
    assert texts_of(lean(lean(whole))) == texts_of(whole)


def test_it_is_small_however_large_the_tool_is() -> None:
    schema = {"properties": {f"p{n}": {"description": "x " * 5_000, "default": ["y"] * 5_000} for n in range(300)}}
    kept = lean(ToolDocument("s:a", "a", "s", "z " * 100_000, schema))
    assert not kept.input_schema
    assert sum(map(len, texts_of(kept).values())) < 2_000
