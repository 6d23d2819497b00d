"""Finds the links of a Markdown text with a CommonMark parser: none in code, and each with its exact position."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, reference
from markdown_it.rules_inline import StateInline, autolink, backtick, html_inline, image, link
from markdown_it.token import Token

from pointsman.archive.citations.patterns import (
    AUTOLINK,
    FOOTNOTE,
    FOOTNOTE_MARK,
    INLINE,
    REFERENCE,
    WIKI,
    WIKI_LINK,
    Occurrence,
    find_anchors,
    is_followed,
    wiki_title,
)

_MOST_BRACKETS = 2_000  # in one paragraph; with more, the parser's time grows with their square
_LONGEST_PARAGRAPH = 200_000
_SIGNS = re.compile(r"[\[<]|://|\b10\.\d|arxiv|www\.", re.I)
_UNSEEN_HTML = re.compile(r"<!--.*?(?:-->|\Z)|<(pre|code|script|style|textarea)\b.*?(?:</\1\s*>|\Z)", re.I | re.S)
_TAG = re.compile(r"</?[a-z][^<>]{0,2000}>", re.I)

InlineRule = Callable[[StateInline, bool], bool]


@dataclass(slots=True)
class Block:
    """A paragraph, heading or piece of HTML as it is written, with the links found in it."""

    text: str
    line: int  # its first, from 1
    links: list[Occurrence] = field(default_factory=list)  # footnote marks too: their target is the footnote's name
    taken: list[tuple[int, int]] = field(default_factory=list)  # spans of code, tags, images and links
    by_pattern: bool = False  # not parsed as Markdown: to be searched by pattern


def blocks_of(content: str) -> Iterator[Block]:
    """The parts of a Markdown text that may contain references."""
    env: dict[str, Any] = {}
    tokens: list[Token] = []
    _PARSER.block.parse(content, _PARSER, env, tokens)
    for token in tokens:
        if token.map is None or not _SIGNS.search(token.content):
            continue
        if token.type == "inline":
            yield _paragraph(token.content, token.map[0] + 1, env)
        elif token.type == "html_block":
            yield _html(token.content, token.map[0] + 1)


def _paragraph(text: str, line: int, env: dict[str, Any]) -> Block:
    block = Block(text, line)
    if len(text) > _LONGEST_PARAGRAPH or text.count("[") > _MOST_BRACKETS or text.count("<") > _MOST_BRACKETS:
        block.by_pattern = True
        return block
    env["block"] = block
    _PARSER.inline.parse(text, _PARSER, env, [])
    return block


def _html(text: str, line: int) -> Block:
    block = Block(text, line)
    unseen = [match.span() for match in _UNSEEN_HTML.finditer(text)]
    block.links = [found for found in find_anchors(text) if not any(a <= found.start < b for a, b in unseen)]
    block.taken = unseen + [match.span() for match in _TAG.finditer(text)]
    return block


Recorder = Callable[[Block, StateInline, int, Sequence[Token]], None]
"""Called after a rule, with the start of what it consumed (to the state's position) and the tokens it made."""


def _recording(rule: InlineRule, record: Recorder) -> InlineRule:
    """A rule of the parser that also records the text it consumed."""

    def recording(state: StateInline, silent: bool) -> bool:
        start, known = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        block = _block(state, silent)
        if block is not None:
            record(block, state, start, state.tokens[known:])
        return True

    return recording


def _record_link(block: Block, state: StateInline, start: int, tokens: Sequence[Token]) -> None:
    opened = next(token for token in tokens if token.type == "link_open")
    kind = INLINE if state.src[state.pos - 1] == ")" else REFERENCE
    _keep(block, Occurrence(kind, str(opened.attrGet("href") or ""), start, state.pos))


def _record_autolink(block: Block, state: StateInline, start: int, _: Sequence[Token]) -> None:
    written = state.src[start + 1 : state.pos - 1]
    target = written if ":" in written else f"mailto:{written}"
    _keep(block, Occurrence(AUTOLINK, target, start, state.pos))


def _record_html(block: Block, state: StateInline, start: int, _: Sequence[Token]) -> None:
    anchors = find_anchors(state.src[start : state.pos])
    block.links += (Occurrence(each.kind, each.target, start, state.pos) for each in anchors)
    block.taken.append((start, state.pos))


def _record_span(block: Block, state: StateInline, start: int, _: Sequence[Token]) -> None:
    """Code and images: no references are searched in them."""
    block.taken.append((start, state.pos))


def _wiki(state: StateInline, silent: bool) -> bool:
    """`[[Page|label]]`, and `![[Page]]`, which shows the page in place and is no reference."""
    return state.src.startswith("[[", state.pos) and _mark(state, silent, WIKI_LINK, WIKI, wiki_title)


def _footnote(state: StateInline, silent: bool) -> bool:
    return state.src.startswith("[^", state.pos) and _mark(state, silent, FOOTNOTE_MARK, FOOTNOTE, _name)


def _name(match: re.Match[str]) -> str:
    return match.group(1).casefold()


def _mark(
    state: StateInline, silent: bool, pattern: re.Pattern[str], kind: str, target: Callable[[re.Match[str]], str]
) -> bool:
    match = pattern.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    block = _block(state, silent)
    if block is not None:
        if state.src[max(0, state.pos - 1) : state.pos] == "!":
            block.taken.append(match.span())
        else:
            _keep(block, Occurrence(kind, target(match), *match.span()))
    state.pos = match.end()
    return True


def _keep(block: Block, found: Occurrence) -> None:
    block.taken.append((found.start, found.end))
    if is_followed(found.target):
        block.links.append(found)


def _block(state: StateInline, silent: bool) -> Block | None:
    """Where to record; None while the parser only looks ahead, or parses the label of an image."""
    block: Block = state.env["block"]
    return None if silent or state.src is not block.text else block


def _reference(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """`[^1]: https://…` is a footnote, though CommonMark would take it for the definition of a link."""
    if state.src.startswith("[^", state.bMarks[first] + state.tShift[first]):
        return False
    return reference(state, first, last, silent)


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark")
    parser.block.ruler.at("reference", _reference)
    inline = parser.inline.ruler
    inline.at("backticks", _recording(backtick, _record_span))
    inline.at("image", _recording(image, _record_span))
    inline.at("link", _recording(link, _record_link))
    inline.at("autolink", _recording(autolink, _record_autolink))
    inline.at("html_inline", _recording(html_inline, _record_html))
    inline.before("link", "wiki", _wiki)
    inline.before("wiki", "footnote", _footnote)
    return parser


_PARSER = _parser()
