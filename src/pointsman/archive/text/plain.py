"""Markdown in a line, as it would be read aloud: without marks, anchors and the addresses of links."""

from __future__ import annotations

import re

_ANCHOR = re.compile(r"\s*\{#[^{}]*\}$")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
_MARKS = re.compile(r"[`*]|\\(?=[!-/:-@\[-`{-~])|(?<!\w)_|_(?!\w)")


def plain(line: str) -> str:
    said = _MARKS.sub("", _LINK.sub(r"\1", _ANCHOR.sub("", line)))
    return " ".join(said.split())
