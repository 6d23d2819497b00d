"""Turns at the processor: one at a time, in order, and passed on whatever happens."""

from __future__ import annotations

import threading

import pytest

from pointsman.archive.cpu_turns import Turns
from tests.archive.wait import wait_until


def test_one_computes_at_a_time_in_order_and_urgent_ones_before_others() -> None:
    turns = Turns()
    order: list[str] = []
    inside = 0

    def compute(name: str, urgent: bool) -> None:
        nonlocal inside
        with turns.turn(urgent=urgent):
            inside += 1
            order.append(f"{name}{inside}")
            inside -= 1

    threads = [threading.Thread(target=compute, args=(name, name == "writer")) for name in ("a", "b", "writer", "c")]
    with turns.turn():
        for waiting, thread in enumerate(threads, start=1):
            thread.start()
            wait_until(lambda waiting=waiting: len(turns._waiting) == waiting)  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert order == ["writer1", "a1", "b1", "c1"]


def test_a_failure_passes_the_turn_on() -> None:
    turns = Turns()
    with pytest.raises(RuntimeError), turns.turn():
        raise RuntimeError
    with turns.turn():
        pass
