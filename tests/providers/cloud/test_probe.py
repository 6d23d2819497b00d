"""The probe that a half-open breaker lets through, over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pointsman.providers.cloud.breaker import FIRST_REST_S
from pointsman.providers.cloud.provider import CloudSearchProvider
from tests.catalog.sources import Clock
from tests.providers.cloud.test_provider import asking, provider, state, why_not
from tests.servers.search_service import Asked, http, names_the_first_tool, says_nothing, search_service, sends


@asynccontextmanager
async def probe_under_way() -> AsyncIterator[tuple[CloudSearchProvider, asyncio.Task[Any], asyncio.Event]]:
    """A provider whose breaker is half-open, its probe, and the event that lets the service answer it."""
    clock = Clock()
    may_answer = asyncio.Event()

    async def answers_later(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await may_answer.wait()
        await names_the_first_tool(asked, writer)

    async with (
        search_service(sends(http(b"{}", "500 Oops"))) as service,
        provider(service.settings(), clock=clock) as cloud,
    ):
        for _ in range(3):
            await why_not(cloud)
        service.behave = answers_later
        clock.now += FIRST_REST_S
        probe = asyncio.create_task(cloud.search(asking()))
        await service.until_asked(4)
        yield cloud, probe, may_answer


async def test_a_service_that_comes_back_is_asked_again_after_a_rest() -> None:
    clock = Clock()
    async with (
        search_service(sends(http(b"{}", "500 Oops"))) as service,
        provider(service.settings(), clock=clock) as cloud,
    ):
        for _ in range(3):
            await why_not(cloud)
        service.behave = names_the_first_tool
        assert await why_not(cloud) == "cloud_open"
        clock.now += FIRST_REST_S
        assert state(cloud) == "half-open"
        assert [hit.tool_key for hit in await cloud.search(asking())] == ["shop:paint"]
        assert cloud.state_for(None) == ("closed", None)


async def test_while_a_probe_is_under_way_nobody_else_waits() -> None:
    async with probe_under_way() as (cloud, probe, may_answer):
        assert await why_not(cloud) == "cloud_open"
        assert state(cloud) == "half-open"
        may_answer.set()
        assert len(await probe) == 1
        assert state(cloud) == "closed"


async def test_not_even_the_one_whose_request_is_the_probe_waits_for_a_dead_service() -> None:
    clock = Clock()
    async with (
        search_service(sends(http(b"{}", "500 Oops"))) as service,
        provider(service.settings(), clock=clock, probe_patience_s=0.01) as cloud,
    ):
        for _ in range(3):
            await why_not(cloud)
        service.behave = says_nothing
        clock.now += FIRST_REST_S
        assert await why_not(cloud) == "cloud_open"
        assert state(cloud) == "half-open"  # the probe goes on with nobody waiting for it
        await service.until_asked(4)


async def test_one_who_leaves_neither_holds_the_probes_place_nor_hides_what_it_found() -> None:
    async with probe_under_way() as (cloud, probe, may_answer):
        probe.cancel()
        await asyncio.wait({probe})
        assert probe.cancelled()
        may_answer.set()
        while state(cloud) != "closed":
            await asyncio.sleep(0.01)
