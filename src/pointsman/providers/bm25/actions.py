"""Verbs: where a request goes on to its next step, and whether a request or a tool reads, writes, removes or undoes.

A tool is named by what it does (`git_commit`), a request often has the same word as a noun (`show the last commit`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import islice, pairwise
from typing import Literal

from pointsman.providers.bm25.phrases import ADDING_NUMBERS, COMMITS, HISTORY, NAVIGATING
from pointsman.providers.text import stem

Kind = Literal["reads", "writes", "removes", "undoes"]
RequestKind = Kind | Literal["done"]  # of a request: `who created this branch` asks what was done
KINDS: tuple[Kind, ...] = ("reads", "writes", "removes", "undoes")

_READING = """
    analyze browse check compare count describe detect diff display download estimate evaluate explain export extract
    fetch find get identify inspect list locate look measure predict preview print query read recommend retrieve
    return review search see select show suggest summarise summarize track translate validate verify view visit watch
"""
_WRITING = """
    add append apply approve archive assign attach book build buy change close commit configure create
    deploy edit enable fill fork forward inform insert install invite keep leave make mark merge modify
    move note notify order overwrite pay post publish push put record remember remind rename replace reply
    reserve restart save schedule send set share stage store submit subscribe switch thank
    update upload welcome write
"""
_REMOVING = "cancel clear delete destroy erase purge remove uninstall unsubscribe wipe"
_UNDOING = "discard revert rollback undo unstage"
# Verbs of neither kind, or of both, which begin a step nonetheless: `reset the password` may take back or set.
_OTHERS = """
    call calculate click compile compress compute convert copy draw email encrypt filter follow generate go import log
    mail navigate open pick plan play provide pull refresh report reset resize restore run sort start stop sync take
    tell test turn type use wait
"""
_BY_KIND: dict[Kind, str] = {"reads": _READING, "writes": _WRITING, "removes": _REMOVING, "undoes": _UNDOING}
_KINDS: dict[str, Kind] = {verb: kind for kind, verbs in _BY_KIND.items() for verb in verbs.split()}
# A tool that is named by one of these does something; a request with one may as well ask for something to be read.
_ACTING = """
    click drag drop handle hover navigate press resize run simulate toggle trigger type
"""
# A tool that is named by one of these takes something back; a request with one may as well ask for something new.
_TAKING_BACK = frozenset({"reset", "restore"})
_KINDS_OF_TOOLS: dict[str, Kind] = {
    **dict.fromkeys(_ACTING.split(), "writes"),
    **_KINDS,
    **dict.fromkeys(_TAKING_BACK, "undoes"),
}
_CHANGING = frozenset({"add", "create", "delete", "insert", "remove"})  # never nouns, as `post` in `get_post_comments`
_QUESTION_WORDS = """
    what which who whom whose when where why how is are was were does do did has have
