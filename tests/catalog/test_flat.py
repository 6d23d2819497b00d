"""Flat names: one look-up leads back to the server, however many servers there are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from pointsman.catalog.flat import FlatTools
from pointsman.catalog.names import NameIndex
from pointsman.catalog.offers import Offers
from pointsman.config.sections.server import Server
from pointsman.core.kinds import PROMPTS
from pointsman.core.model import Caller
from tests.catalog.sources import SmallServer, catalog_of, config_of, tool

ME = Caller("laptop", None)


def calls_in(work: Callable[[], object]) -> int:
    """How many functions, Python's own included, `work` calls."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


async def listing(servers: int) -> int:
    behind = [SmallServer(f"server{number}", tool("read"), tool("write")) for number in range(servers)]
    catalog = catalog_of(*behind, config=config_of({server.id: None for server in behind}))
    tools = catalog.permitted(ME, await catalog.collected(ME))
    flat = FlatTools(catalog)
    assert len(flat.named(ME, tools)) == 2 * servers
    return calls_in(lambda: flat.named(ME, tools))


async def test_the_work_of_a_flat_list_grows_with_its_tools_and_not_with_tools_times_servers() -> None:
    few, many = await listing(20), await listing(200)
    assert many < 11 * few


async def test_a_name_is_resolved_without_a_walk_over_all_servers() -> None:
    costs = []
    for servers in (20, 200):
        behind = [SmallServer(f"server{number}", tool("read")) for number in range(servers)]
        flat = FlatTools(catalog_of(*behind, config=config_of({server.id: None for server in behind})))
        name = f"server{servers - 1}__read"
        assert [str(key) for key in flat.keys(ME, name)] == [f"server{servers - 1}:read"]
        costs.append(calls_in(lambda flat=flat, name=name: flat.keys(ME, name)))  # type: ignore[misc]
    assert costs[1] <= costs[0] + 5  # one more digit in the ids


class Greeter(SmallServer):
    async def list_page(self, method: str, cursor: str | None, /) -> dict[str, Any]:
        return {"prompts": [{"name": "greet"}]}


async def prompts(servers: int) -> int:
    behind = [Greeter(f"server{number}") for number in range(servers)]
    catalog = catalog_of(*behind, config=config_of({server.id: None for server in behind}))
    offers = Offers(catalog, {server.id: server for server in behind})
    assert len((await offers.listed(ME, PROMPTS)).offers) == servers
    coroutine = offers.listed(ME, PROMPTS)

    def work() -> None:
        with pytest.raises(StopIteration):
            coroutine.send(None)

    return calls_in(work)


async def test_the_work_of_a_list_of_prompts_grows_with_its_prompts() -> None:
    few, many = await prompts(20), await prompts(200)
    assert many < 11 * few


@pytest.mark.parametrize(
    ("name", "owners"),
    [
        ("read", [("bare", "read"), ("plain", "read")]),
        ("git_pay", [("git", "pay"), ("second", "pay")]),
        ("git_hub_pay", [("hub", "pay")]),
        ("git_hub_", [("git", "hub_"), ("second", "hub_")]),  # a prefix alone is no name
        ("git_", [("bare", "git_"), ("plain", "git_")]),
        ("bank__pay", [("bank", "pay")]),
        ("", []),
    ],
)
def test_a_name_belongs_to_the_servers_with_the_longest_prefix_in_their_order(
    name: str, owners: list[tuple[str, str]]
) -> None:
    prefixes: dict[str, Any] = {"bare": "", "git": "git_", "hub": "git_hub_", "second": "git_", "plain": ""}
    servers = {key: Server(command="x", prefix=prefix) for key, prefix in prefixes.items()}
    index = NameIndex(servers | {"bank": Server(command="x")})
    assert index.owners(name) == owners
