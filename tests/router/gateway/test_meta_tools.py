"""The two tools' own arguments: what is taken, and what is said of the rest."""

import json

import jsonschema_rs
import pytest

from pointsman.core.errors import InvalidArgumentsError
from pointsman.core.model import Json
from pointsman.router.gateway.discover import DiscoveryArguments, read_discovery
from pointsman.router.gateway.execute_parameters import Reading, read_parameters
from pointsman.router.gateway.meta_tools import MAX_ALL_TEXT, MAX_QUERIES, MAX_TEXT, TOOLS, described_tools

_NUMBERS = tuple(str(number) for number in range(50))


def test_there_are_two_tools_and_their_schemas_are_sound() -> None:
    assert [tool["name"] for tool in TOOLS] == ["tool_discovery", "tool_execute"]
    for tool in TOOLS:
        jsonschema_rs.meta.validate(tool["inputSchema"])


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"query": ["read a file"]}, DiscoveryArguments(("read a file",), None, 10, 3, None)),
        ({"query": "read a file"}, DiscoveryArguments(("read a file",), None, 10, 3, None)),
        ({"query": ["a", "b"], "context": "c", "maxResults": 3}, DiscoveryArguments(("a", "b"), "c", 3, 1, None)),
        ({"query": ["a"], "maxResults": 3.0, "context": ""}, DiscoveryArguments(("a",), None, 3, 1, None)),
        ({"query": ["a"], "maxResults": None, "context": None}, DiscoveryArguments(("a",), None, 10, 3, None)),
        ({"query": [*"abcdefg"]}, DiscoveryArguments(tuple("abcdefg"), None, 21, 3, None)),
        ({"query": [*"abcdefgabc"]}, DiscoveryArguments(tuple("abcdefgabc"), None, 21, 3, None)),
        ({"query": ["a b", " a  b"]}, DiscoveryArguments(("a b",), None, 10, 3, None)),
        ({"query": [*_NUMBERS]}, DiscoveryArguments(_NUMBERS, None, 100, 3, None)),
        ({"query": '["a", "b"]'}, DiscoveryArguments(("a", "b"), None, 10, 3, None)),
        ({"query": '\n["a"]\n'}, DiscoveryArguments(("a",), None, 10, 3, None)),
        ({"query": "[ERROR] a"}, DiscoveryArguments(("[ERROR] a",), None, 10, 3, None)),
        ({"query": "[ERROR]"}, DiscoveryArguments(("[ERROR]",), None, 10, 3, None)),
        ({"query": "[404]"}, DiscoveryArguments(("[404]",), None, 10, 3, None)),
        ({"query": '["a", 1]'}, DiscoveryArguments(('["a", 1]',), None, 10, 3, None)),
        ({"query": ['["a", "b"]', "c"]}, DiscoveryArguments(('["a", "b"]', "c"), None, 10, 3, None)),
        ({"query": "[" * 5000 + "]" * 2000}, DiscoveryArguments(("[" * 5000 + "]" * 2000,), None, 10, 3, None)),
        ({"query": '["\ud800"]'}, DiscoveryArguments(('["\ud800"]',), None, 10, 3, None)),
        ({"query": ["a"], "maxResults": "3"}, DiscoveryArguments(("a",), None, 3, 1, None)),
        ({"query": ["a"], "maxResults": " 100 "}, DiscoveryArguments(("a",), None, 100, 1, None)),
    ],
)
def test_discovery_takes(given: Json, read: DiscoveryArguments) -> None:
    assert read_discovery(given) == read


def test_of_a_long_query_the_beginning_and_the_end_are_searched_and_the_answer_says_so() -> None:
    log = "Why does it fail? " + "2026-01-01 ERROR timeout " * 800 + "Find the ticket."
    read = read_discovery({"query": ["a", log], "context": log})
    for text in (read.queries[1], read.context or ""):
        assert len(text) == MAX_TEXT
        assert text.startswith("Why does it fail?")
        assert text.endswith("Find the ticket.")
    assert read.notice is not None
    assert f"query[1] ({len(log)})" in read.notice
    assert f"`context` ({len(log)})" in read.notice
    assert "query[0]" not in read.notice


def test_many_long_queries_are_cut_to_the_same_length_and_short_ones_stay() -> None:
    long = [f"{number} " + "word " * 1_500 for number in range(40)]
    read = read_discovery({"query": ["take a screenshot", *long]})
    assert read.queries[0] == "take a screenshot"
    assert len({len(query) for query in read.queries[1:]}) == 1
    assert 0.99 * MAX_ALL_TEXT < sum(map(len, read.queries)) <= MAX_ALL_TEXT
    assert read.notice is not None
    assert f"more than {len(read.queries[1])} characters" in read.notice


def test_a_query_that_is_sent_several_times_is_searched_and_cut_once() -> None:
    long = "word " * 1_200
    read = read_discovery({"query": [long] * 49 + [f" {long}"]})
    assert (read.queries, read.notice) == ((long,), None)
    both = read_discovery({"query": [long] * 49 + ["take a screenshot"]})
    assert (both.queries, both.notice) == ((*[long] * 49, "take a screenshot"), None)
    longer = "word " * 2_000
    assert "query[0] (10000). " in (read_discovery({"query": [longer, "a", longer, longer]}).notice or "")


