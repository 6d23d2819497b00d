"""How the lines of Markdown begin blocks (CommonMark 0.31), as patterns that never look back."""

from __future__ import annotations

import re

QUOTE = re.compile(r" {0,3}> ?")
HEADING = re.compile(r"(#{1,6})(?: |$)")
CLOSING_HASHES = re.compile(r"(?:^|[ \t])#+[ \t]*$")
FENCE = re.compile(r"(?:(`{3,}+)[^`]*|(~{3,}+).*)$")
UNDERLINE = re.compile(r"(?:=++|-++) *+$")
RULE = re.compile(r"([-*_])(?: *+\1){2,}+ *+$")
ITEM = re.compile(r"(?:[-+*]|(\d{1,9})[.)])(?= |$)")
DEFINITION = re.compile(
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

HTML: tuple[tuple[re.Pattern[str], re.Pattern[str] | None], ...] = tuple(
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
