"""The citations of a document: each reference in it, how sure it is, on which line and in which sentence."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from pointsman.archive.citations.markdown import Block, blocks_of
from pointsman.archive.citations.sentence import sentence
from pointsman.archive.citations.shapes import (
    ARXIV,
    AUTOLINK,
    BARE,
    DOI,
    FOOTNOTE,
    INLINE,
    REFERENCE,
    WIKI,
    Found,
    bare,
    blanked,
    by_shape,
    escaped,
)
from pointsman.archive.model.model import Citation

CONFIDENCE = {
    INLINE: 1.0,
    REFERENCE: 1.0,
    WIKI: 0.95,
    AUTOLINK: 0.95,
    DOI: 0.9,
    ARXIV: 0.9,
    FOOTNOTE: 0.85,
    BARE: 0.8,
}
MOST = 2_000  # citations of one document
_LARGEST = 1_000_000  # characters that are read as Markdown

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?:.*\n){0,500}?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(?:(?! {0,3}\1)[^\n]*\n)*(?: {0,3}\1[^\n]*|\Z)", re.M)
_DEFINITION = re.compile(r"^[ ]{0,3}\[\^([^\s\[\]^]{1,100})\]:[ \t]*", re.M)


def citations_of(content: str) -> tuple[Citation, ...]:
    """What a Markdown or plain text refers to, in the order of its lines."""
    content = content.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", " ")
    if front := _FRONT_MATTER.match(content):
        content = "\n" * front.group().count("\n") + content[front.end() :]
    if len(content) > _LARGEST:
        blocks: Iterable[Block] = (Block(blanked(content, _fences(content)), 1, wild=True),)
    else:
        blocks = blocks_of(content)
    return _bounded(_citations(blocks))


def _citations(blocks: Iterable[Block]) -> Iterator[Citation]:
    """Footnotes are settled last: what a mark leads to may be defined anywhere."""
    marks: list[tuple[str, Citation]] = []
    notes: dict[str, list[Citation]] = {}
    for block in blocks:
        definitions = [(match.start(), match.group(1).casefold()) for match in _DEFINITION.finditer(block.text)]
        places = [start for start, _ in definitions]
        for found, citation in _of(block):
            inside = bisect_right(places, found.start)
            if inside and found.kind != FOOTNOTE:
                notes.setdefault(definitions[inside - 1][1], []).append(citation)
            elif found.kind != FOOTNOTE:
                yield citation
            elif found.start not in places:
                marks.append((found.target, citation))
    yield from _footnotes(marks, notes)


def _footnotes(marks: Iterable[tuple[str, Citation]], notes: dict[str, list[Citation]]) -> Iterator[Citation]:
    marked = set()
    for name, mark in marks:
        marked.add(name)
        for note in notes.get(name, ()):
            yield Citation(FOOTNOTE, _address(note), mark.context, CONFIDENCE[FOOTNOTE], mark.line)
    for name, cited in notes.items():
        if name not in marked:  # a note that no mark leads to still says what it says
            for note in cited:
                yield Citation(FOOTNOTE, _address(note), note.context, CONFIDENCE[FOOTNOTE], note.line)


def _address(note: Citation) -> str:
    """A number has lost its kind when it stands in a footnote: the address says it."""
    prefix = {DOI: "https://doi.org/", ARXIV: "https://arxiv.org/abs/"}.get(note.kind, "")
    return prefix + note.target


def _of(block: Block) -> Iterator[tuple[Found, Citation]]:
    if block.wild:
        found: Iterable[Found] = by_shape(block.text)
    else:
        found = (*block.links, *bare(blanked(block.text, (*block.taken, *escaped(block.text)))))
    breaks = [match.start() for match in re.finditer("\n", block.text)]
    for each in sorted(found, key=lambda each: each.start):
        line = block.line + bisect_right(breaks, each.start)
        yield (
            each,
            Citation(each.kind, each.target, sentence(block.text, each.start, each.end), CONFIDENCE[each.kind], line),
        )


def _bounded(citations: Iterable[Citation]) -> tuple[Citation, ...]:
    """In the order of the lines, the same thing on the same line once, at most MOST of them."""
    kept: dict[tuple[str, int], Citation] = {}
    for citation in citations:
        kept.setdefault((citation.target, citation.line), citation)
        if len(kept) == MOST:
            break
    return tuple(sorted(kept.values(), key=lambda citation: citation.line))


def _fences(content: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _FENCED.finditer(content))
