"""Tells the request in a text from a pasted block, such as a log, which would outvote it.

By structure: a request is a short line or paragraph before or after a much longer block, whatever that is, or the only
paragraph that asks between two blocks of machine text.
"""

from __future__ import annotations

import re
from itertools import islice, pairwise
from typing import NamedTuple

from pointsman.providers.bm25.actions import begins_with_verb, kind_of_request
from pointsman.providers.text import STOP_WORDS, sentences, words

MAX_ASKED_CHARS = 300  # of the request next to a block
MIN_PASTED_CHARS = 200
MIN_RATIO = 3  # of the lengths of block and request
READ_CHARS = 2_000  # of a block, to see what it is
READ_LINES = 3  # of a block, and sentences, to see whether it goes on with the request
READ_MACHINE_LINES = 12  # the same for machine text, all of whose lines have to
MACHINE_SHARE = 0.12  # of marks and digits in logs, traces, code and tables; prose has about .04
MANY_LINES = 8
ALIKE = 4  # lines for each first word
MAX_PLACES = 8  # lines with which the request may end
MAX_BREAKS = 1_000  # between paragraphs that are looked at
MAX_PARAGRAPHS = 50  # of words that may ask for something

_LEAST_ASKED_CHARS = 5
_BLANK_LINES = re.compile(r"\n[ \t\r]*\n(?:[ \t\r]*\n)*")
_BREAK = re.compile(r"\n(?:[ \t]*\n)*")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE)
_LISTED = re.compile(r"\s*(?:[-*\u2022]|\d{1,2}[.)])\s")
_FIELD = re.compile(r"\s*([A-Za-z]\w*(?: \w+){0,2}):\s")
_DIGITS = re.compile(r"\d+")
_BEFORE_VERB = re.compile(
    r"[\s\"'(]*(?:(?:please|kindly|hi|hello|hey|ok|okay|and|then|now|next|first|finally|also|just|to"
    r"|(?:can|could|would|will) you|(?:i|we)(?:'d| would)? (?:want|need|like)(?: you)?|help me|let's)\b[\s,:]*)*",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"(?:what|which|who|whose|where|when|why|how)\s\w+\s+\w|(?:i|we) (?:want|need)\s+(?:an?|the|all|my|to)\s+\w",
    re.IGNORECASE,
)
_IMPORT = re.compile(  # or a request: `import this module into the project`
    r"(?:import|export)(?: [\w.*{\[\"'(_-]|[{*(\"'])"
    r"|from [\w.]+ import\b|(?:use|using) [^\n]+;$|package [\w.]+;?$|require(?:_relative)? ?\(?['\"]"
)
_COMMENT = re.compile(r"\s(?:#|//|--|/\*)")
_PROSE = re.compile(  # words of their own that no such line of code has; `export a as b` has braces
    r" (?:this|the|into|my|our|these|to|for|with) \w"
    r"| (?:an?|all) (?!as\b|from\b)\w\w| from [\w.]+$|^export [\w ]+ as \w"
)
_CODE_LINE = re.compile(
    r"^\s*(?:async|class|const|def|else|export|fn|for|from|func|function|if|impl|import|let|private|public|return|struct"
    r"|try|var|while)\b.*[\w(){}:;,]$",
    re.MULTILINE,
)
_LEAST_CODE_LINES = 3
_VAGUE = frozenset(["following", "below", "above", "thing", "things", "step", "steps", "task", "tasks"])


def without_pasted(text: str) -> str:
    """The text without a long block after, before or between the lines of a request.

    A block of prose is left out only if the request says what should be done, and the block is no list of that and has
    no fields for it.
    """
    if len(text) < MIN_PASTED_CHARS or "\n" not in text:
        return text
    fences = list(islice(_FENCE.finditer(text), 2_000))
    if len(fences) > 1 and (asked := _around(text, fences[0].start(), fences[-1].end())):
        return asked
    head, tail = _first(text), _last(text)
    if head and tail and not _asks(head.text) and not _is_machine_text(tail.text):
        return f"{head.text}\n{tail.text}"  # `this is the log:`, and what should be done with it
    found = min(filter(None, (head, tail)), key=_unlike_request, default=None)
    if (found is None or _is_machine_text(found.text) or not _asks(found.text)) and (asked := _between(text)):
        return asked
    return found.text if found else text


class _Asked(NamedTuple):
    """A request before or after a block."""

    text: str
    apart: bool  # whether a blank line is between them


def _around(text: str, start: int, end: int) -> str | None:
    """What is written around fenced text, if that is a request."""
    head, tail, block = text[:start].strip(), text[end:].strip(), text[start:end]
    asked = f"{head}\n{tail}".strip()
    if len(asked) > MAX_ASKED_CHARS or len(block) < max(MIN_PASTED_CHARS, MIN_RATIO * len(asked)):
        return None
    return asked if _says_what(asked) else None


def _first(text: str) -> _Asked | None:
    """The request in the first lines of a text, before a block."""
    places = [place for place in _BREAK.finditer(text, 0, MAX_ASKED_CHARS) if text[: place.start()].strip()]
    for number, place in enumerate(places[:MAX_PLACES]):
        head, block = text[: place.start()].strip(), text[place.end() :]
        marked = head.endswith((":", "?")) and kind_of_request(head) is not None
        ends = marked or ((number == 0 or _parts(place)) and _is_request(head, block, place))
        if ends and not _begins_code(head, block) and _is_pasted(block, head):
            return _Asked(head, _parts(place))
    return None


