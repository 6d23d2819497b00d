"""The store of events: bounded in time, for each session, and in all."""

from __future__ import annotations

import pytest

from pointsman.router.front.legacy import replay
from pointsman.router.front.legacy.replay import EventLog, EventStore, ReplayGapError, SessionEvents

KIB = b"x" * 1000


def numbers(log: EventLog) -> list[int]:
    return [event.number for event in log.events]


def last_id(session: SessionEvents, log: EventLog, number: int) -> str:
    return session.id_of(log.number, number).decode()


async def test_what_is_too_old_goes() -> None:
    now = 0.0
    store = EventStore(lambda: now, keep_s=10)
    session = SessionEvents(store, primed=False)
    log = session.open()
    for _ in range(5):
        log.add(KIB)
        now += 4
    assert numbers(log) == [3, 4, 5]
    with pytest.raises(ReplayGapError):
        session.find(last_id(session, log, 1))
    assert session.find(last_id(session, log, 2)) == (log, 2)
    log.finish(KIB)
    now += 11
    store.evict()
    assert (store.size, session.size) == (0, 0)
    with pytest.raises(ReplayGapError):
        session.find(last_id(session, log, 6))


async def test_the_oldest_of_all_sessions_make_room() -> None:
    store = EventStore(lambda: 0.0, most_bytes=10_000)
    sessions = [SessionEvents(store, primed=False) for _ in range(4)]
    logs = [session.open() for session in sessions]
    for _ in range(4):
        for log in logs:
            log.add(KIB)
    assert store.size <= 10_000
    assert store.size == sum(session.size for session in sessions)
    assert [numbers(log)[-1] for log in logs] == [4] * 4
    assert [len(log.events) for log in logs] == [2, 2, 2, 3]


async def test_one_session_has_its_own_limit() -> None:
    store = EventStore(lambda: 0.0)
    greedy, modest = SessionEvents(store, primed=False), SessionEvents(store, primed=False)
    kept = modest.open()
    kept.add(KIB)
    log = greedy.open()
    for _ in range(20):
        log.add(b"x" * (1 << 20))
    assert greedy.size <= replay.SESSION_BYTES
    assert numbers(log)[-1] == 20
    assert numbers(kept) == [1]


async def test_a_session_that_ends_takes_its_events_along() -> None:
    store = EventStore(lambda: 0.0)
    session = SessionEvents(store, primed=False)
    session.changes().add(KIB)
    session.open().add(KIB)
    session.end()
    assert store.size == 0
    store.evict()
