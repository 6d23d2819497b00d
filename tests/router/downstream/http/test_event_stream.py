from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.router.downstream.connection import BudgetExceededError
from pointsman.router.downstream.http.event_stream import EventStreamParser, ServerEvent

ALL_SORTS = (
    b"\xef\xbb\xbf: a comment\r\nevent: endpoint\rdata: /messages\r\n\r\n"
    b"data: one\ndata:two\ndata:  three\nid: 7\n\n"
    b"retry: 1500\n\n"
    b"unknown: x\n:\n\n"
    b"event: forgotten\n\n"
    b"data\n\n"
    b"id: bad\0id\ndata: \xff\n\n"
    b"retry: soon\ndata: last\r\r"
)
EVENTS = [
    ServerEvent("endpoint", b"/messages", None, None),
    ServerEvent("message", b"one\ntwo\n three", "7", None),
    ServerEvent("message", b"", "7", 1500),
    ServerEvent("message", b"", "7", None),
    ServerEvent("message", b"\xff", "7", None),
    ServerEvent("message", b"last", "7", None),
]


def test_every_kind_of_line_is_understood() -> None:
    assert EventStreamParser(1000).feed(ALL_SORTS) == EVENTS


@given(st.lists(st.integers(min_value=0, max_value=len(ALL_SORTS)), max_size=12))
def test_where_the_chunks_are_cut_makes_no_difference(cuts: list[int]) -> None:
    parser, events = EventStreamParser(1000), []
    borders = [0, *sorted(cuts), len(ALL_SORTS)]
    for start, end in itertools.pairwise(borders):
        events += parser.feed(ALL_SORTS[start:end])
    assert events == EVENTS


def test_one_byte_at_a_time_is_the_same_stream() -> None:
    parser, events = EventStreamParser(1000), []
    for position in range(len(ALL_SORTS)):
        events += parser.feed(ALL_SORTS[position : position + 1])
    assert events == EVENTS


def test_an_unfinished_event_is_not_told() -> None:
    assert EventStreamParser(1000).feed(b"data: half\n") == []


@pytest.mark.parametrize("endless", [b"data: xxxxxxxxxx\n", b"x", b": comment without end ", b"data:\n"])
def test_an_event_without_end_breaks_the_budget(endless: bytes) -> None:
    parser = EventStreamParser(1000)

    def feed_for_ever() -> None:
        while True:
            parser.feed(endless)

    with pytest.raises(BudgetExceededError, match="1000 bytes"):
        feed_for_ever()


def test_comments_and_small_events_never_add_up_to_a_broken_budget() -> None:
    parser = EventStreamParser(100)
    for _ in range(1000):
        assert len(parser.feed(b": still here\n\ndata: " + b"x" * 80 + b"\n\n")) == 1


def test_an_event_in_many_pieces_takes_linear_time() -> None:
    parser = EventStreamParser(1 << 21)
    parser.feed(b"data: ")
    for _ in range(300_000):
        parser.feed(b"x")
    (event,) = parser.feed(b"\n\n")
    assert len(event.data) == 300_000


@pytest.mark.parametrize("chunk", [1 << 16, (1 << 16) + 1, 1 << 20, 1 << 23])
@pytest.mark.parametrize(
    "lines",
    [
        (b"data: %b\n\n", b"%b"),
        (b"\xef\xbb\xbfdata:%b\r\n\r\n", b"%b"),
        (b"event: message\ndata: %b\ndata: more\n\n", b"%b\nmore"),
        (b"data: before\ndata: %b\nid: 7\ndata: %b\n\n", b"before\n%b\n%b"),
        (b"data: %b\ndata:\ndata\ndata: %b\n\n", b"%b\n\n\n%b"),
    ],
)
def test_a_large_event_is_what_was_sent(lines: tuple[bytes, bytes], chunk: int) -> None:
    large = b"\xc3\xa9: " * 500_000
    sent, data = (part % ((large,) * part.count(b"%b")) for part in lines)
    parser, events = EventStreamParser(len(sent)), []
    for begin in range(0, len(sent), chunk):
        events += parser.feed(sent[begin : begin + chunk])
    [event] = events
    assert bytes(event.data) == data
    assert parser.held == 0


def test_large_values_of_one_event_count_together() -> None:
    value = b"data: " + b"x" * 2_000_000
    parser = EventStreamParser(3 * len(value))
    parser.feed(value)
    parser.feed(b"\n" + value)
    parser.feed(b"\n")
    with pytest.raises(BudgetExceededError):
        parser.feed(value + b"x" * 100)
