"""Phrases of requests that say in other words than tools what is wanted, and which of their words are only the matter.

`the code that opens the database` wants code: `opens the database` says which, and names no tool for it.
"""

from __future__ import annotations

import re

MAX_CHARS = 400  # of a step, in which phrases are looked for

_ASKING = r"^\W*(?:please |can you |could you )?(?:(?:find|get|give|show|tell|send)(?: me| us)? |where is |what is )?"

_CLOCK = re.compile(
    r"\bwhat(?:'s| is) the (?:time|date)(?: in\b| now\b|\W*$)|\bwhat (?:time|day|date) is it\b"
    rf"|{_ASKING}(?:the )?(?:local |exact )?time in ",
    re.IGNORECASE,
)
_TIME_THERE = re.compile(r"\bwhat time (?:is|was|will)\b|\btime\b[^.?!]{0,30} in\b", re.IGNORECASE)
_TIME_HERE = re.compile(r"\b(?:noon|midnight|\d{1,2}[:.]\d\d|\d{1,2} ?(?:[ap]\.?m\b|o['\u2019]?clock))", re.IGNORECASE)
_TODAY = re.compile(
    r"\b(?:today['\u2019]?s|current|present) date\b|\b(?:day|date) (?:is (?:it )?)?today\b|^\W*(?:the )?date\W*$"
    r"|\bwhat(?:['\u2019]?s| is) the date(?: in\b| now\b|\W*$)|\bwhat (?:day|date) is it\b",
    re.IGNORECASE,
)
_USES = re.compile(
    r"\bwho (?:uses|calls|imports)\b|\bwhere (?:is|are|do we|do they)\b[^.?!]{1,60}\b(?:use|used|called|imported)\b",
    re.IGNORECASE,
)
_REASONS = re.compile(r"\bwhat (?:was|is|were|are) (?:the|our|their) (?:reason|motive|rationale)", re.IGNORECASE)
_OUR_REASONS = re.compile(r"\bwhy (?:did|do|have|had|are|were) (?:we|they)\b", re.IGNORECASE)
SIZE = re.compile(r"\bhow (?:large|big) (?:is|are)\b", re.IGNORECASE)
ADDING_NUMBERS = re.compile(  # `add 12 and 30`, `7 + 35`, `add two numbers`
    r"\badd(?: up)? [-+]?\d[\d.,]{0,20}(?: and| to|,) [-+]?\d|\d\s?(?:\+|plus)\s?\d"
    r"|\badd(?: up)? (?:(?:the|these|those|some|two|three|four|\d{1,3}) ){1,2}numbers\b",
    re.IGNORECASE,
)
NAVIGATING = re.compile(  # `open a website`; `open a new page` makes one
    r"\b(?:open|go to|visit|load|bring up|pull up|browse to|navigate to) (?!(?:an? |the )?(?:new|previous|last|next)\b)"
    r"(?:[\w'\u2019-]{1,30} ){0,5}?(?:web ?sites?|web ?pages?|home ?pages?|sites?|pages?|urls?)\b(?! \d)",
    re.IGNORECASE,
)
_PART = re.compile(
    r"\b(?:chapter|section|part|paragraph) (?:\d{1,4}|[IVX]{1,6}|one|two|three|four|five)\b", re.IGNORECASE
)
_VERSION_CONTROL = re.compile(
    r"\b(?:save|store|put|record|check)\b[^.?!]{1,40} (?:to|in|into|under) (?:version|source) control\b", re.IGNORECASE
)

IDENTIFIER = r"\b(?:[A-Za-z]+(?:_[A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+)\b"
_REFERENCES = re.compile(r"\b(?i:references|refs|calls) (?:to|of) (?=[`'\"]?" + IDENTIFIER + ")")
_REMEMBERED = re.compile(
    r"^\W*(?:please )?(?:remember|memori[sz]e|note|keep|record|make a note|take note)\b[^.?!]{0,40}?\bthat\b"
    r"(?=\W+\w+\W+\w)",
    re.IGNORECASE,
)
_REMEMBERING = re.compile(r"^\W*(?:please )?(?:remember|memori[sz]e|note down) (?:this|that|these|it)\b", re.IGNORECASE)
_WANTED_CODE = re.compile(
    rf"{_ASKING}(?:the |all |any )?(?:(?:part|place|piece|spot|line)s? (?:of|in) )?(?:the |our )?(?:source )?"
    r"(?:code|function|method|helper|routine)s? (?:that|which|where)\b",
    re.IGNORECASE,
)
_WANTED_USES = re.compile(rf"{_ASKING}(?:the |all |any )*(?:usages|uses|callers|call sites) of\b", re.IGNORECASE)


# The words of tools for a phrase, and whether they count as much as if they were said.
_WORDS: tuple[tuple[re.Pattern[str], tuple[str, ...], bool], ...] = (
    (_TODAY, ("current", "time"), False),
    (SIZE, ("size",), False),
    (_USES, ("usages", "callers", "code"), False),
    (_WANTED_USES, ("usages", "callers", "code"), True),
    (_WANTED_CODE, ("find", "code", "function"), True),
    (_REASONS, ("why",), False),
    (_OUR_REASONS, ("reason", "decision"), False),
    (ADDING_NUMBERS, ("sum",), True),
    (NAVIGATING, ("navigate", "url"), True),
    (_PART, ("section",), True),
    (_VERSION_CONTROL, ("git", "commit"), True),
    (_REMEMBERED, ("memory", "add"), True),
    (_REMEMBERING, ("memory", "add"), True),
)


def words_for_phrases(text: str) -> dict[str, bool]:
    """The words of tools for the phrases in a text, each once and in order; True: it counts as much as if it were said.

    The time that one asks for is the current one, and a clock knows the date, too; the time there when it is noon here
    is a converted one. Who asks how large something is asks for its size; where it is used, for its usages in the code;
    for its reason, why; who adds numbers, for a sum; who opens a website, navigates to a URL.
    """
    text = text[:MAX_CHARS]
    found: dict[str, bool] = {}
    if _TIME_HERE.search(text) and _TIME_THERE.search(text):
        found["convert"] = True
    elif _CLOCK.search(text):
        found["current"] = True
    for phrase, said, firm in _WORDS:
        if phrase.search(text):
            found |= {word: firm or found.get(word, False) for word in said}
    return found


def in_words_of_code(text: str) -> str:
    """`references to get_user` as `usages of get_user`: of a paper, references are something else."""
    return _REFERENCES.sub("usages of ", text)


def matter_of(text: str) -> str:
    """The part of a text that says about what, where a phrase before it says all of what is wanted; empty: none."""
    for phrase in (_WANTED_CODE, _WANTED_USES, _REMEMBERED):
        if wanted := phrase.match(text[:MAX_CHARS]):
            return text[wanted.end() :]
    return ""
