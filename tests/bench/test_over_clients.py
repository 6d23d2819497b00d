"""The clients' own tool search is measured with the real programs, on the same requests as ours."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from bench.quality import over_clients
from bench.quality.over_clients import CLIENTS, LIST_TOOLS, Client
from bench.quality.sets import Asked, ToolSet, load_sets
from tests.e2e.agents.programs import needs_agents

TOOLS = {
    "Weather & Co": {"Forecast/{city}": "Weather forecast for a city", "alerts": "Storm warnings of a region"},
    "weather_&_co": {"alerts": "Warnings of floods"},
    "shop": {"refund": "Refund a payment to a customer"},
}
REQUESTS = {
    "weather forecast": "Weather & Co:Forecast/{city}",
    "refund customer payment": "shop:refund",
    "flood warnings alerts": "weather_&_co:alerts",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    tools = [
        {"server": server, "name": name, "description": text, "inputSchema": {}}
        for server, own in TOOLS.items()
        for name, text in own.items()
    ]
    asked = [{"query": query, "gold": [key]} for query, key in REQUESTS.items()]
    (folder / "tools.jsonl").write_text("\n".join(map(json.dumps, tools)))
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)))
    return tmp_path


def set_of(count: int) -> ToolSet:
    return ToolSet("any", (), (), tuple(Asked(str(number), ()) for number in range(count)))


def test_a_sample_is_the_same_each_time_and_not_the_beginning() -> None:
    once, again = over_clients.sample(set_of(1_000)), over_clients.sample(set_of(1_000))
    assert once == again
    assert len({each.query for each in once}) == over_clients.SAMPLE
    assert any(int(each.query) > 900 for each in once)
    assert len(over_clients.sample(set_of(3))) == 3


def test_stop_words_are_dropped_unless_nothing_else_is_there() -> None:
    assert over_clients.as_keywords(Asked("Can you tell me the weather in Paris?", ())).query == "weather Paris"
    assert over_clients.as_keywords(Asked("What is it?", ())).query == "What is it?"


def test_no_part_of_a_set_is_longer_than_codex_accepts() -> None:
    sizes = {f"s{number}": 90 for number in range(100)}
    projects = over_clients.projects_of(sizes)
    assert projects.keys() == sizes.keys()
    counts = Counter(projects.values())
    assert max(counts.values()) * 90 <= LIST_TOOLS
    assert len(counts) == 5


def test_servers_whose_names_differ_only_in_punctuation_have_prefixes_of_their_own() -> None:
    assert len(set(over_clients.prefixes_of(list(TOOLS)).values())) == len(TOOLS)


@pytest.mark.parametrize("client", [pytest.param(client, marks=needs_agents, id=client.name) for client in CLIENTS])
async def test_a_client_finds_tools_of_a_set_with_its_own_search(client: Client, folder: Path) -> None:
    [small] = load_sets(folder)
    found = await over_clients.through_clients([client], folder, small, {"as written": small.asked})
    assert client.version
    assert found[client.name, "as written"].figures.recall_10 == 1
