"""Windows of rates: never more than the limit in any period, few numbers however much is counted, any clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.router.state.rate_windows import (
    DAY,
    MINUTE,
    Limit,
    Period,
    Window,
    counted,
    decode,
    encode,
    take,
    wait_s,
)


def limit(most: int, key: str = "k", period: Period = MINUTE) -> Limit:
    return Limit(key, most, period, "This token", "calls", "rates.calls_per_minute")


@given(
    st.integers(1, 20),
    st.lists(st.floats(0, 20, allow_nan=False), max_size=200),
    st.sampled_from([MINUTE, DAY]),
)
def test_no_period_ever_has_more_than_the_limit(most: int, pauses: list[float], period: Period) -> None:
    windows: dict[str, Window] = {}
    admitted: list[float] = []
    now = 1_800_000_000.0
    for pause in pauses:
        now += pause * period.part_s
        reached = take(windows, [limit(most, period=period)], now)
        if reached is None:
            admitted.append(now)
        else:
            assert 0 < reached.wait_s <= period.life_s
            assert take(windows, [limit(most, period=period)], now + reached.wait_s) is None, "as it was told"
            admitted.append(now + reached.wait_s)
            now += reached.wait_s
    length_s = period.parts * period.part_s
    for start in admitted:
        assert sum(start <= at < start + length_s for at in admitted) <= most


def test_a_call_that_waits_as_long_as_it_was_told_is_admitted() -> None:
    window: Window = ()
    for second in (0.5, 1.5, 1.9):
        window = counted(window, MINUTE, second)
    assert wait_s(window, 4, MINUTE, 2.0) == 0.0
    assert wait_s(window, 3, MINUTE, 2.0) == 59.0  # the first second counts until 61
    assert wait_s(window, 2, MINUTE, 2.0) == 60.0
    assert wait_s(window, 3, MINUTE, 61.0) == 0.0


def test_a_call_that_one_limit_refuses_counts_for_none() -> None:
    windows: dict[str, Window] = {}
    both = [limit(2, "token"), limit(1, "tool")]
    assert take(windows, both, 0.0) is None
    for _ in range(5):
        reached = take(windows, both, 1.0)
        assert reached is not None
        assert reached.limit.key == "tool"
    assert take(windows, both[:1], 1.0) is None


@pytest.mark.parametrize("period", [MINUTE, DAY], ids=lambda period: period.name)
def test_a_window_is_a_few_numbers_however_much_is_counted(period: Period) -> None:
    window: Window = ()
    for step in range(20_000):
        window = counted(window, period, step * period.part_s / 7)
    assert len(window) <= period.parts + 1
    assert len(encode(window)) < 4_096
    assert decode(encode(window)) == window


def test_a_clock_that_was_wrong_blocks_nobody_for_longer_than_a_period() -> None:
    year_s = 365 * 86_400.0
    ahead = counted((), MINUTE, year_s)
    assert wait_s(ahead, 1, MINUTE, 0.0) == 0.0
    little = counted(counted((), MINUTE, 100.0), MINUTE, 90.0)  # set back by ten seconds
    assert sum(count for _, count in little) == 2
    assert 0 < wait_s(little, 2, MINUTE, 90.0) <= MINUTE.life_s + 10


@pytest.mark.parametrize("stored", [b"", b"null", b"{}", b"[[1]]", b'[["a", 1]]', b"\xff"])
def test_counts_that_cannot_be_read_are_none(stored: bytes) -> None:
    assert decode(stored) == ()
