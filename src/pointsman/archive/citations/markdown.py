"""The links of Markdown, read as CommonMark reads them: code holds none, and each has its exact place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, reference
from markdown_it.rules_inline import StateInline, autolink, backtick, html_inline, image, link
from markdown_it.token import Token

from pointsman.archive.citations.shapes import (
    AUTOLINK,
    FOOTNOTE,
    FOOTNOTE_MARK,
    INLINE,
    REFERENCE,
    WIKI,
    WIKI_LINK,
    Found,
    anchors,
    followed,
    wiki_title,
)

_MOST_BRACKETS = 2_000  # in one paragraph; more is not prose, and Markdown tries each against each
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
    links: list[Found] = field(default_factory=list)  # footnote marks too: their target is the footnote's name
    taken: list[tuple[int, int]] = field(default_factory=list)  # code, tags, images and links: nothing else is in them
    wild: bool = False  # not read as Markdown, to be searched by shape


def blocks_of(content: str) -> Iterator[Block]:
    """Those parts of a Markdown text that may refer to something."""
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
        block.wild = True
        return block
    env["block"] = block
    _PARSER.inline.parse(text, _PARSER, env, [])
    return block


def _html(text: str, line: int) -> Block:
    block = Block(text, line)
    unseen = [match.span() for match in _UNSEEN_HTML.finditer(text)]
    block.links = [found for found in anchors(text) if not any(a <= found.start < b for a, b in unseen)]
    block.taken = unseen + [match.span() for match in _TAG.finditer(text)]
    return block


def _link(state: StateInline, silent: bool) -> bool:
    start, known = state.pos, len(state.tokens)
    if not link(state, silent):
        return False
    block = _block(state, silent)
    if block is not None:
        opened = next(token for token in state.tokens[known:] if token.type == "link_open")
        target = str(opened.attrGet("href") or "")
        kind = INLINE if state.src[state.pos - 1] == ")" else REFERENCE
        _keep(block, Found(kind, target, start, state.pos))
    return True


def _autolink(state: StateInline, silent: bool) -> bool:
    start = state.pos
    if not autolink(state, silent):
        return False
    block = _block(state, silent)
    if block is not None:
        written = state.src[start + 1 : state.pos - 1]
        target = written if ":" in written else f"mailto:{written}"
        _keep(block, Found(AUTOLINK, target, start, state.pos))
    return True


def _html_inline(state: StateInline, silent: bool) -> bool:
    start = state.pos
    if not html_inline(state, silent):
        return False
    block = _block(state, silent)
    if block is not None:
        block.links += (
            Found(found.kind, found.target, start, state.pos) for found in anchors(state.src[start : state.pos])
        )
        block.taken.append((start, state.pos))
    return True


def _unseen(rule: InlineRule) -> InlineRule:
    """A rule whose text holds no references: code, images."""

    def seen(state: StateInline, silent: bool) -> bool:
        start = state.pos
        if not rule(state, silent):
            return False
        block = _block(state, silent)
        if block is not None:
            block.taken.append((start, state.pos))
        return True

    return seen


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
            _keep(block, Found(kind, target(match), *match.span()))
    state.pos = match.end()
    return True


def _keep(block: Block, found: Found) -> None:
    block.taken.append((found.start, found.end))
    if followed(found.target):
        block.links.append(found)


def _block(state: StateInline, silent: bool) -> Block | None:
    """Where to note what was found; nowhere while Markdown only looks ahead, or reads the label of an image."""
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
    inline.at("backticks", _unseen(backtick))
    inline.at("image", _unseen(image))
    inline.at("link", _link)
    inline.at("autolink", _autolink)
    inline.at("html_inline", _html_inline)
    inline.before("link", "wiki", _wiki)
    inline.before("wiki", "footnote", _footnote)
    return parser


_PARSER = _parser()
