"""Usage on simulated logs: it settles what words cannot, and never takes a plain match out of its place."""

from __future__ import annotations

import random

import pytest

from pointsman.catalog.results import USAGE_NOTE, SearchOutcome
from pointsman.catalog.service import ToolCatalogService
from pointsman.core.model import Caller
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.router.audit.rows import Intent, Outcome
from pointsman.router.observe.usage import UsageMemory
from tests.catalog.sources import SmallServer, catalog_of, tool
from tests.golden.golden import Request, golden_catalog, keys, place, requests
from tests.golden.golden import servers as golden_servers

both_ways = pytest.mark.parametrize("embeddings", [False, True], ids=["words", "embeddings"])

TEAM = Caller("laptop", None)
SEED = 7

# Four trackers that say the same of themselves: only habit tells which one a team means.
TRACKERS = ("tracker-a", "tracker-b", "tracker-c", "tracker-d")
TICKETS = (
    (
        "create_ticket",
        "Create a ticket for a bug or a feature",
        ("create a ticket", "new ticket for a bug", "file a bug ticket"),
    ),
    ("search_tickets", "Search tickets by words", ("search tickets", "find tickets about login", "look for a ticket")),
    ("close_ticket", "Close a ticket that is done", ("close ticket 7", "this ticket is done", "close the bug ticket")),
    ("assign_ticket", "Assign a ticket to a person", ("assign the ticket to Ana", "give Ben this ticket to do")),
)


class Team:
    """People who ask, look at the results, and run the right tool if it is among them."""

    def __init__(self, catalog: ToolCatalogService, memory: UsageMemory) -> None:
        self._catalog = catalog
        self._memory = memory

    async def ask(self, query: str) -> SearchOutcome:
        return await self._catalog.search(TEAM, [query], None, 5)

    async def work(self, query: str, right: tuple[str, ...]) -> None:
        outcome = await self.ask(query)
        self._memory.discovered(TEAM, [query], outcome.results)
        at = place(keys(outcome), right)
        if at is not None:
            intent = Intent(1, 0, "id", "execute", TEAM.token_id, TEAM.project_id, tool_key=keys(outcome)[at])
            self._memory.finished(intent, Outcome(1, "ok"))

    async def first(self, request: Request) -> bool:
        return place(keys(await self.ask(request.ask)), request.right) == 0


def trackers() -> list[SmallServer]:
    """The same tools in all of them, under the same server name."""
    servers = [SmallServer(server_id, *(tool(name, about) for name, about, _ in TICKETS)) for server_id in TRACKERS]
    for server in servers:
        server.name = "Tracker"
    return servers


def team_with_trackers(embeddings: bool) -> Team:
    memory = UsageMemory()
    local = BM25SearchProvider(embeddings)
    return Team(catalog_of(*golden_servers(), *trackers(), local=local, usage=memory.figures), memory)


@both_ways
async def test_a_habit_is_learnt_and_then_comes_first(embeddings: bool) -> None:
    """The team keeps its tickets in the last of four trackers, and asks in the same few ways as people do."""
    team = team_with_trackers(embeddings)
    habits = [Request("", ask, (f"tracker-d:{name}",)) for name, _, asks in TICKETS for ask in asks]
    before = [await team.first(request) for request in habits]
    choose = random.Random(SEED)
    for _ in range(100):
        request = choose.choice(habits)
        await team.work(request.ask, request.right)
    after = [await team.first(request) for request in habits]
    assert sum(before) == 0
    assert sum(after) >= 0.7 * len(habits)  # the others are not even listed, so that nobody can choose them


@both_ways
async def test_requests_that_were_never_asked_profit_too(embeddings: bool) -> None:
    team = team_with_trackers(embeddings)
    for _ in range(5):
        await team.work("create a ticket", ("tracker-d:create_ticket",))
    outcome = await team.ask("please create a ticket about the printer")
    assert keys(outcome)[0] == "tracker-d:create_ticket"
    assert USAGE_NOTE in (outcome.results[0].explanation or "")


@pytest.mark.no_cover
@both_ways
async def test_a_tool_that_is_used_all_day_takes_no_plain_match_out_of_its_place(embeddings: bool) -> None:
    """A thousand requests, most of them for one and the same few tools, as logs are. Nothing that was right is lost."""
    memory = UsageMemory()
    team = Team(golden_catalog(embeddings, usage=memory.figures), memory)
    asked = requests()
    before = {request: place(keys(await team.ask(request.ask)), request.right) for request in asked}
    choose = random.Random(SEED)
    # A few requests make up most of the day, and the popular tools among them are run whenever they are listed.
    popular = choose.sample(asked, 3)
    favourites = tuple(key for request in popular for key in request.right)
    for _ in range(500):
        request = choose.choice(popular) if choose.random() < 0.7 else choose.choice(asked)
        await team.work(request.ask, request.right)
        await team.work(choose.choice(asked).ask, favourites)  # and also after requests for something else
    after = {request: place(keys(await team.ask(request.ask)), request.right) for request in asked}
    crowded_out = [request.ask for request in asked if _is_worse(before[request], after[request])]
    assert crowded_out == []


def _is_worse(before: int | None, after: int | None) -> bool:
    return before is not None and (after is None or after > before)
