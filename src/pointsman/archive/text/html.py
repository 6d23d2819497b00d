"""Converts HTML to Markdown: the visible text with headings, lists, links and code. Nothing is executed or fetched."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pointsman.archive.text.html_tokens import attributes, tokens

_INVISIBLE = frozenset({"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas", "head"})
_BLOCKS = frozenset(
    {"p", "div", "section", "article", "main", "aside", "header", "footer", "nav", "figure", "figcaption", "details"}
    | {"ul", "ol", "dl", "dt", "dd", "table", "tr", "form", "fieldset", "address", "summary", "blockquote", "body"}
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_SPACE = re.compile(r"\s+")
_MANY_LINES = re.compile(r"\n{3,}")
_SPACES = re.compile(r"[^\S\n]+")
_SPECIAL = re.compile(r"(\\(?=[!-/:-@\[-`{-~])|`|<(?=[a-zA-Z/!?])|\](?=\())")  # would be read as Markdown
_BLOCK_START = re.compile(r"^(\d{0,9})(#{1,6}(?=\s|$)|[-+*](?=\s|$)|>|=+$|-+$|~{3,}|[.)](?=\s|$))")
_SCHEMES = ("http:", "https:", "mailto:", "ftp:")


@dataclass(frozen=True, slots=True)
class HtmlPage:
    title: str | None
    url: str | None  # canonical
    date: str | None  # as written in the page
    markdown: str


def read_html(text: str) -> HtmlPage:
    reader = _Reader()
    for token in tokens(text):
        if token.kind == "text":
            reader.text(token.value)
        elif token.kind == "start":
            reader.start(token.value, token.inside)
        else:
            reader.end(token.value)
    return HtmlPage(reader.title(), reader.url, reader.date, reader.markdown())


class _Reader:
    def __init__(self) -> None:
        self.url: str | None = None
        self.date: str | None = None
        self._title: list[str] = []
        self._in_title = False
        self._hidden = ""  # the element whose content is not shown
        self._depth = 0  # how often it is nested in itself
        self._blocks: list[str] = []  # finished ones
        self._inline: list[str] = []  # of the current block
        self._mark = ""  # what the block begins with: "## ", "- "
        self._lists: list[int | None] = []  # the last number of an ordered one
        self._code: list[str] | None = None  # the text of a <pre>
        self._in_code = False  # a <code> in a line
        self._link: tuple[str, int] | None = None  # its address, and where in `_inline` its text begins

    def title(self) -> str | None:
        return _SPACE.sub(" ", "".join(self._title)).strip() or None

    def markdown(self) -> str:
        self._end_code()
        self._end_block()
        return _MANY_LINES.sub("\n\n", "\n".join(self._blocks)).strip("\n") + "\n"

    def start(self, tag: str, inside: str) -> None:
        if tag in ("link", "meta"):
            self._read_metadata(tag, attributes(inside))
        elif tag == "title" and not self._title:
            self._in_title = True
        elif tag == "body" and self._hidden == "head":
            self._hidden, self._depth = "", 0  # it was never closed
        elif tag in _INVISIBLE and self._hidden in ("", tag):
            self._hidden, self._depth = tag, self._depth + 1
        if not self._hidden:
            self._begin(tag, inside)

    def end(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag == self._hidden:
            self._depth -= 1
            self._hidden = tag if self._depth else ""
        elif not self._hidden:
            self._end(tag)

    def text(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif self._hidden:
            return
        elif self._code is not None:
            self._code.append(data)
        elif self._in_code:
            self._inline.append(_SPACE.sub(" ", data).replace("`", "'"))
        else:
            self._inline.append(_SPECIAL.sub(r"\\\1", _SPACE.sub(" ", data)))

    def _read_metadata(self, tag: str, values: dict[str, str]) -> None:
        if tag == "link" and "canonical" in values.get("rel", "").lower().split():
            self.url = _web_address(values.get("href")) or self.url
        name = (values.get("property") or values.get("name") or "").lower()
        if name == "og:url":
            self.url = self.url or _web_address(values.get("content"))
        if name in ("article:published_time", "date", "dc.date", "dcterms.created"):
            self.date = self.date or values.get("content")

    def _begin(self, tag: str, inside: str) -> None:
        if self._code is not None:
            return
        if tag in ("a", "br", "code", "img", "td", "th"):
            self._begin_inline(tag, inside)
        elif tag == "li":
            self._begin_item()
        elif tag in _HEADINGS:
            self._new_block(f"{_HEADINGS[tag]} ")
        elif tag in ("ul", "ol"):
            self._new_block("")
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "pre":
            self._new_block("")
            self._code = []
        elif tag == "hr" or tag in _BLOCKS:
            self._new_block("")

    def _begin_inline(self, tag: str, inside: str) -> None:
        if tag == "a":
            self._end_link()
            self._link = (attributes(inside).get("href", ""), len(self._inline))
        elif tag == "img":
            self.text(attributes(inside).get("alt", ""))
        elif tag == "code":
            if not self._in_code:
                self._switch_code()
        else:
            self._inline.append("\n" if tag == "br" else " ")

    def _end(self, tag: str) -> None:
        if tag == "pre":
            self._end_code()
        elif self._code is not None:
            return
        elif tag == "code" and self._in_code:
            self._switch_code()
        elif tag == "a":
            self._end_link()
        elif tag in ("ul", "ol"):
            self._new_block("")
            if self._lists:
                self._lists.pop()
        elif tag in _HEADINGS or tag == "li" or tag in _BLOCKS:
            self._new_block("")

    def _switch_code(self) -> None:
        self._in_code = not self._in_code
        self._inline.append("`")

    def _begin_item(self) -> None:
        """Nested lists are indented by two, at most eight times."""
        indent = "  " * min(max(len(self._lists) - 1, 0), 8)
        number = self._lists[-1] if self._lists else None
        if number is not None:
            self._lists[-1] = number + 1
        self._new_block(f"{indent}{f'{number + 1}.' if number is not None else '-'} ")

    def _new_block(self, mark: str) -> None:
        self._end_block()
        self._mark = mark

    def _end_block(self) -> None:
        self._end_link()
        if self._in_code:
            self._switch_code()
        lines = (line.strip() for line in _SPACES.sub(" ", "".join(self._inline)).split("\n"))
        text = "\n".join(line for line in lines if line)
        if text:
            self._blocks.append(_block(self._mark, text))
        self._inline.clear()
        self._mark = ""

    def _end_code(self) -> None:
        if self._code is None:
            return
        code = "".join(self._code).strip("\n")
        self._code = None
        if code.strip():
            fence = "`" * max(3, max((len(run) + 1 for run in re.findall(r"`+", code)), default=0))
            self._blocks.append(f"\n{fence}\n{code}\n{fence}\n")

    def _end_link(self) -> None:
        if self._link is None:
            return
        address, start = self._link
        self._link = None
        text = "".join(self._inline[start:])
        address = address.strip().replace(" ", "%20")
        if not text.strip() or not address or address.startswith("#") or not _is_followed(address):
            return
        lead, trail = " " * (text[0] == " "), " " * (text[-1] == " ")
        if set("()<>") & set(address):
            address = f"<{address}>"
        self._inline[start:] = [f"{lead}[{text.strip()}]({address}){trail}"]


def _block(mark: str, text: str) -> str:
    """Items of a list are adjacent; other blocks are separated by blank lines."""
    if mark.lstrip().startswith(("-", *"0123456789")):
        return mark + text
    if mark:
        return f"\n{mark}{' '.join(text.split())}\n"
    return "\n" + "\n".join(_BLOCK_START.sub(r"\1\\\2", line) for line in text.split("\n")) + "\n"


def _is_followed(address: str) -> bool:
    scheme, colon, _ = address.partition(":")
    return not colon or not scheme.isalnum() or address.lower().startswith(_SCHEMES)


def _web_address(address: str | None) -> str | None:
    return address if address and address.lower().startswith(("http:", "https:")) else None
