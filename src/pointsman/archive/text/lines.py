"""Lines of Markdown as CommonMark counts them, the end of front matter, and text without markup or invalid Unicode."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_FRONT_MATTER_LINES = 2_000

_NEWLINE = re.compile(r"\r\n?")
_ANCHOR = re.compile(r"\s*\{#[^{}]*\}$")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
_EMPHASIS = re.compile(r"[`*]|\\(?=[!-/:-@\[-`{-~])|(?<!\w)_|_(?!\w)")  # and escapes


def lines_of(text: str) -> list[str]:
    """Only line feeds and carriage returns end a line; `str.splitlines` splits at eight more characters."""
    if "\r" in text:
        text = _NEWLINE.sub("\n", text)
    return text.split("\n")


def replace_invalid(text: str) -> str:
    """Replace lone surrogates and zero bytes, which a store does not take."""
    return (
        text
        if text.isascii() and "\0" not in text
        else text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    )


def is_encodable(text: str) -> bool:
    """Whether the text is valid Unicode: JSON can contain lone surrogates, and names of files can be any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def front_matter_end(lines: Sequence[str]) -> int:
    """How many lines the front matter has, including its two delimiters; 0 without front matter.

    `---` opens YAML (closed by `---` or `...`), `+++` opens TOML. If a blank line follows or the second delimiter is
    missing, the first one is a thematic break.
    """
    opening = lines[0].lstrip("\ufeff").rstrip(" \t") if lines else ""
    if opening not in ("---", "+++") or len(lines) < 2 or not lines[1].strip():
        return 0
    closings = ("---", "...") if opening == "---" else ("+++",)
    for number in range(1, min(len(lines), MAX_FRONT_MATTER_LINES)):
        if lines[number].rstrip(" \t") in closings:
            return number + 1
    return 0


def strip_markup(line: str) -> str:
    """A line of Markdown without emphasis, anchors and the addresses of links."""
    text = _EMPHASIS.sub("", _LINK.sub(r"\1", _ANCHOR.sub("", line)))
    return " ".join(text.split())
