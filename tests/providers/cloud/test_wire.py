"""What leaves the house for a search service, and what of its answer is believed."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from pointsman.providers.base import SearchHit, SearchRequest, ToolDocument
from pointsman.providers.cloud.errors import CloudError
from pointsman.providers.cloud.wire import MAX_EXPLANATION_CHARS, PACK_FROM_BYTES, Packer, validate


def document(name: str, description: str = "", schema: dict[str, Any] | None = None) -> ToolDocument:
    return ToolDocument(f"one:{name}", name, "One", description, schema or {})


def asking(*tools: ToolDocument, queries: tuple[str, ...] = ("paint",), most: int = 10, **more: Any) -> SearchRequest:
    return SearchRequest(queries, more.pop("context", None), tools, most, **more)


ABC = tuple(document(name) for name in "abc")


def test_a_request_is_as_the_wire_wants_it() -> None:
    schema = {"type": "object", "properties": {"object": {"type": "string", "description": "What to paint"}}}
    tool = document("paint", "Paint it", schema)
    packed = Packer().pack(asking(tool, document("bare"), context="a fence", project_id="red", request_id="r1"))
    assert json.loads(packed.body) == {
        "apiVersion": "1",
        "query": ["paint"],
        "context": "a fence",
        "tools": [
            {
                "toolKey": "one:paint",
                "toolName": "paint",
                "serverName": "One",
                "description": "Paint it",
                "inputSchema": schema,
            },
            {"toolKey": "one:bare", "toolName": "bare", "serverName": "One"},
        ],
        "maxResults": 10,
    }
    assert packed.headers == {"Content-Type": "application/json", "X-Request-Id": "r1", "X-Pointsman-Project": "red"}


def test_without_a_project_there_is_no_header_for_it() -> None:
    packed = Packer().pack(asking(*ABC))
    assert packed.headers == {"Content-Type": "application/json"}
    assert "context" not in json.loads(packed.body)


def test_a_large_request_is_packed() -> None:
    packed = Packer().pack(asking(document("long", "words " * PACK_FROM_BYTES)))
    assert packed.headers["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.body))["tools"][0]["description"].startswith("words words")


def test_no_more_results_are_asked_for_than_a_discovery_may_have() -> None:
    assert json.loads(Packer().pack(asking(*ABC, most=110)).body)["maxResults"] == 100


def test_values_in_schemas_and_secrets_in_texts_stay_here() -> None:
    inner = {"type": "string", "default": "hidden-1", "examples": ["hidden-2"], "enum": ["red"]}
    schema = {
        "properties": {"default": inner, "examples": {"properties": {"example": {"example": "hidden-3"}}}},
        "allOf": [{"default": "hidden-4", "$defs": {"default": {"type": "integer"}}}],
    }
    request = asking(document("x", "", schema), queries=("use ptm_hidden-5 there",), context="Bearer hidden-6-hidden")
    body = Packer().pack(request).body
    assert b"hidden" not in body
    sent = json.loads(body)
    assert sent["tools"][0]["inputSchema"] == {
        "properties": {
            "default": {"type": "string", "enum": ["red"]},
            "examples": {"properties": {"example": {}}},
        },
        "allOf": [{"$defs": {"default": {"type": "integer"}}}],
    }
    assert sent["query"] == ["use *** there"]


def body(*results: Any, **more: Any) -> bytes:
    return json.dumps({"results": list(results), **more}).encode()


def result(key: str, relevance: Any = 0.5, **more: Any) -> dict[str, Any]:
    return {"toolKey": f"one:{key}", "relevance": relevance, **more}


def test_the_best_come_first_each_once_and_no_more_than_asked_for() -> None:
    answer = body(result("a", 0.1), result("b", 0.9), result("a", 0.6), result("c", 0.3))
    judged = validate(answer, asking(*ABC, most=2))
    assert list(judged.hits) == [SearchHit("one:b", 0.9), SearchHit("one:a", 0.6)]
    assert judged.invented == 0


def test_equals_stay_in_the_order_of_the_service() -> None:
    judged = validate(body(result("c"), result("a"), result("b")), asking(*ABC))
    assert [hit.tool_key for hit in judged.hits] == ["one:c", "one:a", "one:b"]


def test_relevance_is_clamped() -> None:
    judged = validate(body(result("a", 99), result("b", -3), result("c", 1e308)), asking(*ABC))
    assert {hit.tool_key: hit.relevance for hit in judged.hits} == {"one:a": 1.0, "one:b": 0.0, "one:c": 1.0}


def test_tools_that_were_not_sent_are_dropped_and_counted() -> None:
    judged = validate(body(result("z", 1), result("a"), result("z", 1), {"toolKey": "", "relevance": 1}), asking(*ABC))
    assert [hit.tool_key for hit in judged.hits] == ["one:a"]
    assert judged.invented == 3


def test_texts_are_one_short_line_of_visible_characters() -> None:
    nasty = "\x1b[31mred\x00\u202e\u200b\ue000 and\n\nso  on\u2028"
    judged = validate(body(result("a", explanation=nasty), result("b", explanation="x" * 100_000)), asking(*ABC))
    first, second = (hit.explanation for hit in judged.hits)
    assert first == "[31mred and so on"
    assert second == "x" * (MAX_EXPLANATION_CHARS - 1) + "…"
    assert validate(body(result("a", explanation="\x00\n")), asking(*ABC)).hits[0].explanation is None


def test_what_the_local_search_tells_of_queries_can_be_told_by_a_service_too() -> None:
    answer = body(result("a", intents=[1, 1, 0, 7, -1]), bestByQuery=[0.5, 7])
    hits = validate(answer, asking(*ABC, queries=("x", "y"))).hits
    assert hits[0].intents == (0, 1)
    assert hits.best_by_query == (0.5, 1.0)


@pytest.mark.parametrize("best", [[], [0.5], [0.5, 0.5, 0.5]])
def test_figures_for_other_queries_than_were_asked_are_passed_over(best: list[float]) -> None:
    assert validate(body(result("a"), bestByQuery=best), asking(*ABC, queries=("x", "y"))).hits.best_by_query == ()


def test_unknown_fields_are_passed_over_and_an_empty_answer_is_one() -> None:
    answer = body(result("a", toolName=5, description={}, later=[1]), apiVersion="1", later={"deep": [1]})
    assert [hit.tool_key for hit in validate(answer, asking(*ABC)).hits] == ["one:a"]
    assert list(validate(body(), asking(*ABC)).hits) == []


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"<html>",
        b'{"results": {}}',
        b'{"result": []}',
        b'{"results": [1]}',
        b'{"results": [{}]}',
        b'{"results": []} {"results": []}',
        b'{"results": [{"toolKey": "one:a", "relevance": NaN}]}',
        b'{"results": [{"toolKey": "one:a", "relevance": Infinity}]}',
        b'{"results": [{"toolKey": "one:a", "relevance": 1e999}]}',
        b'{"results": [{"toolKey": "one:a", "relevance": %s}]}' % (b"9" * 5000),
        b'{"results": [{"toolKey": "one:\xff", "relevance": 1}]}',
        b'{"results": [], "later": "\xff"}',
        b'{"results": [{"toolKey": "one:\\ud800", "relevance": 1}]}',
        b'{"results": [], "later": %s}' % (b"[" * 100_000),
        body(result("a", True)),
        body(result("a", "0.5")),
        body(result("a", None)),
        body({"toolKey": 5, "relevance": 1}),
        body(result("a", explanation=["no"])),
        body(result("a", intents=[True])),
        body(result("a", intents=[0.5])),
        body(result("a"), bestByQuery=["x"]),
        body(result("a"), apiVersion="2"),
        body(result("a"), apiVersion=1),
    ],
)
def test_an_answer_of_the_wrong_kind_is_none(broken: bytes) -> None:
    with pytest.raises(CloudError) as caught:
        validate(broken, asking(*ABC))
    assert caught.value.code == "cloud_malformed"
