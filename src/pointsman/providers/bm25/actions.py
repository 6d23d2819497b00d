"""Verbs: where a request goes on to its next step, and whether a request or a tool reads or writes.

A tool is named by what it does (`git_commit`), a request often has the same word as a noun (`show the last commit`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

Kind = Literal["reads", "writes"]
KINDS: tuple[Kind, Kind] = ("reads", "writes")

_READING = """
    analyze browse check compare count describe detect diff display download estimate evaluate explain export extract
    fetch find get identify inspect list locate look measure predict preview print query read recommend retrieve
    return review search see select show suggest summarise summarize track translate validate verify view visit watch
"""
_WRITING = """
    add append apply approve archive assign attach book build buy cancel change clear close commit configure create
    delete deploy edit enable erase fill fork forward inform insert install invite keep leave make mark merge modify
    move note notify order overwrite pay post publish push put record remember remind remove rename replace reply
    reserve reset restart restore save schedule send set share stage store submit subscribe switch thank unstage
    update upload welcome write
"""
# Verbs of neither kind, or of both, which begin a step nonetheless.
_OTHERS = """
    call calculate click compile compress compute convert copy draw email encrypt filter follow generate go import log
    mail navigate open pick plan play provide pull refresh report resize run sort start stop sync take tell test turn
    type undo use wait
"""
_BY_KIND: dict[Kind, str] = {"reads": _READING, "writes": _WRITING}
_KINDS: dict[str, Kind] = {verb: kind for kind, verbs in _BY_KIND.items() for verb in verbs.split()}
_CHANGING = frozenset({"add", "create", "delete", "insert", "remove"})  # never nouns, as `post` in `get_post_comments`
_QUESTION_WORDS = """
    what which who whom whose when where why how is are was were does do did has have
"""
_QUESTIONS = frozenset(_QUESTION_WORDS.split())

_VERBS = sorted((_READING + _WRITING + _OTHERS).split())
_NEXT_STEP = re.compile(
    r"(?:[,;]\s*(?:and\s+|or\s+)?|\s+and\s+|\s+then\s+)(?:(?:then|also|finally|next|please)\s+){0,2}"
    rf"(?=(?:{'|'.join(_VERBS)})\b)",
    re.IGNORECASE,
)
LOOKING = frozenset({"show", "display", "see", "view", "look"})  # these hardly tell one tool from another

_WORD = re.compile(r"[a-z]+", re.IGNORECASE)
MAX_WORDS = 12  # of a request, in which its verb is looked for
_TELLING = re.compile(r"\s*tell\s+(?!me\b|us\b)", re.IGNORECASE)  # `tell Anna` writes a message, `tell me` asks
_OPENING = re.compile(r"\b(?:open|start)\s+(?:an?|new)\s", re.IGNORECASE)  # `open an issue`: one that is not there yet
_REFERENCE = re.compile(r"\b(?:it|its|them|their|there|ones?)\b", re.IGNORECASE)


def steps(sentence: str) -> list[str]:
    """The steps of a sentence: `stage the files, commit them and push` has three."""
    return _NEXT_STEP.split(sentence)


def refers_back(step: str) -> bool:
    """Whether a step is about what an earlier one names: `merge it`, `open an issue there`."""
    return _REFERENCE.search(step) is not None


def kind_of_request(text: str) -> Kind | None:
    """By a question word at its beginning or by the first verb; None: neither is there."""
    if _TELLING.match(text) or _OPENING.search(text):
        return "writes"
    for place, match in enumerate(_WORD.finditer(text)):
        word = match[0].lower()
        if place == 0 and word in _QUESTIONS:
            return "reads"
        if kind := _KINDS.get(word):
            return kind
        if place >= MAX_WORDS:
            break
    return None


def kind_of_tool(name: Iterable[str]) -> Kind | None:
    """By the first verb among the words of its name; `staged` in `diff_staged` is none.

    A verb that reads and stands before one that changes something is a prefix: `search_add_document` adds.
    """
    words = list(name)
    for word, following in pairwise(words[:-1]):
        if _KINDS.get(word) == "reads" and following in _CHANGING:
            return "writes"
    return next((kind for word in words if (kind := _KINDS.get(word))), None)
