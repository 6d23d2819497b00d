"""Finds references by regular expressions: addresses, DOIs, arXiv numbers, wiki links. Bounded on any text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

INLINE, REFERENCE, AUTOLINK, WIKI, DOI, ARXIV, FOOTNOTE, BARE = (
    "inline",
    "reference",
    "autolink",
    "wiki",
    "doi",
    "arxiv",
    "footnote",
    "bare",
)

LONGEST_TARGET = 2_000

WIKI_LINK = re.compile(r"\[\[([^\[\]|\n\\]{1,300})(?:\\?\|[^\[\]\n]{0,300})?\]\]")
FOOTNOTE_MARK = re.compile(r"\[\^([^\s\[\]^]{1,100})\]")
_ADDRESS = re.compile(r"\b(?:https?|ftp)://[^\s<>\"`|\\^{}\x00]{1,2000}", re.I)
_WWW = re.compile(r"(?<![\w/.@-])www\.[a-z0-9-]{1,63}\.[^\s<>\"`|\\^{}\x00]{1,2000}", re.I)
_DOI_ADDRESS = re.compile(r"^https?://(?:dx\.|www\.)?doi\.org/(10\.\d{4,9}/.+)$", re.I)
_DOI = re.compile(r"(?<![\w/.])(?:doi:\s{0,3})?(10\.\d{4,9}/[^\s<>\"`|\x00]{1,300})", re.I)
_ARXIV_NUMBER = r"(\d{4}\.\d{4,5}|[a-z][a-z-]{1,20}(?:\.[A-Z]{2})?/\d{7})(?:v\d{1,3})?"
_ARXIV_ADDRESS = re.compile(rf"^https?://(?:www\.|export\.)?arxiv\.org/(?:abs|pdf|html)/{_ARXIV_NUMBER}(?!\d)", re.I)
_ARXIV = re.compile(rf"\barxiv(?::\s{{0,3}}|\s{{1,3}}){_ARXIV_NUMBER}(?!\d)", re.I)
_INLINE_LINK = re.compile(
    r"\[[^\[\]]{0,300}\]\(\s{0,9}<?([^\s()<>]{1,2000}(?:\([^\s()<>]{0,200}\))?)[^()\[\]]{0,300}\)"
)
_ANGLE = re.compile(r"<((?:https?|ftp)://[^\s<>]{1,2000})>", re.I)
_ANCHOR = re.compile(
    r"<a\s[^<>]{0,500}?\bhref\s{0,9}=\s{0,9}"
    r"(?:\"([^\"<>]{1,2000})\"|'([^'<>]{1,2000})'|([^\s\"'<>]{1,2000}))",
    re.I,
)
_ESCAPED = re.compile(
    r"(?:\\\[[^\[\]\n]{0,300}\\?\]|\[[^\[\]\n]{0,300}\\\])\\?\([^()\s]{0,2000}\)|\\<[a-z]{2,5}://[^\s<>]{0,2000}>", re.I
)
_CLOSES_A_SENTENCE = ".,;:!?'*_~…\u3001\u3002\uff0c\uff1b\uff1a\uff01\uff1f\u201d\u2019\u00bb"
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]{1,20}:", re.I)
_FOLLOWED = ("http:", "https:", "ftp:", "doi:", "arxiv:")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A reference and its position in the text that was searched."""

    kind: str
    target: str
    start: int
    end: int


def find_bare(text: str) -> Iterator[Occurrence]:
    """Addresses and numbers in running text. Where two patterns match the same words, the first takes them."""
    taken = text
    for pattern, read in ((_ADDRESS, _address), (_WWW, _address), (_ARXIV, _arxiv), (_DOI, _doi)):
        spans = []
        for match in pattern.finditer(taken):
            found = read(match)
            if found is not None:
                spans.append((found.start, found.end))
                yield found
        taken = blank_out(taken, spans)


def find_by_pattern(text: str) -> Iterator[Occurrence]:
    """All references of a text that is too large or too nested to be parsed as Markdown."""
    taken = blank_out(text, find_escaped(text))
    for pattern, kind, target in (
        (_INLINE_LINK, INLINE, _destination),
        (_ANGLE, AUTOLINK, _destination),
        (WIKI_LINK, WIKI, wiki_title),
    ):
        matches = list(pattern.finditer(taken))
        for match in matches:
            if text[match.start() - 1 : match.start()] != "!" and is_followed(target(match)):
                yield Occurrence(kind, target(match), *match.span())
        taken = blank_out(taken, (match.span() for match in matches))
    yield from find_bare(taken)


def find_anchors(text: str) -> Iterator[Occurrence]:
    """The links of raw HTML."""
    for match in _ANCHOR.finditer(text):
        target = html.unescape(next(group for group in match.groups() if group is not None)).strip()
        if is_followed(target):
            yield Occurrence(INLINE, target, *match.span())


def find_escaped(text: str) -> Iterator[tuple[int, int]]:
    """Links that a backslash turns into plain text."""
    return (match.span() for match in _ESCAPED.finditer(text)) if "\\" in text else iter(())


def is_followed(target: str) -> bool:
    """Whether a link can lead to a document: fragments of its own page, mailboxes and programs cannot."""
    if not target or target.startswith(("#", "?")) or len(target) > LONGEST_TARGET:
        return False
    return not _SCHEME.match(target) or target.lower().startswith(_FOLLOWED)


def wiki_title(match: re.Match[str]) -> str:
    """`Page` of `[[Page#Section|label]]`; empty for a section of the same page."""
    return match.group(1).partition("#")[0].strip()


def _destination(match: re.Match[str]) -> str:
    return match.group(1)


def blank_out(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with some spans overwritten; line ends and all positions stay."""
    pieces: list[str] = []
    reached = 0
    for start, end in sorted(spans):
        if end <= reached:
            continue
        start = max(start, reached)
        pieces += (text[reached:start], _NOT_NEWLINE.sub("\x00", text[start:end]))
        reached = end
    return "".join((*pieces, text[reached:])) if pieces else text


_NOT_NEWLINE = re.compile(r"[^\n]")


def _address(match: re.Match[str]) -> Occurrence | None:
    written = _trimmed(match.group())
    target = html.unescape(written)
    if target.lower().startswith("www."):
        target = f"https://{target}"
    if target.endswith(("://", "://www.")):
        return None
    kind = BARE
    if number := _ARXIV_ADDRESS.match(target):
        kind, target = ARXIV, number.group(1)
    elif number := _DOI_ADDRESS.match(target):
        kind, target = DOI, number.group(1).lower()
    return Occurrence(kind, target, match.start(), match.start() + len(written))


def _doi(match: re.Match[str]) -> Occurrence | None:
    number = _trimmed(match.group(1))
    if number.endswith("/"):
        return None
    return Occurrence(DOI, html.unescape(number).lower(), match.start(), match.start(1) + len(number))


def _arxiv(match: re.Match[str]) -> Occurrence:
    return Occurrence(ARXIV, match.group(1), *match.span())


def _trimmed(address: str) -> str:
    """Strip the punctuation of the surrounding sentence; a closing bracket stays only if it was opened."""
    while address:
        last = address[-1]
        opening = {")": "(", "]": "["}.get(last)
        if last in _CLOSES_A_SENTENCE or (opening and address.count(last) > address.count(opening)):
            address = address[:-1]
        else:
            break
    return address
