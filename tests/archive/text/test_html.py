"""HTML converted to Markdown."""

from __future__ import annotations

import pytest

from pointsman.archive.text.html import HtmlPage, read_html
from pointsman.archive.text.outline import Heading, outline

PAGE = """<!doctype html><html><head><title>My &amp; page</title>
<link rel="canonical" href="https://example.org/page"><meta property="article:published_time" content="2024-05-01">
<style>p { color: red }</style><script>document.write("<p>written</p>")</script></head>
<body><nav><a href="#top">Skip</a></nav><!-- <h1>Hidden</h1> -->
<h1>Hello <em>World</em></h1>
<p>See <a href="guide/other.html">the other
page</a> and <code>snake_case()</code>; 1 &lt; 2, &lt;b&gt;.<br># no heading<br>1. no item</p>
<ul><li>one<li>two <ul><li>nested</ul></ul><ol><li>a</li><li>b</li></ol>
<pre><code>def f():
    # a comment
</code></pre>
<table><tr><th>A<th>B<tr><td>1<td>2</table>
<p><a href="javascript:steal()">Press</a> <img src=x alt="A picture"></p></body></html>"""

MARKDOWN = """\
Skip

# Hello World

See [the other page](guide/other.html) and `snake_case()`; 1 < 2, \\<b>.
\\# no heading
1\\. no item

- one
- two
  - nested
1. a
2. b

```
def f():
    # a comment
```

A B

1 2

Press A picture
"""


def test_a_page_becomes_markdown_with_headings_lists_links_and_code() -> None:
    assert read_html(PAGE) == HtmlPage("My & page", "https://example.org/page", "2024-05-01", MARKDOWN)


def test_only_real_headings_are_headings() -> None:
    assert outline(read_html(PAGE).markdown) == [Heading(1, "Hello World", 3)]


def test_broken_html_is_read_as_far_as_it_goes() -> None:
    assert read_html("<p>one <b>two</p><p>three <a href=x>four <div>five < 6").markdown == (
        "one two\n\nthree [four](x)\n\nfive < 6\n"
    )
    assert read_html("").markdown == "\n"
    assert read_html("<head><title>T</title><body><p>text").title == "T"
    assert read_html("<p>&#" + "9" * 5000 + "; &#x110000; &nbsp; &unknown;</p>").markdown.startswith("\ufffd")


def test_code_with_fences_stays_inside_its_fence() -> None:
    assert outline(read_html("<pre>```\n# no\n````\n# no</pre><h2>Yes</h2>").markdown) == [Heading(2, "Yes", 8)]


@pytest.mark.parametrize(
    "part",
    ["<", "<a ", "<!--", "&", "<!", "<div>", "<svg></math>", "<a href=x>y", "<ol>", "</", "<a b='", "<![CDATA[", "<?"],
)
def test_hostile_html_is_read_in_one_pass(part: str) -> None:
    """Anything but one pass would take hours here."""
    for text in (part * 20_000, part * 10_000 + ">", f"<p>{part * 10_000}</p>"):
        assert isinstance(read_html(text).markdown, str)
