"""Finds one section of a document by the text of its heading."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pointsman.archive.text.lines import lines_of, strip_markup
from pointsman.archive.text.outline import Heading, structure

MAX_CANDIDATES = 50
PATH = " > "

_NUMBERED = re.compile(r"(.+?) \((\d{1,6})\)$")


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of the document are counted from 1; the first is the heading.

    `candidates` are the other headings that match too, each written so that it finds that one.
    """

    heading: str
    level: int
    content: str
    start_line: int
    end_line: int
    candidates: tuple[str, ...] = ()


def find_section(content: str, section: str, include_subsections: bool) -> Section | None:
    """The first heading of the best kind of match: equal text, then a prefix, then a substring.

    Case and markup are ignored. `A > B` is B anywhere below A; `Usage (2)` is the second heading with the text Usage.
    """
    lines = lines_of(content)
    headings = structure(lines).headings
    wanted = section.strip().lstrip("#").strip()
    if not wanted or not headings:
        return None
    contents = _Contents(headings)
    found = contents.find(wanted)
    if not found:
        return None
    first = found[0]
    start = headings[first].line
    end = _last_line(headings, first, len(lines), include_subsections)
    while end > start and not lines[end - 1].strip():
        end -= 1
    return Section(
        heading=headings[first].text,
        level=headings[first].level,
        content="\n".join(lines[start - 1 : end]),
        start_line=start,
        end_line=end,
        candidates=tuple(contents.address(number) for number in found[1 : MAX_CANDIDATES + 1]),
    )


def _last_line(headings: Sequence[Heading], number: int, last: int, include_subsections: bool) -> int:
    level = headings[number].level
    for following in headings[number + 1 :]:
        if not include_subsections or following.level <= level:
            return following.line - 1
    return last


Matches = Callable[[str, str], bool]
_MATCHES: tuple[Matches, ...] = (str.__eq__, str.startswith, str.__contains__)


class _Contents:
    """The headings as they are compared, each with those above it."""

    def __init__(self, headings: Sequence[Heading]) -> None:
        self._headings = headings
        self._texts = [_normalize(heading.text) for heading in headings]
        self._parents: list[int | None] = []
        self._same: dict[str, list[int]] = {}
        above: list[int] = []
        for number, heading in enumerate(headings):
            while above and headings[above[-1]].level >= heading.level:
                above.pop()
            self._parents.append(above[-1] if above else None)
            above.append(number)
            self._same.setdefault(self._texts[number], []).append(number)

    def find(self, wanted: str) -> list[int]:
        """The positions of the headings that match, best first."""
        text = _normalize(wanted)
        if text in self._same:
            return self._same[text]
        numbered = _NUMBERED.match(text)
        if numbered:
            same, place = self._same.get(numbered[1], []), int(numbered[2])
            if 0 < place <= len(same):
                return [same[place - 1]]
        steps = [step for step in map(_normalize, wanted.split(PATH.strip())) if step]
        if len(steps) > 1 and (found := self._below(steps)):
            return found
        return self._find_partial(text)

    def _find_partial(self, text: str) -> list[int]:
        found: dict[int, None] = {}
        for matches in _MATCHES[1:]:
            found |= dict.fromkeys(number for number, own in enumerate(self._texts) if matches(own, text))
        return list(found)

    def _below(self, steps: Sequence[str]) -> list[int]:
        last = self._same.get(steps[-1]) or self._find_partial(steps[-1])
        for matches in _MATCHES:
            found = [number for number in last if self._has_above(number, steps[:-1], matches)]
            if found:
                return found
        return []

    def _has_above(self, number: int, steps: Sequence[str], matches: Matches) -> bool:
        left = list(steps)
        parent = self._parents[number]
        while left and parent is not None:
            if matches(self._texts[parent], left[-1]):
                left.pop()
            parent = self._parents[parent]
        return not left

    def address(self, number: int) -> str:
        """A text that finds this heading and no other."""
        text = self._texts[number]
        same = self._same[text]
        if len(same) == 1:
            return self._headings[number].text
        parent = self._parents[number]
        if parent is not None:
            path = f"{self._headings[parent].text}{PATH}{self._headings[number].text}"
            if self.find(path) == [number]:
                return path
        return f"{self._headings[number].text} ({same.index(number) + 1})"


def _normalize(text: str) -> str:
    return strip_markup(text).casefold()
