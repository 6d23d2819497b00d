"""Lines as CommonMark counts them, the front matter before the first, and text without what is no text."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_FRONT_MATTER_LINES = 2_000

_NEWLINE = re.compile(r"\r\n?")


def lines_of(text: str) -> list[str]:
    """Only line feeds and carriage returns end a line; `str.splitlines` knows eight more that Markdown does not."""
    if "\r" in text:
        text = _NEWLINE.sub("\n", text)
    return text.split("\n")


def whole(text: str) -> str:
    """Text that every store takes: halves of characters and zero bytes become signs for what is broken."""
    return (
        text
        if text.isascii() and "\0" not in text
        else text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    )


def front_matter_end(lines: Sequence[str]) -> int:
    """How many lines the front matter takes, its two rules included; 0 where there is none.

    `---` opens YAML (closed by `---` or `...`), `+++` opens TOML. A blank line after the first rule means that it is
    just a rule, and so does a missing second one.
    """
    opening = lines[0].lstrip("\ufeff").rstrip(" \t") if lines else ""
    if opening not in ("---", "+++") or len(lines) < 2 or not lines[1].strip():
        return 0
    closings = ("---", "...") if opening == "---" else ("+++",)
    for number in range(1, min(len(lines), MAX_FRONT_MATTER_LINES)):
        if lines[number].rstrip(" \t") in closings:
            return number + 1
    return 0


_ANCHOR = re.compile(r"\s*\{#[^{}]*\}$")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
_MARKS = re.compile(r"[`*]|\\(?=[!-/:-@\[-`{-~])|(?<!\w)_|_(?!\w)")


def plain(line: str) -> str:
    said = _MARKS.sub("", _LINK.sub(r"\1", _ANCHOR.sub("", line)))
    return " ".join(said.split())
