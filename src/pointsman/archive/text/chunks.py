"""Splits a document into passages: at headings first, then between blocks, inside a block only if it is too long."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pointsman.archive.model.documents import Chunk
from pointsman.archive.text.lines import front_matter_end, lines_of
from pointsman.archive.text.outline import Heading, structure

MAX_CHARS = 1_400  # measured: 500 ranks worse, by words and by vectors; 1,000 to 2,000 differ little

_WORD_END = re.compile(r"\s(?=\S*\Z)")
_SENTENCE_END = re.compile(r"[.!?。！？]\s(?=[^.!?]*\Z)")  # noqa: RUF001 - full stops of Chinese and Japanese


def chunks_of(content: str, title: str) -> tuple[Chunk, ...]:
    """Passages of at most MAX_CHARS characters, in order; together they cover all but front matter and blank lines.

    A heading without text of its own joins the next section. A document without text gets its title as a passage.
    """
    lines = lines_of(content)
    found = structure(lines)
    fenced = _fence_ends(found.fences)
    chunks: list[Chunk] = []
    for section in _sections(lines, found.headings):
        for passage in _passages(lines, section, fenced):
            chunk = _chunk(lines, passage, section.heading)
            chunks.extend(_cut(chunk) if len(chunk.text) > MAX_CHARS else [chunk] if chunk.text else [])
    return tuple(chunks) or ((Chunk(title, None, 1, 1),) if title else ())


@dataclass(frozen=True, slots=True)
class _Span:
    """Lines counted from 0, the last one not included."""

    first: int
    end: int
    heading: str | None = None


def _sections(lines: Sequence[str], headings: Sequence[Heading]) -> Iterator[_Span]:
    first, heading = front_matter_end(lines), None
    for following in headings:
        end = following.line - 1
        if _has_text(lines, first, end, heading):
            yield _Span(first, end, heading.text if heading else None)
            first = end
        heading = following
    if first < len(lines):
        yield _Span(first, len(lines), heading.text if heading else None)


def _has_text(lines: Sequence[str], first: int, end: int, heading: Heading | None) -> bool:
    """Whether there is more than headings."""
    if heading is not None:
        underlined = not lines[heading.line - 1].lstrip(" ").startswith("#")
        first = heading.line + underlined
    return any(line and not line.isspace() for line in lines[first:end])


def _passages(lines: Sequence[str], section: _Span, fenced: dict[int, int]) -> Iterator[_Span]:
    """The blocks of a section combined into passages of about equal size."""
    size = _size(lines, section.first, section.end)
    if size <= MAX_CHARS:
        yield section
        return
    target = size / -(-size // MAX_CHARS)
    first, chars = section.first, 0
    for block in _blocks(lines, section, fenced):
        more = _size(lines, block.first, block.end)
        if chars and (chars >= target or chars + more > MAX_CHARS):
            yield _Span(first, block.first)
            first, chars = block.first, 0
        chars += more
    yield _Span(first, section.end)


def _blocks(lines: Sequence[str], section: _Span, fenced: dict[int, int]) -> Iterator[_Span]:
    """Paragraphs between blank lines; whole code fences; the single lines of a block that is too long."""
    first = at = section.first
    while at < section.end:
        if at in fenced:
            at = fenced[at]
        elif lines[at].strip():
            at += 1
        else:
            at += 1
            if at < section.end and not lines[at].strip():
                continue
            yield from _bounded(lines, first, at)
            first = at
    if first < section.end:
        yield from _bounded(lines, first, section.end)


def _bounded(lines: Sequence[str], first: int, end: int) -> Iterator[_Span]:
    if _size(lines, first, end) <= MAX_CHARS:
        yield _Span(first, end)
        return
    for line in range(first, end):
        yield _Span(line, line + 1)


def _size(lines: Sequence[str], first: int, end: int) -> int:
    return sum(map(len, lines[first:end])) + end - first


def _chunk(lines: Sequence[str], passage: _Span, heading: str | None) -> Chunk:
    first, end = passage.first, passage.end
    while first < end and not lines[first].strip():
        first += 1
    while end > first and not lines[end - 1].strip():
        end -= 1
    return Chunk("\n".join(lines[first:end]), heading, first + 1, end)


def _cut(chunk: Chunk) -> Iterator[Chunk]:
    """Split a line that is too long: after a sentence, else between words, else anywhere."""
    text, at = chunk.text, 0
    while at < len(text):
        window = text[at : at + MAX_CHARS]
        if at + MAX_CHARS < len(text):
            end = _SENTENCE_END.search(window, MAX_CHARS // 2) or _WORD_END.search(window, MAX_CHARS // 2)
            window = window[: end.end()] if end else window
        at += len(window)
        if window.strip():
            yield Chunk(window.strip(), chunk.heading, chunk.start_line, chunk.end_line)


def _fence_ends(fences: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The line after each fence, by its first line, both counted from 0."""
    return {first - 1: last for first, last in fences}
