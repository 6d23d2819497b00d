"""Removes text that people cannot see but a model reads. Has no dependencies inside the package."""

from __future__ import annotations

import re

# Control and format characters, fillers, variation selectors and tag characters; private use and noncharacters.
# Written out, so that it does not depend on the Unicode version of this Python. Unassigned characters of the text
# planes are kept: they are the letters and emoji of a later Unicode. `re` compiles these classes at first use: each
# takes a millisecond, and most texts are plain.
_INVISIBLE = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U0001fffe\U0001ffff\U0002fffe\U0002ffff"
    "\U0003fffe-\U0010ffff]"
)
_LINE_ENDS = frozenset("\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
_JOINERS = frozenset("\u200c\u200d")
_EMOJI_JOINER = "\u200d"
_EMOJI_STYLES = frozenset("\ufe0e\ufe0f")
_KEYCAP = "\u20e3"

# The scripts whose letters change their form next to a joiner: Arabic, the Indic scripts, Mongolian and others.
_JOINING = (
    "[\u0600-\u1cff\ua800-\uabff\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff\U0001e900-\U0001e95f]"
)
_EMOJI = "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"


def visible(text: str) -> str:
    """The text without invisible characters. Tabs are kept, and all line ends become `\\n`.

    Joiners are kept between letters of scripts that need them and between emoji; an emoji keeps its variation
    selector.
    """
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_INVISIBLE, _replacement, text)


def is_visible_name(text: str) -> bool:
    """Whether a name is one line of visible characters."""
    return visible(text) == text and "\n" not in text and "\t" not in text


def visible_line(text: str, room: int) -> str:
    """One line of at most `room` visible characters, cut without a mark. Reads no more of a long text than needed."""
    return " ".join(visible(text[: 4 * room]).split())[:room]


def _replacement(match: re.Match[str]) -> str:
    character, text, at = match[0], match.string, match.start()
    following = text[at + 1 : at + 2]
    if character in _LINE_ENDS:
        return "" if character == "\r" and following == "\n" else "\n"
    before = text[at - 1 : at] if at else ""
    if character in _EMOJI_STYLES:
        keycap = before in "0123456789#*" and following == _KEYCAP
        return character if before and (keycap or re.match(_EMOJI, before)) else ""
    if character in _JOINERS:
        return character if _joins(character, text, at, following) else ""
    return ""


def _joins(joiner: str, text: str, at: int, following: str) -> bool:
    before = text[at - 1 : at] if at else ""
    if re.match(_JOINING, before) and re.match(_JOINING, following):
        return not re.match(_INVISIBLE, before) and not re.match(_INVISIBLE, following)
    if before in _EMOJI_STYLES and at > 1:
        before = text[at - 2]
    return joiner == _EMOJI_JOINER and bool(re.match(_EMOJI, before) and re.match(_EMOJI, following))
