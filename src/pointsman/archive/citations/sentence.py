"""The sentence round a place in a text, bounded."""

from __future__ import annotations

import re

LONGEST = 240
_END = re.compile(
    r"[.!?…\u3002\uff01\uff1f]['\")\]*_]{0,3}(?=\s)"
    r"|\n[ \t]*(?=[\n|]|\[\^)"  # rows of tables and footnotes end with their lines
)


def sentence(text: str, start: int, end: int) -> str:
    """What stands round text[start:end], as written; of a long one the part that is nearest."""
    before = text[max(0, start - LONGEST) : start]
    after = text[end : end + LONGEST]
    for stop in _END.finditer(text, max(0, start - LONGEST), start):
        before = text[stop.end() : start]
    if stop_after := _END.search(text, end, end + LONGEST):
        after = text[end : stop_after.end()]
    written = text[start:end]
    room = max(0, LONGEST - len(written))
    if len(before) + len(after) > room:
        before = _last_words(before, max(room // 2, room - len(after)))
        after = _first_words(after, room - len(before))
    context = " ".join(f"{before}{written}{after}".split())
    return context if len(context) <= LONGEST else context[: LONGEST - 1] + "…"


def _last_words(text: str, room: int) -> str:
    return text if len(text) <= room else text[len(text) - room :].partition(" ")[2]


def _first_words(text: str, room: int) -> str:
    return text if len(text) <= room else text[:room].rpartition(" ")[0]
