"""The circuit breaker, with a clock that the tests wind."""

from __future__ import annotations

import pytest

from pointsman.providers.cloud.breaker import FIRST_REST_S, LONGEST_REST_S, TOLERATED, Breaker, Pass
from tests.catalog.sources import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock)


def state(breaker: Breaker) -> str:
    return breaker.state


def entered(breaker: Breaker) -> Pass:
    found = breaker.enter()
    assert found is not None
    return found


def opened(breaker: Breaker) -> Breaker:
    entered(breaker).failed(timed_out=True)
    assert state(breaker) == "open"
    return breaker


def test_one_time_out_opens_it(breaker: Breaker) -> None:
    entered(breaker).failed(timed_out=True)
    assert state(breaker) == "open"
    assert breaker.enter() is None
    assert breaker.opened == 1


def test_other_failures_open_it_only_in_a_row(breaker: Breaker) -> None:
    for _ in range(TOLERATED - 1):
        entered(breaker).failed(timed_out=False)
    entered(breaker).succeeded()
    for _ in range(TOLERATED - 1):
        entered(breaker).failed(timed_out=False)
    assert state(breaker) == "closed"
    entered(breaker).failed(timed_out=False)
    assert state(breaker) == "open"


def test_after_its_rest_one_request_probes_and_the_others_wait_for_what_it_finds(
    breaker: Breaker, clock: Clock
) -> None:
    opened(breaker)
    clock.now += FIRST_REST_S - 0.1
    assert breaker.enter() is None
    clock.now += 0.1
    assert state(breaker) == "half-open"
    probe = entered(breaker)
    assert probe.probes
    assert breaker.enter() is None
    assert state(breaker) == "half-open"
    probe.succeeded()
    assert state(breaker) == "closed"
    assert not entered(breaker).probes


def test_every_probe_that_fails_doubles_the_rest_up_to_a_cap_and_success_ends_that(
    breaker: Breaker, clock: Clock
) -> None:
    opened(breaker)
    rests = []
    for _ in range(6):
        rests.append(breaker.rest_s)
        clock.now += breaker.rest_s
        entered(breaker).failed(timed_out=False)
        assert breaker.enter() is None
    assert rests == [5, 10, 20, 40, 60, 60]
    assert breaker.rest_s == LONGEST_REST_S
    clock.now += LONGEST_REST_S
    entered(breaker).succeeded()
    assert breaker.rest_s == FIRST_REST_S


def test_a_probe_that_leaves_makes_room_for_the_next(breaker: Breaker, clock: Clock) -> None:
    opened(breaker)
    clock.now += FIRST_REST_S
    entered(breaker).left()
    assert entered(breaker).probes


def test_a_time_out_cuts_short_what_else_is_under_way(breaker: Breaker) -> None:
    slow, other, gone = entered(breaker), entered(breaker), entered(breaker)
    cut: list[str] = []
    slow.on_cut, other.on_cut, gone.on_cut = (lambda name=name: cut.append(name) for name in ("slow", "other", "gone"))
    gone.left()
    slow.failed(timed_out=True)
    assert cut == ["other"]


def test_other_failures_cut_nobody_short(breaker: Breaker) -> None:
    calls = [entered(breaker) for _ in range(TOLERATED + 1)]
    cut: list[str] = []
    for call in calls:
        call.on_cut = lambda: cut.append("cut")
    for call in calls[:TOLERATED]:
        call.failed(timed_out=False)
    assert state(breaker) == "open"
    assert cut == []


def test_only_the_probe_decides_whether_an_open_one_closes(breaker: Breaker, clock: Clock) -> None:
    calls = [entered(breaker) for _ in range(TOLERATED + 2)]
    for call in calls[:TOLERATED]:
        call.failed(timed_out=False)
    calls[-1].succeeded()
    assert state(breaker) == "open"
    clock.now += FIRST_REST_S
    probe = entered(breaker)
    calls[-2].failed(timed_out=True)
    assert state(breaker) == "half-open"
    probe.succeeded()
    assert state(breaker) == "closed"


def test_what_is_said_a_second_time_does_nothing(breaker: Breaker) -> None:
    call = entered(breaker)
    call.succeeded()
    call.failed(timed_out=True)
    assert state(breaker) == "closed"