"""
_DETERMINERS = frozenset(
    [
        "the",
        "an",
        "all",
        "any",
        "every",
        "each",
        "our",
        "my",
        "anything",
        "everything",
        "recent",
        "latest",
        "last",
        "newest",
    ]
)
_QUESTIONS = frozenset(_QUESTION_WORDS.split())

VERBS = frozenset(f"{_READING} {_WRITING} {_REMOVING} {_UNDOING} {_OTHERS}".split())
NON_READING_VERBS = VERBS - frozenset(_READING.split())
_NEXT_STEP = (  # compiled at first use
    r"(?:[,;]\s*(?:and\s+|or\s+)?|\s+and\s+|\s+then\s+)(?:(?:then|also|finally|next|please)\s+){0,2}"
    rf"(?=(?:{'|'.join(sorted(VERBS))})\b)"
    r"|[,;]\s*(?:and\s+)?then\s+(?=\w)"  # before any verb: `look up the policy, then refund the payment`
)
LOOKING = frozenset({"show", "display", "see", "view", "look"})  # these hardly tell one tool from another

_WORD = re.compile(r"[a-z]+", re.IGNORECASE)
MAX_WORDS = 12  # of a request, in which its verb is looked for
_TELLING = re.compile(r"\s*tell\s+(?!me\b|us\b)", re.IGNORECASE)  # `tell Anna` writes a message, `tell me` asks
# `open an issue` means one that is not there yet, `open a text file` one that is.
_OPENING = re.compile(
    r"\b(?:open|start)\s+(?:an?|new)\s(?!(?:\w+\s)?(?:file|document|image|page|url|link|website)\b)",
    re.IGNORECASE,
)
# `open the photo`, and what is still open: `open issues of ana/shop`. `Open issues for these bugs` makes new ones.
_READING_OPEN = re.compile(
    r"\s*open\s(?:\w+\s){0,3}(?:file|document|image|picture|photo)\b"
    r"|\s*open\s(?:\w+\s)?(?:issues|tickets|tasks|bugs|prs|requests|orders|invoices|questions|cases)\b"
    r"(?! for (?:these|those|this|that|each|all|both|every|the following)\b)",
    re.IGNORECASE,
)
# `do not switch`, `without pushing`, `I don't want to create`. What stands behind the verb stays: it is often what the
# other verb is about, too. `Why don't you create one` asks for it, and `I do not see it` for nothing else.
# `Tests that do not start` says what it is about, and so do `issues that we do not close` and `without email`: no
# clause begins there.
_NEGATED = re.compile(
    r"(?:(?P<stop>^|[.!?\n])\s{0,3}|[,;:(\u2013\u2014-]\s?|\s(?=(?:and|but|please|so|then) ))"
    r"(?:(?:and|but|just|please|so|then) ){0,2}(?:(?:i|we|you (?:should|must)) )?(?:do not|don'?t|never)"
    r"(?: (?:want|wish|need|have|like|try) to| ever| please| yet){0,3}\s(?P<verb>\w+)"
    r"|\s?\b(?:without|instead of)\s(?P<doing>\w+ing)\b|\s?\brather than\s(?P<other>\w+)",
    re.IGNORECASE,
)
# What follows is to be stored, not obeyed: `add a note - do not restart the server`.
_BEFORE_STORED = re.compile(
    r"\b(?:note|rule|memory|message|issue|comment|todo|remember|remind|saying|text)\s?[:\u2013\u2014\"'-][\s\"'(]{0,4}$",
    re.IGNORECASE,
)
_MAX_STORING_CHARS = 100  # before such a text, in which the verb is looked for
_BEFORE_CLAUSE = " \t\r\n,;:.!?(\u2013\u2014-"
_SENTENCE_END = re.compile(r"[.!?\n]")
_NEGATED_THING = re.compile(
    r"(?:, ?not|\binstead of|\brather than) (?:an?|the|my) \w+", re.IGNORECASE
)  # `not a screenshot`
# At the beginning of a sentence or in brackets. `Lists deprecated functions` says what is listed, and so do `Deprecated
# use of APIs` and `(deprecated, new)`; `id. Deprecated - bool` is the name of a field.
_BEHIND_DEPRECATED = (
    r"use\b(?! of\b)|see\b|since\b|as of\b|in (?:v?\d|favou?r)|(?:and )?(?:will|replaced|removed|superseded)\b"
)
_DEPRECATED = re.compile(
    r"(?:^|[.!?\n(\[])[^\w.!?\n]{0,6}(?:(?:note|warning): )?(?:this (?:\w{1,20} )?(?:is|has been) (?:now )?)?"
    r"deprecated\b(?!\W{1,4}(?:array|bool|boolean|int|integer|list|number|object|str|string)\b(?! \w))"
    rf"(?=\W{{0,4}}(?:$|[:.)\]!*\u2014]|{_BEHIND_DEPRECATED})|(?<![(\[]deprecated)\W{{0,4}}[,;-])",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"\b(?:it|its|them|their|there|ones?)\b", re.IGNORECASE)


def steps(sentence: str) -> list[str]:
    """The steps of a sentence: `stage the files, commit them and push` has three."""
    return re.split(_NEXT_STEP, sentence, flags=re.IGNORECASE)


def without_negated(text: str) -> str:
    """The text without the verbs of what is not to be done: `list branches` of `list branches, do not switch`."""

    def without_verb(clause: re.Match[str]) -> str:
        verb = clause["verb"] or clause["doing"] or clause["other"]
        if not _is_non_reading_verb(verb) or _is_stored(clause):
            return clause[0]
        return clause["stop"] or ""

    return _NEGATED_THING.sub("", _NEGATED.sub(without_verb, text))


def _is_stored(clause: re.Match[str]) -> bool:
    """Whether a negated clause is a text to store: `add a note: do not push`, and not `read the note: do not push`."""
    begun = clause.start() + len(clause[0]) - len(clause[0].lstrip(_BEFORE_CLAUSE))
    before = clause.string[max(0, begun - _MAX_STORING_CHARS) : begun]
    stored = _BEFORE_STORED.search(before)
    if stored is None:
        return False
    asked = steps(_SENTENCE_END.split(before[: stored.end()].rstrip())[-1])[-1]
    return kind_of_request(asked) != "reads"


def _is_non_reading_verb(word: str) -> bool:
    """Whether a word is a verb of requests that does not read, as it stands behind `do not` or `without`."""
    word = word.lower()
    return word in NON_READING_VERBS or (word.endswith("ing") and stem(word) in _non_reading_stems())


@cache
def _non_reading_stems() -> frozenset[str]:
    return frozenset(map(stem, NON_READING_VERBS))


@cache
def _changing_stems() -> frozenset[str]:
    return frozenset(stem(verb) for verb, kind in _KINDS.items() if kind != "reads")


def verbs_not_asked_for(said: Sequence[str], kind: RequestKind | None) -> list[str]:
    """The words of a part that say what was done, or what is to be undone: `created`, and `add` in `undo git add`."""
    if kind == "done":
        return [word for place, word in enumerate(said) if _is_done(word, said[:place])]
    if kind == "undoes":
        return [word for word in said if _KINDS_OF_TOOLS.get(word, "undoes") != "undoes"]
    return []


def _is_done(word: str, before: Collection[str]) -> bool:
    """Whether a verb says what was done, after the words `before`: `created`, and `delete` in `what did I delete`."""
    if word in _KINDS:
        return "did" in before and _KINDS[word] != "reads"
    return stem(word) in _changing_stems() and not word.endswith(("s", "ing"))


def _asks_what_was_done(said: Sequence[str]) -> bool:
    """Whether a question is about what was done, and not how to do something: `how do I restore deleted files`."""
    if not said or said[0] not in _QUESTIONS - {"how"}:
        return False
    done = [_is_done(word, said[:place]) for place, word in enumerate(said)]
    to_do = (_takes_effect(word) for word, is_past in zip(said, done, strict=True) if not is_past)
    return any(done) and not any(to_do)


def _takes_effect(word: str) -> bool:
    return _KINDS.get(word, "reads") != "reads" or word in _TAKING_BACK


def refers_back(step: str) -> bool:
    """Whether a step is about what an earlier one names: `merge it`, `open an issue there`."""
    return _REFERENCE.search(step) is not None


def begins_with_verb(text: str) -> bool:
    """Whether a text asks for something: its first word is a verb of requests."""
    first = _WORD.search(text)
    return first is not None and first[0].lower() in VERBS


def is_of_a_kind(word: str) -> bool:
    """Whether a word in lower case is a verb that tells the kind of a tool: many tools share it, unlike `draw`."""
    return word in _KINDS_OF_TOOLS


def kind_of_request(text: str) -> RequestKind | None:
    """By a question word at its beginning or by the first verb; None: neither is there.

    `the code that retries` asks for something to be found: a request to do something begins with a verb.
    """
    if NAVIGATING.search(text):
        return None  # some tools for it say that they act, some that they fetch
    if _TELLING.match(text) or _OPENING.search(text):
        return "writes"
    if _READING_OPEN.match(text) or any(phrase.search(text) for phrase in (ADDING_NUMBERS, COMMITS, HISTORY)):
        return "reads"
    said = [match[0].lower() for match in islice(_WORD.finditer(text), MAX_WORDS + 1)]
    if _asks_what_was_done(said):
        return "done"
    for place, word in enumerate(said):
        if place == 0 and (word in _QUESTIONS or word in _DETERMINERS):
            return "reads"
        if kind := _KINDS.get(word):
            return kind
    return None


def kind_of_tool(name: Iterable[str]) -> Kind | None:
    """By the first verb among the words of its name; `staged` in `diff_staged` is none.

    A verb that reads and stands before one that changes something is a prefix: `search_add_document` adds.
    """
    words = list(name)
    for word, following in pairwise(words[:-1]):
        if _KINDS.get(word) == "reads" and following in _CHANGING:
            return _KINDS[following]
    return next((kind for word in words if (kind := _KINDS_OF_TOOLS.get(word))), None)


def is_deprecated(description: str) -> bool:
    """Whether a tool says of itself that it is deprecated, and so mostly names the one that replaces it."""
    return "eprecated" in description.lower() and _DEPRECATED.search(description) is not None