def _begins_code(head: str, block: str) -> bool:
    """Whether the first line is one of the code that follows: `import os`, and not `import contacts` before a table."""
    first = head.partition("\n")[0]
    if _IMPORT.match(first) is None or first.endswith((":", "?")) or _PROSE.search(_COMMENT.split(first, 1)[0]):
        return False
    return len(_CODE_LINE.findall(block[:READ_CHARS])) >= _LEAST_CODE_LINES


def _last(text: str) -> _Asked | None:
    """The request in the last paragraph or line of a text, after a block."""
    text = text.rstrip()
    places = list(_BREAK.finditer(text, max(0, len(text) - MAX_ASKED_CHARS)))
    for place in (*list(filter(_parts, places))[-1:], *places[-1:]):
        block, tail = text[: place.start()], text[place.end() :]
        if not tail[0].isspace() and _is_request(tail, block, place) and _is_pasted(block, tail):
            return _Asked(tail, _parts(place))
    return None


def _between(text: str) -> str | None:
    """The only paragraph that asks for something, if there is machine text before and after it."""
    breaks = list(islice(_BLANK_LINES.finditer(text), MAX_BREAKS))
    asking: list[tuple[str, int, int]] = []
    tried = 0
    for before, after in pairwise(breaks):
        start, end = before.end(), after.start()
        if not _LEAST_ASKED_CHARS <= end - start <= MAX_ASKED_CHARS or not text[start].isalpha():
            continue
        asked = text[start:end].rstrip()
        if " " not in asked or _is_machine_text(asked):
            continue
        tried += 1
        if tried > MAX_PARAGRAPHS:  # of words: this is prose, not a log
            return None
        if _asks(asked) and _says_what(asked):
            asking.append((asked, start, end))
    if len(asking) != 1:
        return None
    [(asked, start, end)] = asking
    return asked if _is_block(text[:start], asked) and _is_block(text[end:], asked) else None


def _is_block(text: str, asked: str) -> bool:
    """Whether a text is machine text, long enough to outvote a request."""
    return len(text) >= max(MIN_PASTED_CHARS, MIN_RATIO * len(asked)) and _is_machine_text(text)


def _unlike_request(asked: _Asked) -> tuple[bool, bool, bool]:
    """A request is rather words in a line of their own: the first lines of a program, too, may begin with a verb."""
    return _is_machine_text(asked.text), not asked.apart, "\n" in asked.text


def _parts(place: re.Match[str]) -> bool:
    """Whether a break is a blank line, between paragraphs."""
    return place[0].count("\n") > 1


def _is_request(asked: str, block: str, between: re.Match[str]) -> bool:
    """Whether a line or paragraph says what should be done.

    Next to machine text a paragraph without a verb may: `weather in Oslo`. A line next to prose belongs to it.
    """
    asks = _asks(asked)
    if not _is_machine_text(block):
        return asks and _parts(between)
    return (asks and not _LISTED.match(asked)) or (_parts(between) and not _is_machine_text(asked))


def _asks(asked: str) -> bool:
    """Whether one of the first sentences begins with a verb or says what one needs, or the last one is a question."""
    return _is_question(asked) or any(map(_begins_with_verb, sentences(asked)[:READ_LINES]))


def _is_question(asked: str) -> bool:
    return asked.rstrip().endswith("?") or _QUESTION.match(asked) is not None


def _is_pasted(block: str, asked: str) -> bool:
    if len(block) < max(MIN_PASTED_CHARS, MIN_RATIO * len(asked)) or not _says_what(asked):
        return False
    lines = [line for line in block[:READ_CHARS].splitlines() if line.strip()]
    if _is_machine_text(block):
        first = lines[:READ_MACHINE_LINES]
        return not all(map(_goes_on, first)) and not _are_fields(first)
    begun = [*lines[:READ_LINES], *sentences(block[:READ_CHARS])[:READ_LINES]]
    return not any(map(_goes_on, begun)) and not _are_fields(lines[:READ_LINES])


def _goes_on(line: str) -> bool:
    return _LISTED.match(line) is not None or _begins_with_verb(line)


def _says_what(asked: str) -> bool:
    """By two words of its own, or one of a question: `which branch am I on?`."""
    own = {word for word in words(asked) if word not in STOP_WORDS and word not in _VAGUE}
    return len(own) > 1 or (bool(own) and _is_question(asked))


def _begins_with_verb(text: str) -> bool:
    """Whether a text asks for something to be done, perhaps politely."""
    polite = _BEFORE_VERB.match(text)
    return begins_with_verb(text[polite.end() if polite else 0 :])


def _is_machine_text(text: str) -> bool:
    """Whether a text has the marks and digits of logs, traces, code and tables, or many lines that begin alike."""
    text = text[:READ_CHARS]
    written = "".join(text.split())
    if sum(map(str.isalpha, written)) < (1 - MACHINE_SHARE) * len(written):
        return True
    begun = [line.split(maxsplit=1)[0] for line in text.splitlines() if line.strip()]
    return len(begun) >= MANY_LINES and len(set(begun)) * ALIKE <= len(begun)


def _are_fields(lines: list[str]) -> bool:
    """Whether lines say with what something is to be done: `Version: 6.3`, `Port: 80`. A log repeats its labels."""
    labels = [_DIGITS.sub("", field[1]) for line in lines if (field := _FIELD.match(line))]
    return len(set(labels)) == len(lines)