def test_the_notice_about_many_long_texts_is_short() -> None:
    long = [f"{number:02}{'x' * MAX_TEXT}" for number in range(50)]
    notice = read_discovery({"query": long}).notice
    assert notice is not None
    assert "query[2] (8002), 47 more queries." in notice
    assert "query[3]" not in notice
    assert "`context`" in (read_discovery({"query": ["a"], "context": "x" * 20_000}).notice or "")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "`query`"),
        ({"query": []}, "`query`"),
        ({"query": [1]}, "`query`"),
        ({"query": {"a": 1}}, "`query`"),
        ({"query": ["a"] * (MAX_QUERIES + 1)}, str(MAX_QUERIES)),
        ({"query": ["a"], "context": 1}, "`context`"),
        ({"query": ["a"], "maxResults": 0}, "`maxResults`"),
        ({"query": ["a"], "maxResults": 101}, "`maxResults`"),
        ({"query": ["a"], "maxResults": True}, "`maxResults`"),
        ({"query": "[]"}, "`query`"),
        ({"query": json.dumps(["a"] * (MAX_QUERIES + 1))}, str(MAX_QUERIES)),
        ({"query": ["a"], "maxResults": "0"}, "`maxResults`"),
        ({"query": ["a"], "maxResults": "101"}, "`maxResults`"),
        ({"query": ["a"], "maxResults": "9" * 10_000}, "`maxResults`"),
        ({"query": ["a"], "maxResults": ""}, "`maxResults`"),
        ({"query": ["a"], "maxResults": "3.5"}, "`maxResults`"),
        ({"query": ["a"], "maxResults": "-3"}, "`maxResults`"),
        ({"query": ["a"], "maxResults": "\u0665"}, "`maxResults`"),
        ({"query": ["a"], "maxResults": "many"}, "`maxResults`"),
        ({"query": ["a"], "maxResults": ["3"]}, "`maxResults`"),
        ({"query": ["a"], "limit": 3}, "`limit`"),
    ],
)
def test_discovery_says_what_is_wrong(given: Json, named: str) -> None:
    with pytest.raises(InvalidArgumentsError, match=named):
        read_discovery(given)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"toolKey": "a:b", "arguments": {"x": 1}}, Reading("a:b", {"x": 1})),
        ({"toolKey": "a:b"}, Reading("a:b", {}, ("no_arguments",))),
        ({"toolKey": "a:b", "arguments": None}, Reading("a:b", {}, ("no_arguments",))),
        ({"toolKey": "a:b", "arguments": '{"x": 1}'}, Reading("a:b", {"x": 1}, ("json_text",))),
        ({"toolKey": "a:b", "arguments": " "}, Reading("a:b", {}, ("json_text",))),
        ({"toolKey": "a:b", "x": 1}, Reading("a:b", {"x": 1}, ("beside",))),
        ({"toolKey": "a:b", "arguments": {}, "x": 1}, Reading("a:b", {"x": 1}, ("beside",))),
        ({"arguments": {"toolKey": "a:b", "arguments": {"x": 1}}}, Reading("a:b", {"x": 1}, ("envelope",))),
        (
            {"toolKey": "tool_execute", "arguments": {"toolKey": "a:b", "arguments": '{"x": 1}'}},
            Reading("a:b", {"x": 1}, ("json_text", "envelope")),
        ),
        (  # whether this is an envelope depends on the tool
            {"toolKey": "a:b", "arguments": {"toolKey": "a:b", "arguments": {}}},
            Reading("a:b", {"toolKey": "a:b", "arguments": {}}),
        ),
    ],
)
def test_execute_takes(given: Json, read: Reading) -> None:
    assert read_parameters(given) == read


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "`toolKey`"),
        ({"toolKey": ""}, "`toolKey`"),
        ({"toolKey": 3}, "`toolKey`"),
        ({"tool": "a:b"}, "`tool`"),
        ({"arguments": {"toolKey": 3}}, "`toolKey`"),
        ({"toolKey": "a:b", "arguments": [1]}, "must be an object"),
        ({"toolKey": "a:b", "arguments": "[1]"}, "must be an object"),
        ({"toolKey": "a:b", "arguments": "{x}"}, "not JSON"),
        ({"toolKey": "a:b", "arguments": "\ud800"}, "not JSON"),
        ({"toolKey": "a:b", "arguments": {"y": 1}, "x": 1}, "inside `arguments`"),
    ],
)
def test_execute_says_what_is_wrong(given: Json, named: str) -> None:
    with pytest.raises(InvalidArgumentsError, match=named):
        read_parameters(given)


def test_execute_takes_its_arguments_as_an_object_or_as_a_string_with_json() -> None:
    schema = TOOLS[1]["inputSchema"]
    arguments = schema["properties"]["arguments"]
    assert arguments["type"] == ["object", "string"]
    assert "JSON" in arguments["description"]
    for given in ({"x": 1}, '{"x": 1}'):
        assert jsonschema_rs.is_valid(schema, {"toolKey": "a:b", "arguments": given})
    assert not jsonschema_rs.is_valid(schema, {"toolKey": "a:b", "arguments": [1]})


def test_an_overview_is_added_to_the_description_and_leaves_the_tools_alone() -> None:
    before = repr(TOOLS)
    discovery, execute = described_tools("Servers here: clock (tell).")
    assert discovery["description"].endswith("tool_execute. Servers here: clock (tell).")
    assert execute == TOOLS[1]
    assert repr(TOOLS) == before
    assert described_tools(None) is TOOLS
    assert described_tools("") is TOOLS


def test_both_tools_ask_clients_to_load_them_at_once_and_to_keep_their_answers() -> None:
    for tool in (*TOOLS, *described_tools("Servers here: clock (tell).")):
        assert tool["_meta"]["anthropic/alwaysLoad"] is True
        assert tool["_meta"]["anthropic/maxResultSizeChars"] == 100_000
