"""What is shown of a definition, and how a changed one is noticed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.catalog.definitions import (
    MAX_EXAMPLE_CHARS,
    MAX_EXAMPLES,
    MAX_REMEMBERED,
    DefinitionHistory,
    encode_entry,
    example_requests,
    visible_entry,
    visible_tool,
    without_examples,
)
from pointsman.core.model import Json
from pointsman.core.seams import EXAMPLE_REQUESTS
from tests.catalog.sources import SmallServer, catalog_of, config_of, tool
from tests.golden.golden import ME

HIDDEN = "\U000e0041\u202e\u200b"


def shown(tool: Json) -> Json:
    encoded = encode_entry(tool)
    assert encoded is not None
    return visible_tool(tool, encoded)


def test_a_definition_without_hidden_text_is_shown_as_it_came() -> None:
    tool = {"name": "a", "title": "A", "inputSchema": {"type": "object"}, "icons": [{"src": "x"}], "_meta": {"k": 1}}
    assert shown(tool) == tool


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"title": "T", "readOnlyHint": False, "destructiveHint": True}, None),
        ({"idempotentHint": True, "openWorldHint": False}, None),
        ({"readOnlyHint": "yes", "destructiveHint": 1, "idempotentHint": None, "title": 7, "other": True}, {}),
        ({"title": HIDDEN}, {}),
        (["readOnlyHint"], {}),
        ("x" * 10_000, {}),
    ],
)
def test_of_annotations_the_five_known_ones_are_shown(sent: Any, kept: Json | None) -> None:
    expected = sent if kept is None else kept
    assert shown({"name": "a", "annotations": sent}).get("annotations", {}) == expected


VALUES = st.sampled_from(["plain", f"hid{HIDDEN}den", 1, None, ["a", f"b{HIDDEN}"]])
KEPT = st.sampled_from(["enum", "const", "default", "pattern", "examples", "required"])
NAMES = st.sampled_from(["description", "enum", "plain", f"name{HIDDEN}", "title"])
schemas: st.SearchStrategy[Any] = st.recursive(
    st.dictionaries(KEPT, VALUES, max_size=3),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "description": st.just(f"text{HIDDEN}"),
            "title": st.just(f"title{HIDDEN}"),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "anyOf": st.lists(inner, max_size=2),
            "items": inner,
            "default": VALUES,
        },
    ),
    max_leaves=8,
)


@given(schemas)
def test_texts_lose_what_is_hidden_and_values_and_names_lose_nothing(schema: Any) -> None:
    assert shown({"name": "a", "inputSchema": schema})["inputSchema"] == literally(schema)


def literally(schema: Any, *, names: bool = False) -> Any:
    """The rule once more, as plainly as it can be said."""
    if isinstance(schema, list):
        return [literally(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    read: Json = {}
    for key, value in schema.items():
        if not names and key in ("description", "title"):
            read[key] = value.replace(HIDDEN, "")
        elif not names and key in ("enum", "const", "default", "pattern", "examples", "required"):
            read[key] = value
        else:
            read[key] = literally(value, names=not names and key == "properties")
    return read


def test_hidden_text_is_found_in_keywords_that_nobody_has_heard_of() -> None:
    schema = {"x-note": f"a{HIDDEN}", "$comment": [f"b{HIDDEN}"], f"x{HIDDEN}": 1, "format": f"date{HIDDEN}"}
    expected = {"x-note": "a", "$comment": ["b"], "format": "date"}
    assert shown({"name": "a", "outputSchema": schema})["outputSchema"] == expected


def test_names_of_resources_are_texts_and_names_of_prompts_are_not() -> None:
    entry = {"uri": "u://x", "name": f"n{HIDDEN}"}
    encoded = encode_entry(entry)
    assert encoded is not None
    assert visible_entry(entry, "uri", encoded)["name"] == "n"
    assert visible_entry(entry, "name", encoded)["name"] == f"n{HIDDEN}"


def test_a_change_is_reported_once_also_over_an_absence() -> None:
    told: list[tuple[str, list[str]]] = []
    definitions = DefinitionHistory(lambda server_id, names: told.append((server_id, list(names))))
    definitions.record("one", {"a": b"1", "b": b"1"})
    definitions.record("two", {"a": b"2"})
    definitions.record("one", {"a": b"1", "b": b"1", "c": b"1"})
    assert told == []
    definitions.record("one", {"b": b"2", "c": b"2"})
    definitions.record("one", {"b": b"2", "c": b"2"})
    definitions.record("one", {"a": b"9", "b": b"2"})
    assert told == [("one", ["b", "c"]), ("one", ["a"])]


def test_a_server_with_ever_new_names_takes_bounded_memory() -> None:
    definitions = DefinitionHistory(lambda server_id, names: None)
    for start in range(0, 4 * MAX_REMEMBERED, MAX_REMEMBERED):
        definitions.record("one", {f"t{number}": b"1" for number in range(start, start + MAX_REMEMBERED)})
        assert len(definitions._digests) <= MAX_REMEMBERED


def with_examples(name: str, *examples: Any) -> Json:
    return {**tool(name), "_meta": {EXAMPLE_REQUESTS: list(examples)}}


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        ({EXAMPLE_REQUESTS: ["why did we", "who decided"]}, ("why did we", "who decided")),
        ({EXAMPLE_REQUESTS: ["why", 7, None, ["who"], {"a": "b"}]}, ("why",)),
        ({EXAMPLE_REQUESTS: "why did we"}, ()),
        ({EXAMPLE_REQUESTS: {"why": "did we"}}, ()),
        (["why"], ()),
        (None, ()),
    ],
)
def test_example_requests_are_a_list_of_texts(meta: Any, found: tuple[str, ...]) -> None:
    assert example_requests({"name": "a", "_meta": meta}) == found


def test_of_many_or_long_example_requests_only_so_much_is_kept() -> None:
    assert example_requests(with_examples("a", *["x" * 9_999] * 200)) == ("x" * MAX_EXAMPLE_CHARS,) * MAX_EXAMPLES


@pytest.mark.parametrize(
    ("entry", "count"),
    [({"command": "x"}, 0), ({"command": "x", "trust_annotations": True}, 0), ({"bundled": "archive"}, 1)],
)
async def test_example_requests_count_only_if_the_server_is_bundled(entry: Json, count: int) -> None:
    """Another server could draw all requests to itself with them."""
    catalog = catalog_of(SmallServer("s", with_examples("a", "why did we")), config=config_of({"s": entry}))
    [found] = (await catalog.available(ME)).tools
    assert len(found.document.examples) == count


@pytest.mark.parametrize("meta", [{"vendor/x": 1}, {}, None, ["a"]])
def test_a_definition_without_example_requests_is_shown_as_it_came(meta: Any) -> None:
    bare = {**tool("a"), "_meta": meta}
    assert without_examples(bare) is bare


def test_clients_are_not_sent_example_requests() -> None:
    entry = with_examples("a", "why did we")
    assert without_examples(entry) == tool("a")
    assert without_examples({**entry, "_meta": {**entry["_meta"], "vendor/x": 1}})["_meta"] == {"vendor/x": 1}


async def test_an_entry_that_becomes_bundled_is_listed_again() -> None:
    catalog = catalog_of(SmallServer("s", with_examples("a", "why did we")), config=config_of({"s": {}}))
    for entry, count in (({"command": "x"}, 0), ({"bundled": "archive"}, 1), ({"command": "x"}, 0)):
        catalog.reconfigure(config_of({"s": entry}))
        [found] = (await catalog.available(ME)).tools
        assert len(found.document.examples) == count
