"""While a server is away, nobody waits for it but one thread."""

from __future__ import annotations

import threading

import pytest

from pointsman.archive.store.errors import StoreAwayError, StoreUnusableError
from pointsman.archive.store.outage import Outage
from tests.archive.wait import wait_until


class Server:
    def __init__(self) -> None:
        self.back = threading.Event()
        self.asked = threading.Event()
        self.callers: set[str] = set()
        self.error: Exception | None = None

    def probe(self) -> None:
        self.callers.add(threading.current_thread().name)
        self.asked.set()
        if self.error is not None:
            raise self.error
        if not self.back.is_set():
            raise StoreAwayError("still away")


def away(outage: Outage) -> bool:
    try:
        outage.check()
    except StoreAwayError:
        return True
    return False


def test_callers_hear_of_it_without_asking_the_server_and_it_ends_by_itself() -> None:
    server = Server()
    outage = Outage(server.probe, again_s=0.01)
    outage.check()
    outage.begin(StoreAwayError("away"))
    outage.begin(StoreAwayError("away"))  # a second caller found out
    server.asked.wait()
    assert away(outage)
    assert server.callers == {"archive-outage"}
    server.back.set()
    wait_until(lambda: not away(outage))
    outage.begin(StoreAwayError("again"))
    wait_until(lambda: not away(outage))
    outage.close()


def test_a_server_that_answers_with_another_error_is_not_away() -> None:
    server = Server()
    outage = Outage(server.probe, again_s=0.01)
    server.error = StoreUnusableError("a newer version")
    outage.begin(StoreAwayError("away"))
    wait_until(lambda: not away(outage))
    outage.close()


def test_a_closed_one_ends() -> None:
    server = Server()
    outage = Outage(server.probe, again_s=60)
    outage.begin(StoreAwayError("away"))
    with pytest.raises(StoreAwayError, match="away"):
        outage.check()
    outage.close()
    wait_until(lambda: not away(outage))
