"""Cuts a text where a reader would: at the end of a sentence, else of a word."""

from __future__ import annotations

import re

ELLIPSIS = "…"

# In Chinese and Japanese no space follows the full stop (3002) or the wide marks (ff01, ff1f), nor a comma.
_SENTENCE_END = re.compile("[.!?](?= )|[\u3002\uff01\uff1f]")
_WORD_END = re.compile("[ ,;:\u3001\uff0c]")
_MIN_SHARE = 0.4  # of the room; a cut that would leave less is made later, at a worse place


def clipped(text: str, room: int) -> str:
    """One line of at most `room` characters. Ends with an ellipsis where something was left out."""
    line = " ".join(text.split())
    if len(line) <= room:
        return line
    window = line[:room]  # with room for the ellipsis: a boundary's own character is looked at, too
    end = _last_end(_SENTENCE_END, window, after=True) or _last_end(_WORD_END, window, after=False) or room - 1
    return window[:end].rstrip() + ELLIPSIS


def _last_end(boundary: re.Pattern[str], window: str, *, after: bool) -> int | None:
    """Where the last boundary lies that leaves enough and has room for an ellipsis."""
    ends = [found.end() if after else found.start() for found in boundary.finditer(window)]
    fitting = [end for end in ends if len(window) * _MIN_SHARE <= end < len(window)]
    return fitting[-1] if fitting else None
