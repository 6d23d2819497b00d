"""Tells the request in a text from a pasted block, such as a log, which would outvote it."""

from __future__ import annotations

import re

from pointsman.providers.bm25.actions import begins_with_verb, kind_of_request
from pointsman.providers.text import STOP_WORDS, words

MAX_ASKED_CHARS = 300  # of the request beside a block
MIN_PASTED_CHARS = 200
MIN_RATIO = 3  # of the lengths of block and request
READ_LINES = 3  # of a block, to see whether it goes on with the request

_MARKED = re.compile(r"[:?][ \t]*\n")  # a line that says that something follows, or asks
_BLANK = re.compile(r"\n[ \t]*\n")
_LISTED = re.compile(r"\s*(?:[-*\u2022]|\d{1,2}[.)])\s")
_FIELD = re.compile(r"\s*([A-Za-z]\w*(?: \w+){0,2}):\s")
_VAGUE = frozenset(["following", "below", "above", "thing", "things", "step", "steps", "task", "tasks"])


def without_pasted(text: str) -> str:
    """The text without a block after a line that ends with a colon or question mark, or before a question.

    Only if the request beside it says what should be done, and the block is no list of that and has no fields for it.
    """
    if len(text) < MIN_PASTED_CHARS or "\n" not in text:
        return text
    if (mark := _MARKED.search(text, 0, MAX_ASKED_CHARS)) and _is_pasted(text[mark.end() :], text[: mark.end()]):
        return text[: mark.end()]
    blanks = [blank.end() for blank in _BLANK.finditer(text, max(0, len(text) - MAX_ASKED_CHARS))]
    if blanks and text.rstrip().endswith("?") and _is_pasted(text[: blanks[-1]], text[blanks[-1] :]):
        return text[blanks[-1] :]
    return text


def _is_pasted(block: str, asked: str) -> bool:
    if len(block) < max(MIN_PASTED_CHARS, MIN_RATIO * len(asked)) or kind_of_request(asked) is None:
        return False
    if len({word for word in words(asked) if word not in STOP_WORDS and word not in _VAGUE}) < 2:
        return False
    lines = [line for line in block[:2_000].splitlines() if line.strip()][:READ_LINES]
    return not any(_LISTED.match(line) or begins_with_verb(line) for line in lines) and not _are_fields(lines)


def _are_fields(lines: list[str]) -> bool:
    """Whether lines say with what something is to be done: `Version: 6.3`, `Port: 80`. A log has one label."""
    labels = [field[1] for line in lines if (field := _FIELD.match(line))]
    return len(set(labels)) == len(lines)
