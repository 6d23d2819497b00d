"""What is shown of a definition, and how a changed one is noticed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.methods import parse_server_result

from pointsman.catalog.definitions import (
    MAX_EXAMPLE_CHARS,
    MAX_EXAMPLES,
    MAX_REMEMBERED,
    DefinitionHistory,
    encode_entry,
    example_requests_of,
    visible_entry,
    visible_tool,
    without_examples,
)
from pointsman.core.kinds import PROMPTS, RESOURCES, TEMPLATES, TOOLS, ListKind
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
    inside = {"properties": {"a": schema}}
    assert shown({"name": "a", "inputSchema": inside})["inputSchema"] == literally(inside)


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


SOUND_SCHEMA: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"b": True, "c": {"type": ["string", "null"], "x": None}},
    "required": [],
    "x": None,
}
ICONS = [{"src": "x", "mimeType": "y", "sizes": ["any"], "theme": "dark", "x": 1}]
SOUND: list[tuple[ListKind, Json]] = [
    (TOOLS, {"name": "a", "inputSchema": {"type": "object"}, "icons": [], "execution": {}, "_meta": {}}),
    (TOOLS, {"name": "a", "inputSchema": SOUND_SCHEMA, "outputSchema": SOUND_SCHEMA, "icons": ICONS, "x": None}),
    (TOOLS, {"name": "a", "inputSchema": SOUND_SCHEMA, "title": "A", "execution": {"taskSupport": "optional"}}),
    (PROMPTS, {"name": "a", "title": "A", "arguments": [{"name": "b", "required": False, "title": "B", "x": 1}]}),
    (PROMPTS, {"name": "a", "description": "", "arguments": [], "icons": ICONS, "_meta": {"k": None}}),
    (RESOURCES, {"uri": "u://a", "name": "", "mimeType": "x", "size": 5.0, "annotations": {"audience": ["user"]}}),
    (RESOURCES, {"uri": "u://a", "name": "a", "size": 0, "annotations": {"priority": 1, "lastModified": "x", "y": 1}}),
    (TEMPLATES, {"uriTemplate": "u://{a}", "name": "a", "title": "A", "description": "B", "_meta": {}, "x": 1}),
]


def shown_of(kind: ListKind, entry: Json) -> Json:
    encoded = encode_entry(entry)
    assert encoded is not None
    return visible_tool(entry, encoded) if kind is TOOLS else visible_entry(entry, kind.key, encoded)


def read_by_the_sdk(kind: ListKind, *entries: Json) -> None:
    """Raises pydantic.ValidationError."""
    page = {kind.field: list(entries), "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
    for version in ("2025-11-25", "2026-07-28"):
        parse_server_result(kind.method, version, page)


@pytest.mark.parametrize(("kind", "entry"), SOUND)
def test_a_sound_definition_is_the_object_that_came(kind: ListKind, entry: Json) -> None:
    read_by_the_sdk(kind, entry)
    assert shown_of(kind, entry) is entry


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, -1, 0.5, 1e300, 2**70, "", "x", "user", "dark", "object"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(["src", "sizes", "theme", "name", "title", "required", "audience", "priority", "type"])
            | st.sampled_from(["properties", "$schema", "taskSupport", "lastModified", "mimeType", "readOnlyHint"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)
FIELDS = ["title", "description", "icons", "_meta", "annotations", "execution", "arguments", "mimeType", "size"]
OBJECT: Json = {"type": "object"}


@pytest.mark.parametrize("kind", [TOOLS, PROMPTS, RESOURCES, TEMPLATES], ids=lambda kind: kind.method)
@given(data=st.data())
def test_fields_of_any_type_leave_the_page_readable_for_the_sdk(kind: ListKind, data: st.DataObject) -> None:
    schema = ANYTHING.map(lambda made: {**made, **OBJECT} if isinstance(made, dict) else OBJECT)
    optional = dict.fromkeys([*FIELDS, "name"], ANYTHING) | {"outputSchema": schema | st.sampled_from(["x", None])}
    entry = data.draw(st.fixed_dictionaries({"inputSchema": schema}, optional=optional))
    shown = shown_of(kind, {**entry, kind.key: "a"})
    read_by_the_sdk(kind, shown)
    assert shown_of(kind, shown) == shown


@pytest.mark.parametrize(
    ("kind", "sent", "left"),
    [
        (TOOLS, {"inputSchema": OBJECT, "_meta": "x", "description": 5, "title": ["a"]}, {"inputSchema": OBJECT}),
        (TOOLS, {"inputSchema": OBJECT, "icons": "x", "outputSchema": "x", "title": None}, {"inputSchema": OBJECT}),
        (TOOLS, {"inputSchema": OBJECT, "x": None}, {"inputSchema": OBJECT, "x": None}),
        (
            TOOLS,
            {"inputSchema": {"properties": {"a": "text", "b": OBJECT}, "required": ["a", 5], "$schema": 7}},
            {"inputSchema": {"properties": {"a": {}, "b": OBJECT}, "required": ["a"]}},
        ),
        (
            TOOLS,
            {"inputSchema": OBJECT, "icons": [{"src": "x", "theme": "blue"}, {"src": 5}, "x"]},
            {"inputSchema": OBJECT, "icons": [{"src": "x"}]},
        ),
        (
            PROMPTS,
            {"arguments": [{"name": "a", "required": "yes"}, {"required": True}, 5], "title": 5},
            {"arguments": [{"name": "a"}]},
        ),
        (RESOURCES, {"name": "a", "size": "5", "annotations": "x"}, {"name": "a"}),
        (
            RESOURCES,
            {"name": "a", "annotations": {"priority": 7, "audience": ["user", "x"], "x": 1}},
            {"name": "a", "annotations": {"audience": ["user"], "x": 1}},
        ),
        (TEMPLATES, {"name": ["a"], "mimeType": 5}, {"name": "u://a"}),
    ],
)
def test_what_has_another_type_than_the_protocol_gives_it_is_left_out(kind: ListKind, sent: Json, left: Json) -> None:
    named = {kind.key: "a" if kind.key == "name" else "u://a"}
    assert shown_of(kind, {**named, **sent}) == {**named, **left}


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
    assert example_requests_of({"name": "a", "_meta": meta}) == found


def test_of_many_or_long_example_requests_only_so_much_is_kept() -> None:
    assert example_requests_of(with_examples("a", *["x" * 9_999] * 200)) == ("x" * MAX_EXAMPLE_CHARS,) * MAX_EXAMPLES


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


async def test_tools_that_need_roots_are_not_configured_until_there_are_some() -> None:
    catalog = catalog_of(SmallServer("s", tool("read_file"), tool("documents_search")), config=config_of({"s": {}}))
    without: Json = {"bundled": "archive"}
    for entry, expected in (
        (without, {"read_file": False, "documents_search": True}),
        ({**without, "roots": {"app": "/srv/app"}}, {"read_file": True, "documents_search": True}),
        (without, {"read_file": False, "documents_search": True}),
        ({"command": "x"}, {"read_file": True, "documents_search": True}),
    ):
        catalog.reconfigure(config_of({"s": entry}))
        found = (await catalog.available(ME)).tools
        assert {one.tool_name: one.document.configured for one in found} == expected
