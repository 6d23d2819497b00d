"""The canonical form of a definition: what counts as a change, what is stored of it, and how a change is shown."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.catalog.pins import (
    MAX_DIFF_LINES,
    MAX_PINS,
    Digests,
    canonical_json,
    decode_table,
    diff_lines,
    digests_of,
    encode_table,
    held_names,
    name_hash,
    pins_of,
)
from pointsman.catalog.results import Available, no_tools_notice
from pointsman.router.state.key_values import MAX_VALUE_BYTES

LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
SCHEMAS = st.recursive(
    st.fixed_dictionaries({"type": st.sampled_from(["string", "integer"]), "description": st.text(max_size=20)}),
    lambda inner: st.fixed_dictionaries(
        {
            "type": st.just("object"),
            "properties": st.dictionaries(st.text(max_size=6), inner, max_size=3),
            "default": VALUES,
            "enum": st.lists(VALUES, max_size=2),
        }
    ),
    max_leaves=6,
)
TOOLS = st.fixed_dictionaries(
    {"name": st.text(min_size=1, max_size=8), "inputSchema": SCHEMAS},
    optional={
        "description": st.text(max_size=40),
        "annotations": st.dictionaries(st.sampled_from(["title", "readOnlyHint"]), LEAVES),
        "_meta": st.dictionaries(st.text(max_size=4), VALUES, max_size=2),
    },
)


@given(st.dictionaries(st.text(max_size=3), VALUES | st.floats(allow_nan=False, allow_infinity=False), max_size=4))
def test_the_canonical_form_is_what_json_writes(values: dict[str, Any]) -> None:
    """Whichever encoder wrote it: pins of earlier versions must stay valid."""
    tool = {"name": "read", "inputSchema": {"properties": {}, "default": values}}
    expected = json.dumps(tool, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    assert canonical_json(tool) == expected


def shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, shuffled(one, order)) for key, one in value.items()]
        order.shuffle(items)
        return dict(items)
    return [shuffled(one, order) for one in value] if isinstance(value, list) else value


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict) and value:
        return [leaf for key, one in value.items() for leaf in leaves(one, (*path, key))]
    if isinstance(value, list) and value:
        return [leaf for index, one in enumerate(value) for leaf in leaves(one, (*path, index))]
    return [path]


def with_leaf(value: Any, path: tuple[Any, ...], leaf: Any) -> Any:
    if not path:
        return leaf
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = with_leaf(value[path[0]], path[1:], leaf)
    return copied


@given(TOOLS, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_count(tool: dict[str, Any], order: random.Random) -> None:
    assert digests_of(shuffled(tool, order)) == digests_of(tool)


@given(TOOLS, st.data())
def test_every_other_change_counts(tool: dict[str, Any], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(leaves(tool)))
    before, after = digests_of(tool), digests_of(with_leaf(tool, path, "another value, never drawn"))
    assert before is not None
    assert after is not None
    assert before.whole != after.whole


def test_white_space_in_texts_does_not_count_but_in_values_that_are_sent_back() -> None:
    tool = {"name": "a", "description": "Do it.\n   Then rest. ", "inputSchema": {"enum": ["a b"], "title": "A  b"}}
    same = {"name": "a", "description": "Do it. Then rest.", "inputSchema": {"enum": ["a b"], "title": "A b"}}
    assert digests_of(tool) == digests_of(same)
    assert digests_of(same) != digests_of({**same, "inputSchema": {"enum": ["a  b"], "title": "A b"}})


def test_names_of_parameters_are_no_texts() -> None:
    """A parameter may be called `description` or `required`: its schema counts like any other."""
    schema = {"properties": {"description": {"type": "string"}, "required": {"type": ["null", "string"]}}}
    other = {"properties": {"description": {"type": "string"}, "required": {"type": ["string", "null"]}}}
    fewer = {"properties": {"required": {"type": ["null", "string"]}}}
    assert digests_of({"name": "a", "inputSchema": schema}) == digests_of({"name": "a", "inputSchema": other})
    one, two = digests_of({"name": "a", "inputSchema": schema}), digests_of({"name": "a", "inputSchema": fewer})
    assert one is not None
    assert two is not None
    assert one.schema != two.schema


def test_with_pin_schema_texts_do_not_count_and_what_is_called_does() -> None:
    tool = {
        "name": "a",
        "title": "Of today",
        "description": "It is Monday, in /home/ann",
        "inputSchema": {"properties": {"day": {"type": "string", "description": "such as Monday"}}},
        "annotations": {"title": "Monday", "readOnlyHint": True},
        "_meta": {"made": "Monday"},
    }
    tuesday = json.loads(json.dumps(tool).replace("Monday", "Tuesday"))
    before, after = digests_of(tool), digests_of(tuesday)
    assert before is not None
    assert after is not None
    assert held_names("schema", pins_of({"a": before}), {"a": after}) == {}
    assert held_names("first-use", pins_of({"a": before}), {"a": after}) == {"a": "changed"}
    writes = digests_of({**tool, "annotations": {"title": "Monday", "readOnlyHint": False}})
    assert writes is not None
    assert held_names("schema", pins_of({"a": before}), {"a": writes}) == {"a": "changed"}


def test_prompts_and_templates_have_a_form_too() -> None:
    prompt = {"name": "p", "arguments": [{"name": "city", "description": "Where  to", "required": True}]}
    same = {"arguments": [{"required": True, "name": "city", "description": "Where to"}], "name": "p"}
    assert digests_of(prompt) == digests_of(same)
    assert digests_of(prompt) != digests_of({**prompt, "arguments": [{"name": "city"}]})
    assert digests_of({"uriTemplate": "a://{b}"}) != digests_of({"uriTemplate": "a://{c}"})


def test_the_form_stays_as_it_is() -> None:
    """Pins of earlier versions hold: if this fails, `FORMAT` has to change, and a way from the old to the new one."""
    tool = {
        "name": "grüße",
        "description": " Say\thello ",
        "inputSchema": {"type": ["string", "null"], "required": ["b", "a"], "minimum": 1.5},
    }
    text = canonical_json(tool)
    assert text == (
        b'{"description":"Say hello","inputSchema":{"minimum":1.5,"required":["a","b"],"type":["null","string"]},'
        b'"name":"gr\\u00fc\\u00dfe"}'
    )


def test_a_definition_that_is_nested_too_deeply_has_no_form() -> None:
    deep: dict[str, Any] = {}
    for _ in range(20_000):
        deep = {"not": deep}
    assert digests_of({"name": "a", "inputSchema": deep}) is None


def test_the_longest_list_and_all_its_pins_fit_into_one_value() -> None:
    table = {name_hash(f"tool {number}"): Digests(b"w" * 32, b"s" * 32) for number in range(MAX_PINS)}
    encoded = encode_table(table)
    assert len(encoded) <= MAX_VALUE_BYTES
    assert decode_table(encoded) == table
    for broken in (b"", b"\x02", encoded[:-1]):
        with pytest.raises(ValueError, match="unknown format"):
            decode_table(broken)


def test_a_diff_names_what_changed_and_escapes_what_could_hide() -> None:
    before = {"name": "a", "description": "Reads a file", "inputSchema": {"properties": {"path": {"type": "string"}}}}
    after = {
        "name": "a",
        "description": "Reads a file\u200b, and \x1b[2Ksends it",
        "inputSchema": {"properties": {"path": {"type": "string"}, "to": {"type": "string"}}},
    }
    lines = diff_lines(canonical_json(before), after)
    assert "- description: Reads a file" in lines
    assert "+ description: Reads a file\\u200b, and \\x1b[2Ksends it" in lines
    assert "+ inputSchema.properties.to.type: string" in lines
    assert "  name: a" in lines
    assert [line[0] for line in diff_lines(None, before)] == ["+", "+", "+"]


def test_a_diff_is_bounded_whatever_a_server_sends() -> None:
    large = {"name": "a", "description": "word " * 200_000, "inputSchema": {f"p{n}": {"a": n} for n in range(20_000)}}
    other = {**large, "inputSchema": {f"p{n}": {"a": n + 1} for n in range(20_000)}}
    lines = diff_lines(canonical_json(large), other)
    assert len(lines) == MAX_DIFF_LINES + 1
    assert lines[-1].endswith("more lines")


ONE, OTHER = {"files": (0, 1)}, {"files": (0, 1), "mail": (1, 0)}


@pytest.mark.parametrize(("held", "named"), [(ONE, ["mail"]), (OTHER, []), ({}, ["files", "mail"])])
def test_a_caller_whose_tools_all_wait_is_told_to_ask_for_the_approval(
    held: dict[str, tuple[int, int]], named: list[str]
) -> None:
    available = Available((), {}, held)
    notice = no_tools_notice(None, ["files", "mail"], available, [], []) or ""
    assert [one for one in ("files", "mail") if f"`{one}`" in notice] == named
    assert ("tool_permissions" in notice) == bool(named)
    assert ("before the operator approves" in notice) == (not named)
    assert ("pointsman pin approve" in " ".join(available.notices)) == bool(held)
    assert notice == notice.strip()
