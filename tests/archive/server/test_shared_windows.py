"""A limit that several archives share: it holds over all of them, and for each alone while PostgreSQL is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pointsman.archive.server.rate_limits import RateLimits
from pointsman.archive.server.shared_windows import RETRY_S, SharedWindows, WindowsAwayError
from pointsman.archive.tools.base import ToolError
from pointsman.core.postgres import Postgres
from tests.postgres import Postgres as Server

TOOLS = ("context_search",)


def archive(url: str, pools: list[Postgres], limit: int = 30) -> RateLimits:
    pools.append(Postgres(url, program="test"))
    return RateLimits({"context_search": limit}, TOOLS, SharedWindows(pools[-1]))


@pytest.fixture
def pools() -> Iterator[list[Postgres]]:
    opened: list[Postgres] = []
    yield opened
    for postgres in opened:
        postgres.close()


def allowed(limits: RateLimits, caller: str, calls: int) -> int:
    count = 0
    for _ in range(calls):
        try:
            limits.count("context_search", caller)
        except ToolError:
            continue
        count += 1
    return count


def test_a_limit_of_30_over_three_archives_allows_30(database_url: str, pools: list[Postgres]) -> None:
    archives = [archive(database_url, pools) for _ in range(3)]
    passed: list[int] = []
    threads = [
        threading.Thread(target=lambda limits=limits: passed.append(allowed(limits, "me", 25)))
        for limits in archives
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(passed) == 9
    assert sum(passed) == 30
    assert sum(allowed(limits, "you", 20) for limits in archives) == 30
    with pytest.raises(ToolError) as refused:
        archives[0].count("context_search", "me")
    assert 30 < refused.value.fields["retryAfterSeconds"] <= 60


def test_calls_leave_the_window_after_a_minute(database_url: str, pools: list[Postgres]) -> None:
    limits = archive(database_url, pools, limit=2)
    assert allowed(limits, "me", 5) == 2
    with pools[0].connection() as connection:
        connection.execute("UPDATE rate_limit_windows SET calls[2] = calls[2] - interval '61 s'")
    assert allowed(limits, "me", 5) == 1


def test_each_counts_alone_while_postgresql_is_away(own_postgres: Server, pools: list[Postgres]) -> None:
    url = own_postgres.new_database()
    archives = [archive(url, pools, limit=3) for _ in range(2)]
    assert sum(allowed(limits, "me", 5) for limits in archives) == 3
    own_postgres.stop()
    assert [allowed(limits, "me", 5) for limits in archives] == [3, 3]


def test_it_is_tried_again_after_a_while_and_no_call_waits_meanwhile(own_postgres: Server) -> None:
    now = 0.0
    postgres = Postgres(own_postgres.new_database(), program="test")
    windows = SharedWindows(postgres, lambda: now)
    assert windows.count("t", "c\0", 1) is None
    own_postgres.stop()
    with pytest.raises(WindowsAwayError):
        windows.count("t", "c\0", 1)
    own_postgres.start()
    with pytest.raises(WindowsAwayError):
        windows.count("t", "c\0", 1)
    now = RETRY_S
    assert windows.count("t", "c\0", 1) is not None
    postgres.close()
