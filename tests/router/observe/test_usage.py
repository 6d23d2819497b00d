"""What is learnt from a discovery and the call after it, and what is not."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pointsman.catalog.results import USAGE_NOTE, SearchResult
from pointsman.core.model import Caller
from pointsman.router.audit.rows import Ending, Intent, Kind, Outcome
from pointsman.router.observe.usage import (
    HALF_LIFE_S,
    MAX_CALLERS,
    MAX_DISCOVERIES,
    MAX_QUERY_WORDS,
    MAX_TOOLS,
    MAX_WORDS,
    PAIR_S,
    UsageMemory,
)
from tests.catalog.sources import Clock, SmallServer, catalog_of, tool
from tests.gateway_process import gateway_process
from tests.router.conftest import Shop, workshop

ANA, BEN = Caller("ana", "red"), Caller("ben", "red")


async def found(*keys: str, intents: tuple[int, ...] = ()) -> list[SearchResult]:
    """Results as a search gives them, for tools `server:name`."""
    servers: dict[str, list[str]] = {}
    for key in keys:
        server_id, _, name = key.partition(":")
        servers.setdefault(server_id, []).append(name)
    catalog = catalog_of(*(SmallServer(server_id, *map(tool, names)) for server_id, names in servers.items()))
    known = await catalog.available(Caller("laptop", None))
    return [SearchResult(tool, 0.5, None, intents) for tool in known.tools]


def ran(memory: UsageMemory, caller: Caller, key: str, ending: Ending = "ok", kind: Kind = "execute") -> None:
    intent = Intent(1, 0, "id", kind, caller.token_id, caller.project_id, tool_key=key)
    memory.finished(intent, Outcome(1, ending))


async def taught(clock: Clock, times: int = 3) -> UsageMemory:
    memory = UsageMemory(clock)
    for _ in range(times):
        memory.discovered(ANA, ["ship the release"], await found("ci:deploy", "ci:tag"))
        ran(memory, ANA, "ci:deploy")
    return memory


async def test_a_tool_that_is_run_after_its_discovery_is_known_for_such_requests() -> None:
    memory = await taught(Clock())
    figures = memory.figures("red", ["Ship our releases, please"])
    assert figures.keys() == {"ci:deploy"}
    assert 0.5 < figures["ci:deploy"] < 1


async def test_the_whole_project_profits_and_no_other() -> None:
    memory = await taught(Clock())
    assert memory.figures("red", ["ship the release"])
    assert not memory.figures("blue", ["ship the release"])
    assert not memory.figures(None, ["ship the release"])


async def test_requests_with_too_little_in_common_are_no_such_requests() -> None:
    memory = await taught(Clock(), times=100)
    assert not memory.figures("red", ["notes for the next release of our mobile banking application"])
    assert not memory.figures("red", ["weather tomorrow"])
    assert not memory.figures("red", [""])


async def test_more_choices_count_more_and_never_more_than_one() -> None:
    few = (await taught(Clock(), 2)).figures("red", ["ship the release"])["ci:deploy"]
    many = (await taught(Clock(), 200)).figures("red", ["ship the release"])["ci:deploy"]
    assert few < many < 1


async def test_the_id_in_a_request_counts_neither_for_it_nor_against_it() -> None:
    memory = UsageMemory(Clock())
    listed = await found("ci:deploy")
    for number in range(1_000, 3_000):
        memory.discovered(ANA, [f"ship the release {number} of Office 365"], listed)
        ran(memory, ANA, "ci:deploy")
    assert len(memory._learnt) == len({"ship", "release", "office", "365"})
    with_id, without = (memory.figures("red", [f"ship the release{number}"]) for number in (" 4711", ""))
    assert with_id == without
    assert not memory.figures("red", ["2024"])


async def test_choices_fade() -> None:
    clock = Clock()
    memory = await taught(clock, 2)
    fresh = memory.figures("red", ["ship the release"])["ci:deploy"]
    clock.now += HALF_LIFE_S
    assert memory.figures("red", ["ship the release"])["ci:deploy"] < fresh
    clock.now += 10 * HALF_LIFE_S
    assert not memory.figures("red", ["ship the release"])


async def test_what_is_no_choice_is_not_learnt() -> None:
    clock = Clock()
    listed = await found("ci:deploy")

    def nothing_learnt(memory: UsageMemory) -> bool:
        return not memory.figures("red", ["ship the release"])

    memory = UsageMemory(clock)
    ran(memory, ANA, "ci:deploy")  # without a discovery
    memory.discovered(ANA, ["ship the release"], listed)
    ran(memory, ANA, "ci:tag")  # was not listed
    ran(memory, ANA, "ci:deploy", "error")
    ran(memory, ANA, "ci:deploy", "timeout")
    ran(memory, ANA, "ci:deploy", kind="discovery")
    ran(memory, BEN, "ci:deploy")  # somebody else's discovery
    ran(memory, Caller("ana", None), "ci:deploy")  # in another project
    clock.now += PAIR_S + 1
    ran(memory, ANA, "ci:deploy")  # too late
    assert nothing_learnt(memory)


async def test_many_calls_after_one_discovery_are_one_choice() -> None:
    once, often = UsageMemory(Clock()), UsageMemory(Clock())
    for memory, times in ((once, 1), (often, 500)):
        memory.discovered(ANA, ["ship the release"], await found("ci:deploy"))
        for _ in range(times):
            ran(memory, ANA, "ci:deploy")
    assert once.figures("red", ["ship the release"]) == often.figures("red", ["ship the release"])


async def test_a_choice_counts_for_the_query_that_the_tool_served() -> None:
    memory = UsageMemory(Clock())
    queries = ["ship the release", "weather tomorrow"]
    memory.discovered(ANA, queries, await found("ci:deploy", intents=(0,)))
    ran(memory, ANA, "ci:deploy")
    assert memory.figures("red", ["ship the release"])
    assert not memory.figures("red", ["weather tomorrow"])


async def test_memory_has_bounds() -> None:
    memory = UsageMemory(Clock())
    listed = await found(*(f"ci:t{n}" for n in range(MAX_TOOLS + 5)))
    for result in listed:
        memory.discovered(ANA, ["ship"], listed)
        ran(memory, ANA, result.tool.document.tool_key)
    assert len(memory.figures("red", ["ship"])) <= MAX_TOOLS
    letters = "bcdfghjklmnpqrtv"  # combinations of consonants: no stop word among them, and each is its own stem
    words = ["".join(word) for word in product(letters, repeat=4)][: 2 * MAX_WORDS]
    for start in range(0, len(words), MAX_QUERY_WORDS):
        memory.discovered(ANA, [" ".join(words[start : start + MAX_QUERY_WORDS])], listed)
        ran(memory, ANA, "ci:t0")
    assert len(memory._learnt) == MAX_WORDS
    assert memory.figures("red", [words[-1]])
    assert not memory.figures("red", [words[0]])
    for n in range(MAX_CALLERS + 10):
        for _ in range(MAX_DISCOVERIES + 1):
            memory.discovered(Caller(f"token{n}", None), ["ship"], listed[:1])
    assert len(memory._discoveries) <= MAX_CALLERS
    assert all(len(recent) <= MAX_DISCOVERIES for recent in memory._discoveries.values())


@pytest.mark.parametrize("usage", [True, False])
async def test_a_gateway_learns_what_its_callers_choose_unless_it_is_switched_off(usage: bool, tmp_path: Path) -> None:
    """Two servers that are the same to the letter: only what was chosen can tell them apart."""
    twins = {name: workshop(tmp_path / name, name="Workshop") for name in ("first", "second")}
    config = {"servers": twins, "search": {"usage": usage}}
    async with gateway_process(tmp_path, config) as gateway, httpx2.AsyncClient(timeout=20) as http:
        shop = Shop(gateway, http, tmp_path / "trace")
        assert (await best_to_paint(shop))["toolKey"] == "first:paint"
        for _ in range(3):
            await best_to_paint(shop)
            await shop.execute("second:paint", {"object": "door"})
        best = await best_to_paint(shop)
        assert best["toolKey"] == ("second:paint" if usage else "first:paint")
        assert (USAGE_NOTE in best.get("explanation", "")) == usage


async def best_to_paint(shop: Shop) -> dict[str, Any]:
    answer = (await shop.call("tool_discovery", {"query": ["paint an object"]})).json()["result"]
    best: dict[str, Any] = answer["structuredContent"]["results"][0]
    return best
