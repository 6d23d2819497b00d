"""Splits HTML into tags and text in one pass. The standard library's parser takes minutes for a hostile megabyte."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape as unescape_all
from typing import Literal

_NAME = re.compile(r"<(/?+)([a-zA-Z][^\s/>]*+)")
_TO_END = re.compile(r"""(?:[^>"']++|"[^"]*+"|'[^']*+')*+>""")
_ATTRIBUTE = re.compile(r"""([^\s=/>"']++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++)))?+""")
_LONG_NUMBER = re.compile(r"&#(?:[0-9]{10,}+|[xX][0-9a-fA-F]{10,}+);?+")  # not a character, and too long to convert
_RAW = frozenset({"script", "style", "title", "textarea", "noscript", "iframe", "xmp", "noembed", "noframes"})


@dataclass(frozen=True, slots=True)
class Token:
    kind: Literal["text", "start", "end"]
    value: str  # the text, or the tag name in lower case
    inside: str = ""  # the attributes of a start tag, as written


def unescape(text: str) -> str:
    return unescape_all(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


def attributes(inside: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(inside):
        found.setdefault(match[1].lower(), unescape(match[2] or match[3] or match[4] or ""))
    return found


def tokens(text: str) -> Iterator[Token]:
    """Comments, declarations and processing instructions are skipped."""
    at, last = 0, text.rfind(">")
    while True:
        opening = text.find("<", at)
        if opening == -1 or opening > last:
            break
        if opening > at:
            yield Token("text", unescape(text[at:opening]))
        name = _NAME.match(text, opening)
        if name is None:
            at = _after_hidden(text, opening)
            if at == opening:
                yield Token("text", "<")
                at = opening + 1
            continue
        end = _tag_end(text, name.end())
        kind: Literal["start", "end"] = "end" if name[1] else "start"
        tag = name[2].lower()
        yield Token(kind, tag, text[name.end() : end - 1])
        at = end
        if kind == "start" and tag in _RAW:
            closing = _closing(tag).search(text, at)
            at, raw = (closing.start(), text[at : closing.start()]) if closing else (len(text), text[at:])
            yield Token("text", unescape(raw))
    if at < len(text):
        yield Token("text", unescape(text[at:]))


def _tag_end(text: str, at: int) -> int:
    """The position after the `>` that ends the tag; one inside quotes counts only if a quote is never closed."""
    match = _TO_END.match(text, at)
    return match.end() if match else text.index(">", at) + 1


def _after_hidden(text: str, at: int) -> int:
    if text.startswith("<!--", at):
        end = text.find("-->", at + 4)
        return end + 3 if end != -1 else len(text)
    if text.startswith(("<!", "<?", "</"), at):
        return text.index(">", at) + 1
    return at


def _closing(tag: str) -> re.Pattern[str]:
    return re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE)
