"""Extracts the citations of a document: target, confidence, line and the sentence around each."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from pointsman.archive.citations.addresses import resolver_url
from pointsman.archive.citations.markdown import Block, blocks_of
from pointsman.archive.citations.patterns import (
    ARXIV,
    AUTOLINK,
    BARE,
    DOI,
    FOOTNOTE,
    INLINE,
    REFERENCE,
    WIKI,
    Occurrence,
    blank_out,
    find_bare,
    find_by_pattern,
    find_escaped,
)
from pointsman.archive.model.documents import Citation

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
_MOST_MARKDOWN = 1_000_000  # characters; a longer text is searched by pattern

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?:.*\n){0,500}?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(?:(?! {0,3}\1)[^\n]*\n)*(?: {0,3}\1[^\n]*|\Z)", re.M)
_DEFINITION = re.compile(r"^[ ]{0,3}\[\^([^\s\[\]^]{1,100})\]:[ \t]*", re.M)
LONGEST_SENTENCE = 240
_SENTENCE_END = re.compile(
    r"[.!?…\u3002\uff01\uff1f]['\")\]*_]{0,3}(?=\s)"
    r"|\n[ \t]*(?=[\n|]|\[\^)"  # rows of tables and footnotes end with their lines
)


def citations_of(content: str) -> tuple[Citation, ...]:
    """What a Markdown or plain text cites, in the order of its lines."""
    content = content.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", " ")
    if front := _FRONT_MATTER.match(content):
        content = "\n" * front.group().count("\n") + content[front.end() :]
    if len(content) > _MOST_MARKDOWN:
        blocks: Iterable[Block] = (Block(blank_out(content, _fences(content)), 1, by_pattern=True),)
    else:
        blocks = blocks_of(content)
    return _bounded(_citations(blocks))


def _citations(blocks: Iterable[Block]) -> Iterator[Citation]:
    """Footnotes come last: the note of a mark may be defined anywhere."""
    marks: list[tuple[str, Citation]] = []
    notes: dict[str, list[Citation]] = {}
    for block in blocks:
        definitions = [(match.start(), match.group(1).casefold()) for match in _DEFINITION.finditer(block.text)]
        places = [start for start, _ in definitions]
        for found, citation in _citations_in(block):
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
            yield Citation(
                FOOTNOTE, resolver_url(note.kind, note.target), mark.context, CONFIDENCE[FOOTNOTE], mark.line
            )
    for name, cited in notes.items():
        if name not in marked:  # a note without a mark still cites
            for note in cited:
                yield Citation(
                    FOOTNOTE, resolver_url(note.kind, note.target), note.context, CONFIDENCE[FOOTNOTE], note.line
                )


def _citations_in(block: Block) -> Iterator[tuple[Occurrence, Citation]]:
    if block.by_pattern:
        found: Iterable[Occurrence] = find_by_pattern(block.text)
    else:
        found = (*block.links, *find_bare(blank_out(block.text, (*block.taken, *find_escaped(block.text)))))
    breaks = [match.start() for match in re.finditer("\n", block.text)]
    for each in sorted(found, key=lambda each: each.start):
        line = block.line + bisect_right(breaks, each.start)
        yield (
            each,
            Citation(
                each.kind, each.target, sentence_around(block.text, each.start, each.end), CONFIDENCE[each.kind], line
            ),
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


def sentence_around(text: str, start: int, end: int) -> str:
    """The sentence around text[start:end]; of a long one the nearest part."""
    before = text[max(0, start - LONGEST_SENTENCE) : start]
    after = text[end : end + LONGEST_SENTENCE]
    for stop in _SENTENCE_END.finditer(text, max(0, start - LONGEST_SENTENCE), start):
        before = text[stop.end() : start]
    if stop_after := _SENTENCE_END.search(text, end, end + LONGEST_SENTENCE):
        after = text[end : stop_after.end()]
    written = text[start:end]
    room = max(0, LONGEST_SENTENCE - len(written))
    if len(before) + len(after) > room:
        before = _last_words(before, max(room // 2, room - len(after)))
        after = _first_words(after, room - len(before))
    context = " ".join(f"{before}{written}{after}".split())
    return context if len(context) <= LONGEST_SENTENCE else context[: LONGEST_SENTENCE - 1] + "…"


def _last_words(text: str, room: int) -> str:
    return text if len(text) <= room else text[len(text) - room :].partition(" ")[2]


def _first_words(text: str, room: int) -> str:
    return text if len(text) <= room else text[:room].rpartition(" ")[0]
