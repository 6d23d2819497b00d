"""A request is told from a block of text that is pasted beside it."""

from __future__ import annotations

import pytest

from pointsman.providers.bm25.pasted import without_pasted
from pointsman.providers.bm25.query import parse

LOG = "\n".join(f"2026-01-{day:02} 10:00:00 ERROR worker cannot commit the branch" for day in range(1, 29))
PROSE = "The log of last night shows which branch was merged. Nobody searched the history of the commit. " * 5


@pytest.mark.parametrize("block", [LOG, PROSE, f"ERROR: timeout\nERROR: closed\nERROR: timeout\n{LOG}"])
def test_a_block_after_or_before_a_request_is_left_out(block: str) -> None:
    assert without_pasted(f"Write the following log into a file:\n{block}") == "Write the following log into a file:\n"
    assert without_pasted(f"What time is it in Tokyo?\n\n{block}") == "What time is it in Tokyo?\n"
    assert without_pasted(f"{block}\n\nWhat time is it in Tokyo?") == "What time is it in Tokyo?"


@pytest.mark.parametrize(
    "text",
    [
        LOG,
        f"Write the log into a file {LOG}",
        f"Find the following:\n{PROSE}",  # what, is said below
        f"Please do these things with care:\n{PROSE}",
        f"Look up these facts for the trip:\n- a flight to Oslo\n- a hotel\n{PROSE}",
        f"List the tasks of the sprint:\n1. a flight to Oslo\n2. a hotel\n{PROSE}",
        f"Find a flight for the trip:\nBook it, and a hotel near the station. {PROSE}",
        f"How do I call the service of the firm?\nVersion: 6.3.1\nIP: 10.0.0.1\nAPI name: status\n{PROSE}",
        f"What time is it in Tokyo?\n{LOG[:100]}",
    ],
)
def test_what_goes_on_with_the_request_stays(text: str) -> None:
    assert without_pasted(text) == text


def test_the_words_of_a_block_do_not_count() -> None:
    assert set(parse(f"What time is it in Tokyo?\n\n{LOG}").tokens) == {"time", "tokyo", "current"}
