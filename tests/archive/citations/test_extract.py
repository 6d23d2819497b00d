"""Citations in a text: kind, target, line and sentence."""

from __future__ import annotations

import pytest

from pointsman.archive.citations.extract import MOST, citations_of


def found(content: str) -> list[tuple[str, str, float]]:
    return [(citation.kind, citation.target, citation.confidence) for citation in citations_of(content)]


@pytest.mark.parametrize(
    ("content", "kind", "target", "confidence"),
    [
        ("See [this](https://example.com/a).", "inline", "https://example.com/a", 1.0),
        ("See [this](../b.md#part 'Title').", "inline", "../b.md#part", 1.0),
        ("See [this][r].\n\n[r]: https://example.com/r", "reference", "https://example.com/r", 1.0),
        ("See [this].\n\n[this]: c.md", "reference", "c.md", 1.0),
        ("See <https://example.com/auto>.", "autolink", "https://example.com/auto", 0.95),
        ("See [[Some Page]].", "wiki", "Some Page", 0.95),
        ("See [[Some Page#Part|words]].", "wiki", "Some Page", 0.95),
        ("See doi:10.1000/AbC.1.", "doi", "10.1000/abc.1", 0.9),
        ("See 10.1000/xyz(3), please.", "doi", "10.1000/xyz(3)", 0.9),
        ("See https://doi.org/10.1000/182.", "doi", "10.1000/182", 0.9),
        ("See arXiv:2210.11934v2.", "arxiv", "2210.11934", 0.9),
        ("See arXiv hep-th/9901001.", "arxiv", "hep-th/9901001", 0.9),
        ("See https://arxiv.org/pdf/1706.03762.", "arxiv", "1706.03762", 0.9),
        ("Said before[^1].\n\n[^1]: https://example.com/f", "footnote", "https://example.com/f", 0.85),
        ("Said before[^n].\n\n[^n]: A. Author, [Work](w.md), 1999.", "footnote", "w.md", 0.85),
        ("Said before[^d].\n\n[^d]: doi:10.1000/1", "footnote", "https://doi.org/10.1000/1", 0.85),
        ("See https://example.com/wiki/Tree_(graph).", "bare", "https://example.com/wiki/Tree_(graph)", 0.8),
        ("(see https://example.com/a?b=1&amp;c=2)", "bare", "https://example.com/a?b=1&c=2", 0.8),
        ("See www.example.com/a!", "bare", "https://www.example.com/a", 0.8),
        ('<p>\n<a href="https://example.com/h">h</a>\n</p>', "inline", "https://example.com/h", 1.0),
        ('Some <a href="x.html">words</a>.', "inline", "x.html", 1.0),
        ("[![Badge](badge.svg)](https://example.com/b)", "inline", "https://example.com/b", 1.0),
        ("| a | b |\n|---|---|\n| https://example.com/t| c |", "bare", "https://example.com/t", 0.8),
    ],
)
def test_each_kind_is_read_once_with_its_confidence(content: str, kind: str, target: str, confidence: float) -> None:
    assert found(content) == [(kind, target, confidence)]


@pytest.mark.parametrize(
    "content",
    [
        "`[a](b.md) https://example.com`",
        "```\n[a](b.md) https://example.com [[Page]] doi:10.1000/1\n```",
        "    [a](b.md) https://example.com",
        "![picture](a.png)",
        "![[Embedded page]]",
        r"\[not a link](https://example.com)",
        r"[not a link\](https://example.com)",
        "<!-- https://example.com/comment -->",
        "<script>\nfetch('https://example.com')\n</script>",
        "[up](#top) [write](mailto:a@example.com) <a@example.com> [run](javascript:alert)",
        "[[#Part of this page]]",
        "[unused]: https://example.com",
        "---\nurl: https://example.com/front\n---\nText.",
        "Version 10.1234 of arXiv, http:// and www. are no references",
        "",
    ],
)
def test_code_images_escapes_and_places_on_the_same_page_are_no_citations(content: str) -> None:
    assert found(content) == []


def test_the_line_is_that_of_the_link_and_not_of_its_paragraph() -> None:
    content = (
        "---\ntitle: T\n---\n# H\n\nfirst\nsecond `a\nb` [x](x.md)\n\n> quoted\n> https://example.com\n\n- a\n  [[P]]\n"
    )
    assert [(c.line, c.target) for c in citations_of(content)] == [(8, "x.md"), (11, "https://example.com"), (14, "P")]


def test_the_context_is_the_sentence_as_written() -> None:
    content = "Before. For more on ML algorithms, see [this resource](https://example.com/ml)\nand others! After."
    (citation,) = citations_of(content)
    assert citation.context == "For more on ML algorithms, see [this resource](https://example.com/ml) and others!"


def test_a_long_sentence_gives_the_words_next_to_the_link() -> None:
    (citation,) = citations_of(f"{'early ' * 200}[link](a.md) {'late ' * 200}")
    assert "early [link](a.md) late" in citation.context
    assert len(citation.context) <= 240


def test_a_footnote_is_cited_where_its_mark_stands() -> None:
    content = "First[^a].\n\nSecond[^a].\n\n[^a]: See https://example.com/note\n[^b]: Unmarked https://example.com/b"
    assert [(c.line, c.kind, c.target, c.context) for c in citations_of(content)] == [
        (1, "footnote", "https://example.com/note", "First[^a]."),
        (3, "footnote", "https://example.com/note", "Second[^a]."),
        (6, "footnote", "https://example.com/b", "[^b]: Unmarked https://example.com/b"),
    ]


@pytest.mark.parametrize("piece", ["[", "](", "[a](", "<", "<a href=", "![", "[[a", "> ", "- ", "`a", "*a ", "```\n"])
def test_hostile_texts_end(piece: str) -> None:
    assert citations_of(piece * (300_000 // len(piece))) == ()


def test_a_text_too_large_for_markdown_is_searched_by_shape() -> None:
    links = "[a](a.md) <https://example.com/b> [[C]] ![p](p.png) \\[no](https://example.com/no) https://example.com/d\n"
    content = "word " * 210_000 + "\n" + links + "```\nhttps://example.com/code\n```\n"
    assert [(c.kind, c.target, c.line) for c in citations_of(content)] == [
        ("inline", "a.md", 2),
        ("autolink", "https://example.com/b", 2),
        ("wiki", "C", 2),
        ("bare", "https://example.com/d", 2),
    ]


def test_a_document_has_a_bounded_number_of_citations() -> None:
    content = "\n\n".join(f"https://example.com/{number}" for number in range(MOST + 10))
    assert len(citations_of(content)) == MOST
