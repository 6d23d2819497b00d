"""Escapes characters that could move the cursor, hide text or forge a line where foreign text is printed."""

from __future__ import annotations

import re

# Control characters, line and paragraph separators, and characters that are invisible or change the direction.
_UNSAFE_BUT_NEWLINE = (  # no lookahead for it: a class alone is five times as fast
    "\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U0010ffff"
)
_UNSAFE_CLASS = f"\n{_UNSAFE_BUT_NEWLINE}"
_KEPT = "\n\t\u200c\u200d\ufe0e\ufe0f"  # in text of several lines: joiners of letters and emoji, too
# `re` compiles these at first use: each takes a millisecond, and most texts are plain.
_UNSAFE = f"[{_UNSAFE_CLASS}]"
_UNSAFE_IN_LINES = f"(?![{_KEPT}])[{_UNSAFE_CLASS}]"
_UNSAFE_IN_JSON = f"[{_UNSAFE_BUT_NEWLINE}]"


def escaped(text: str) -> str:
    """The text as one line: a field of a table, a name, a path, a reason."""
    return text if _is_plain(text) else re.sub(_UNSAFE, _escape, text)


def escaped_lines(text: str) -> str:
    """The text with its lines and tabs, and without other control characters."""
    return text if _is_plain(text) else re.sub(_UNSAFE_IN_LINES, _escape, text.replace("\r\n", "\n"))


def escaped_json(document: str) -> str:
    """An encoded JSON document with the characters escaped that an encoder leaves as they are."""
    return document if _is_plain(document) else re.sub(_UNSAFE_IN_JSON, _json_escape, document)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _escape(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
