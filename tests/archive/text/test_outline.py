"""The outline of a Markdown text, compared with a full CommonMark parser."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pointsman.archive.text.outline import Heading, outline, structure

# Every way in which a line can begin, end or seem to begin a block.
LINES = r"""
text|  text|    code|   text|é # x|\# no
# H|## H ##|### |#no|   # indented|    # code|# a #|# a \#|# `c` #|#|####### seven|# C#
```|~~~|````|``` py|~~~~|  ```|  text ```|- ```|> ```
===|---|- - -|***|=|-|--|_ _ _
- item|- # in|  # in item|    # deeper|1. one|2. two|10) ten|* |+ x|  - nested|      - deep|1.  # y
> q|> # q|>|> ===|> - x|- > y
<!--|-->|<!-- x -->|<div>|</div>|<p># x|<b>|<a href='x'>|<script>|</script>|<?php|?>|<!DOCTYPE>|<![CDATA[|]]>
Text <!-- c -->|[a]: /url|[a]: /url 'title'
"""
STARTS = [
    "",
    "\ttab",
    "\t# tab",
    "-\tx",
    "# C #\t",
    *(part for row in LINES.strip().split("\n") for part in row.split("|")),
]
COMMONMARK = MarkdownIt("commonmark")


@settings(max_examples=500, derandomize=True, deadline=None, database=None)
@given(st.lists(st.sampled_from(STARTS), min_size=1, max_size=9))
def test_the_headings_are_those_of_a_commonmark_parser(lines: list[str]) -> None:
    text = "\n".join(["A first line, so that nothing is front matter", *lines])
    assert outline(text) == _by_parser(text)


def test_the_headings_of_our_own_pages_are_those_of_a_commonmark_parser(pages: list[str]) -> None:
    assert len(pages) > 5
    for page in pages:
        assert outline(page) == _by_parser(page)


def test_front_matter_holds_no_headings_and_counts_as_lines() -> None:
    assert outline("---\n# a comment\ntitle: x\n---\n# Real\n") == [Heading(1, "Real", 5)]
    assert outline('+++\n# a comment\ntitle = "x"\n+++\n# Real\n') == [Heading(1, "Real", 5)]


def test_a_rule_at_the_top_is_not_front_matter() -> None:
    assert outline("---\n\n# Real\n\n---\n") == [Heading(1, "Real", 3)]
    assert outline("---\n# Never closed\n") == [Heading(1, "Never closed", 2)]


def test_lines_are_those_that_markdown_counts() -> None:
    assert outline("a\x0cb\u2028c\r\n# One\r\n\r# Two") == [Heading(1, "One", 2), Heading(1, "Two", 4)]


def test_fences_are_told_with_their_lines_also_in_lists_and_when_never_closed() -> None:
    text = "```\ncode\n```\n- item\n  ~~~\n  code\nout\n\n```\nopen"
    assert structure(text.split("\n")).fences == [(1, 3), (5, 6), (9, 10)]


@pytest.mark.parametrize(
    "hostile",
    [
        ">" * 300_000 + "\na" * 100_000,
        "- " * 150_000 + "\n" * 150_000,
        "<a " + "a=b " * 100_000,
        "<a" + " " * 400_000,
        "- " * 200_000 + "x",
        "# " + " #" * 200_000 + " x",
        "[a]: " + "\\" * 400_000,
        "<!--\n" * 80_000,
        "a\n" * 200_000 + "b\n\n# End",
        "\t" * 400_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_hostile_text_is_read_in_one_pass(hostile: str) -> None:
    """Anything but one pass would take hours here."""
    assert len(outline(hostile)) <= 1


def _by_parser(text: str) -> list[Heading]:
    tokens = COMMONMARK.parse(text)
    found = []
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.level == 0:
            assert token.map is not None
            said = " ".join(line.strip(" \t") for line in inline.content.split("\n"))
            found.append(Heading(int(token.tag[1]), said, token.map[0] + 1))
    return found
