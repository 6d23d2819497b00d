"""Finds the headings of a Markdown text line by line, by the rules of CommonMark 0.31, in one pass."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pointsman.archive.text.lines import front_matter_end, lines_of

_QUOTE = re.compile(r" {0,3}> ?")
_HEADING = re.compile(r"(#{1,6})(?: |$)")
_CLOSING_HASHES = re.compile(r"(?:^|[ \t])#+[ \t]*$")
_FENCE = re.compile(r"(?:(`{3,}+)[^`]*|(~{3,}+).*)$")
_UNDERLINE = re.compile(r"(?:=++|-++) *+$")
_RULE = re.compile(r"([-*_])(?: *+\1){2,}+ *+$")
_ITEM = re.compile(r"(?:[-+*]|(\d{1,9})[.)])(?= |$)")
_DEFINITION = re.compile(
    r" {0,3}\[(?:[^\[\]\\]|\\.)++\]:[ \t]*+\S++(?:[ \t]++(?:\"[^\"]*+\"|'[^']*+'|\([^()]*+\)))?[ \t]*+$"
)

_RAW_TAGS = "script|pre|style|textarea"
_BLOCK_TAGS = (
    "address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|"
    "fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|"
    "menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead|title|tr|"
    "track|ul"
)
_ATTRIBUTE = r"""(?>[ \t]++[a-zA-Z_:][\w.:-]*+(?>[ \t]*+=[ \t]*+(?>[^\s"'=<>`]++|'[^']*+'|"[^"]*+"))?)"""

_HTML: tuple[tuple[re.Pattern[str], re.Pattern[str] | None], ...] = tuple(
    (re.compile(opening, re.IGNORECASE | re.ASCII), ending)
    for opening, ending in (
        (rf"<(?:{_RAW_TAGS})(?=[ \t>]|$)", re.compile(rf"</(?:{_RAW_TAGS})>", re.IGNORECASE)),
        (r"<!--", re.compile("-->")),
        (r"<\?", re.compile(r"\?>")),
        (r"<![a-z]", re.compile(">")),
        (r"<!\[CDATA\[", re.compile(r"\]\]>")),
        (rf"</?(?:{_BLOCK_TAGS})(?=[ \t]|/?>|$)", None),
        (rf"(?:<[a-z][a-z0-9-]*+{_ATTRIBUTE}*+[ \t]*+/?>|</[a-z][a-z0-9-]*+[ \t]*+>)[ \t]*+$", None),
    )
)
"""What opens a block of HTML, and what ends it; None: a blank line. The last kind cannot interrupt a paragraph."""

MAX_DEPTH = 20  # of nested quotes and lists; deeper ones are read as text
_IN_QUOTE = -1


@dataclass(frozen=True, slots=True)
class Heading:
    level: int  # 1 to 6
    text: str  # as written, without the hashes
    line: int  # counted from 1; of a heading with an underline, the line of its text


@dataclass(frozen=True, slots=True)
class Structure:
    """`fences` are the first and last lines of fenced code blocks."""

    headings: list[Heading]
    fences: list[tuple[int, int]]


def outline(markdown: str) -> list[Heading]:
    """The headings outside of quotes, lists, code, HTML, comments and front matter."""
    return structure(lines_of(markdown)).headings


def structure(lines: list[str]) -> Structure:
    scanner = _Scanner(lines)
    for number in range(front_matter_end(lines), len(lines)):
        scanner.read(number)
    scanner.end_fence(len(lines))
    return Structure(scanner.headings, scanner.fences)


@dataclass(slots=True)
class _Scanner:
    """The open containers (quotes, list items), and the block that is open in the innermost."""

    lines: list[str]
    headings: list[Heading] = field(default_factory=list)
    fences: list[tuple[int, int]] = field(default_factory=list)
    inside: list[int] = field(default_factory=list)  # _IN_QUOTE, or how far an item's lines are indented
    fence: str = ""  # its opening marker
    fence_line: int = 0
    html: bool = False
    html_end: re.Pattern[str] | None = None  # None: a blank line
    paragraph: int | None = None  # where it began
    empty_item: bool = False  # the innermost item is still empty: a blank line closes it

    def read(self, number: int) -> None:
        line = self.lines[number]
        if not self.inside and not self.fence and not self.html and line[:1].isalpha():
            if self.paragraph is None:  # by far the commonest kind of line
                self.paragraph = number
            return
        if "\t" in line:
            line = line.expandtabs(4)
        at, matched = self._follow(line)
        still_inside = matched == len(self.inside)
        if still_inside and self._goes_on(line, at, number):
            return
        if not line[at:].strip(" "):
            self._blank(matched, number)
            return
        self._begin(line, at, matched, number)

    def _follow(self, line: str) -> tuple[int, int]:
        """Where the content starts after the markers of open containers, and how many of them the line continues."""
        at = 0
        for count, kind in enumerate(self.inside):
            if kind == _IN_QUOTE:
                mark = _QUOTE.match(line, at)
                if not mark:
                    return at, count
                at = mark.end()
            elif len(line) - at >= kind and not line[at : at + kind].strip(" "):
                at += kind
            elif line[at:].strip(" "):
                return at, count
        return at, len(self.inside)

    def _goes_on(self, line: str, at: int, number: int) -> bool:
        """Whether the line belongs to the open fence or HTML block."""
        if self.fence:
            rest = line[at:]
            mark = rest.strip(" ")
            if mark.startswith(self.fence) and not mark.strip(self.fence[0]) and len(rest) - len(rest.lstrip(" ")) < 4:
                self.end_fence(number + 1)
            return True
        if self.html and self.html_end is not None:
            self.html = not self.html_end.search(line, at)
            return True
        self.html = self.html and bool(line[at:].strip(" "))
        return self.html

    def _blank(self, matched: int, number: int) -> None:
        if matched < len(self.inside):
            self._leave(matched, number)
        elif self.empty_item and self.inside and self.inside[-1] != _IN_QUOTE:
            self._leave(matched - 1, number)
        self.paragraph = None
        self.empty_item = False

    def _leave(self, matched: int, number: int) -> None:
        """Close the containers after the first `matched`, and the block that is open in them."""
        if matched < len(self.inside):
            del self.inside[matched:]
            self.end_fence(number)
            self.html = False
            self.paragraph = None
        self.empty_item = False

    def end_fence(self, last_line: int) -> None:
        if self.fence:
            self.fences.append((self.fence_line, last_line))
            self.fence = ""

    def _begin(self, line: str, at: int, matched: int, number: int) -> None:
        """Open the containers that the line begins, then the block in them."""
        while True:
            indent = len(line) - at - len(line[at:].lstrip(" "))
            start = at + indent
            if indent >= 4:
                self._indented(matched, number)
                return
            if self._block(line, start, matched, number):
                return
            content = self._container(line, at, start, matched, number)
            if content is None:
                break
            at, matched = content, len(self.inside)
            if not line[at:].strip(" "):
                return
        if self.paragraph is None:
            self._leave(matched, number)
            if not _DEFINITION.match(line, at):  # a link definition is not part of a paragraph
                self.paragraph = number
        self.empty_item = False

    def _indented(self, matched: int, number: int) -> None:
        if self.paragraph is None:  # code; otherwise the paragraph continues
            self._leave(matched, number)
        self.empty_item = False

    def _container(self, line: str, at: int, start: int, matched: int, number: int) -> int | None:
        """Open a quote or a list item; where its content begins, or None if there is none."""
        if matched >= MAX_DEPTH:
            return None
        if line[start] == ">":
            self._leave(matched, number)
            self.paragraph = None
            self.inside.append(_IN_QUOTE)
            return start + (2 if line[start + 1 : start + 2] == " " else 1)
        item = _ITEM.match(line, start)
        if not item:
            return None
        after = line[item.end() :].lstrip(" ")
        interrupts = self.paragraph is not None and matched == len(self.inside)
        if interrupts and (not after or item[1] not in (None, "1")):
            return None
        spaces = len(line) - item.end() - len(after)
        if not after or spaces > 4:
            spaces = 1
        self._leave(matched, number)
        self.paragraph = None
        self.inside.append(item.end() + spaces - at)
        self.empty_item = not after
        return item.end() + spaces

    def _block(self, line: str, start: int, matched: int, number: int) -> bool:
        """Open a heading, thematic break, fence or HTML block; False if the line begins none."""
        first = line[start]
        if first == "#" and (mark := _HEADING.match(line, start)):
            self._close(matched, number)
            self._heading(len(mark[1]), _without_hashes(self.lines[number]), number)
            return True
        if (
            first in "=-"
            and self.paragraph is not None
            and matched == len(self.inside)
            and _UNDERLINE.match(line, start)
        ):
            self._underlined(1 if first == "=" else 2, number)
            return True
        if first in "-*_" and _RULE.match(line, start):
            self._close(matched, number)
            return True
        if first in "`~" and (mark := _FENCE.match(line, start)):
            self._close(matched, number)
            self.fence, self.fence_line = mark[1] or mark[2], number + 1
            return True
        return first == "<" and self._html(line, start, matched, number)

    def _close(self, matched: int, number: int) -> None:
        self._leave(matched, number)
        self.paragraph = None

    def _html(self, line: str, start: int, matched: int, number: int) -> bool:
        for opening, ending in _HTML if self.paragraph is None else _HTML[:-1]:
            if opening.match(line, start):
                self._close(matched, number)
                self.html, self.html_end = not (ending and ending.search(line, start)), ending
                return True
        return False

    def _underlined(self, level: int, number: int) -> None:
        first, self.paragraph = self.paragraph, None
        assert first is not None
        if not self.inside:
            text = " ".join(line.strip(" \t") for line in self.lines[first:number])
            self._heading(level, text, first)

    def _heading(self, level: int, text: str, number: int) -> None:
        if not self.inside:
            self.headings.append(Heading(level, text, number + 1))


def _without_hashes(line: str) -> str:
    return _CLOSING_HASHES.sub("", line.strip(" \t").lstrip("#")).strip(" \t")
