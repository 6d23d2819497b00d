"""Searches that succeed."""

from __future__ import annotations

import gzip
import json

from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import BM25SearchProvider
from tests.router.search_api.search_client import TOOLS, Client, Json, tool


async def test_the_tools_that_fit_come_back_best_first_in_the_words_of_the_request(client: Client) -> None:
    answer = await client.search("will it rain tomorrow, what is the weather forecast")
    assert answer["apiVersion"] == "1"
    assert answer["provider"] == "bm25+static"
    best = answer["results"][0]
    assert {key: best[key] for key in ("toolKey", "toolName", "serverName", "description")} == {
        "toolKey": "sky:get_forecast",
        "toolName": "get_forecast",
        "serverName": "sky",
        "description": "Tells the weather of the coming days.",
    }
    assert "weather" in best["explanation"]
    figures = [result["relevance"] for result in answer["results"]]
    assert figures == sorted(figures, reverse=True)
    assert all(0 <= figure <= 1 for figure in figures)


async def test_it_answers_as_the_provider_does_in_process(client: Client) -> None:
    queries = ("send a letter to Anna", "how high is the sea")
    documents = [
        ToolDocument(each["toolKey"], each["toolName"], each["serverName"], each["description"], each["inputSchema"])
        for each in TOOLS
    ]
    own = await BM25SearchProvider().search(SearchRequest(queries, "we are at the harbour", documents, 3))
    answer = await client.search(*queries, context="we are at the harbour", maxResults=3)
    by_key = {hit.tool_key: hit for hit in own}
    assert {result["toolKey"] for result in answer["results"]} == set(by_key)
    for result in answer["results"]:
        hit = by_key[result["toolKey"]]
        assert result["relevance"] == hit.relevance
        assert result["explanation"] == hit.explanation
        assert tuple(result.get("intents", ())) == hit.intents
    assert answer["bestByQuery"] == list(own.best_by_query)


async def test_the_parameters_of_a_tool_are_searched_too(client: Client) -> None:
    answer = await client.search("harbour")
    assert answer["results"][0]["toolKey"] == "sky:get_tides"


async def test_no_more_than_the_wanted_number_comes_back_and_ten_where_none_is_named(client: Client) -> None:
    many = [tool(f"s:note_{number}", "A note.") for number in range(15)]
    assert len((await client.search("note", tools=many, maxResults=2))["results"]) == 2
    assert len((await client.search("note", tools=many, maxResults=2.0))["results"]) == 2
    assert len((await client.search("note", tools=many))["results"]) == 10


async def test_a_bare_query_unknown_fields_and_absent_texts_are_fine(client: Client) -> None:
    bare: Json = {"toolKey": "s:weather", "toolName": "weather", "serverName": "s", "colour": "red"}
    body = {"apiVersion": "1.7", "query": "weather", "tools": [bare], "mood": {"good": True}, "context": None}
    answer = (await client.post(body)).json()
    assert answer["results"][0]["toolKey"] == "s:weather"
    assert "description" not in answer["results"][0]


async def test_of_two_tools_with_one_key_the_first_counts(client: Client) -> None:
    twins = [tool("s:weather", "the first weather"), tool("s:weather", "the second weather")]
    answer = await client.search("weather", tools=twins)
    assert [result["description"] for result in answer["results"]] == ["the first weather"]


async def test_nothing_to_search_in_is_an_answer(client: Client) -> None:
    assert await client.search("weather", tools=[]) == {
        "apiVersion": "1",
        "results": [],
        "bestByQuery": [0.0],
        "provider": "bm25+static",
    }


async def test_a_gzipped_body_is_read(client: Client) -> None:
    body = gzip.compress(json.dumps({"query": ["weather"], "tools": TOOLS}).encode())
    response = await client.post(body, {"Content-Encoding": "gzip"})
    assert response.json()["results"][0]["toolKey"] == "sky:get_forecast"


async def test_the_request_id_comes_back_and_one_is_made_where_there_is_none(client: Client) -> None:
    body = {"query": ["x"], "tools": []}
    assert (await client.post(body, {"X-Request-Id": "abc-1"})).headers["x-request-id"] == "abc-1"
    made = {(await client.post(body, headers)).headers["x-request-id"] for headers in ({}, {"X-Request-Id": "a b"})}
    assert len(made) == 2
    assert all(len(each) == 32 for each in made)


async def test_a_list_that_comes_back_is_known_and_so_are_its_tools_in_another_list(client: Client) -> None:
    mine = [tool(f"known:tool_{number}", "Nobody else sends this.") for number in range(8)]
    before = await client.figure("lists_total"), await client.figure("tools_known")
    await client.search("first", tools=mine)
    await client.search("second", tools=mine)
    await client.search("third", tools=[*mine[1:], tool("known:another", "New.")])
    assert await client.figure("lists_total") == before[0] + 3
    assert await client.figure("tools_known") == before[1] + 9
    lines = (await client.get("/metrics")).text.splitlines()
    [known] = [line for line in lines if line.startswith('pointsman_search_api_lists_total{known="true"}')]
    assert float(known.split()[-1]) >= 1


async def test_strangers_learn_whether_it_is_ready_and_callers_what_it_is(client: Client) -> None:
    assert (await client.get("/health")).json() == {"ready": True}
    health = (await client.get("/health", client.service.headers)).json()
    assert health["ready"] is True
    assert health["provider"] == "hybrid"
    assert (await client.get("/health", {"Authorization": "Bearer wrong"})).status_code == 401
