"""Cursors of lists: bound to caller and list, sealed against changes, and true while the list moves."""

from __future__ import annotations

import string

import pytest

from pointsman.catalog.offers import Offer
from pointsman.core.model import Caller
from pointsman.core.seams import INVALID_PARAMS, ProtocolError
from pointsman.router.gateway.cursors import LIFETIME_S, PAGE, Cursors

ME = Caller("laptop", "research")
LIST = "resources/list"
ORDER = ("a", "b", "c")
KEY = "k" * 32


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def offers(server_id: str, count: int, start: int = 0) -> list[Offer]:
    return [Offer(server_id, f"{server_id}{n}", {"uri": f"{server_id}{n}"}) for n in range(start, start + count)]


def refused(cursors: Cursors, listed: list[Offer], cursor: str, method: str = LIST, caller: Caller = ME) -> int:
    with pytest.raises(ProtocolError) as raised:
        cursors.page(listed, ORDER, method, caller, cursor)
    return raised.value.code


def test_pages_follow_each_other_to_the_end() -> None:
    cursors, listed = Cursors([KEY], Clock()), offers("a", PAGE) + offers("b", PAGE + 1)
    seen: list[Offer] = []
    cursor: str | None = None
    for _ in range(3):
        page, cursor = cursors.page(listed, ORDER, LIST, ME, cursor)
        seen += page
    assert cursor is None
    assert seen == listed


def test_a_list_of_exactly_one_page_has_no_second() -> None:
    assert Cursors([KEY], Clock()).page(offers("a", PAGE), ORDER, LIST, ME, None)[1] is None


def test_what_comes_and_goes_elsewhere_costs_nothing_and_repeats_nothing() -> None:
    cursors, listed = Cursors([KEY], Clock()), offers("a", 100) + offers("b", PAGE)
    _, cursor = cursors.page(listed, ORDER, LIST, ME, None)
    moved = offers("a", 3) + offers("b", PAGE) + offers("c", 5)
    page, _ = cursors.page(moved, ORDER, LIST, ME, cursor)
    assert page == offers("b", 100, start=PAGE - 100) + offers("c", 5)


def test_a_server_that_is_away_is_passed_over() -> None:
    cursors, listed = Cursors([KEY], Clock()), offers("a", PAGE + 1) + offers("b", 5)
    _, cursor = cursors.page(listed, ORDER, LIST, ME, None)
    assert cursors.page(offers("b", 5), ORDER, LIST, ME, cursor) == (offers("b", 5), None)
    assert cursors.page([], ORDER, LIST, ME, cursor) == ([], None)


def test_a_cursor_whose_place_is_gone_has_expired() -> None:
    cursors, listed = Cursors([KEY], Clock()), offers("b", PAGE + 1)
    _, cursor = cursors.page(listed, ORDER, LIST, ME, None)
    assert cursor is not None
    assert refused(cursors, offers("b", 10), cursor) == INVALID_PARAMS
    with pytest.raises(ProtocolError):
        cursors.page(offers("a", 10), ("a",), LIST, ME, cursor)  # its server is not the caller's any more


def test_a_cursor_serves_one_caller_one_list_one_key_and_some_time() -> None:
    clock = Clock()
    cursors, listed = Cursors([KEY], clock), offers("a", PAGE + 1)
    _, cursor = cursors.page(listed, ORDER, LIST, ME, None)
    assert cursor is not None
    assert refused(cursors, listed, cursor, caller=Caller("laptop", None)) == INVALID_PARAMS
    assert refused(cursors, listed, cursor, caller=Caller("other", "research")) == INVALID_PARAMS
    assert refused(cursors, listed, cursor, method="prompts/list") == INVALID_PARAMS
    assert refused(Cursors(["x" * 32], clock), listed, cursor) == INVALID_PARAMS
    assert Cursors(["x" * 32, KEY], clock).page(listed, ORDER, LIST, ME, cursor)[0] == listed[-1:]
    clock.now += LIFETIME_S + 1
    assert refused(cursors, listed, cursor) == INVALID_PARAMS


def last_bit_flipped(cursor: str) -> str:
    """Where the last character has bits to spare, this stands for the same bytes."""
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    return cursor[:-1] + alphabet[alphabet.index(cursor[-1]) ^ 1]


@pytest.mark.parametrize(
    "change",
    [lambda c: c[:-1], lambda c: c + "A", lambda c: "A" + c[1:], lambda c: "\u00e4", str.swapcase, last_bit_flipped],
)
def test_a_changed_cursor_is_refused(change: object) -> None:
    cursors, listed = Cursors([KEY], Clock()), offers("a", PAGE + 1)
    _, cursor = cursors.page(listed, ORDER, LIST, ME, None)
    assert callable(change)
    assert refused(cursors, listed, change(cursor)) == INVALID_PARAMS
