"""A query parsed into sentences, their steps, and tokens.

Values in it count as what they are: names, and what `values` says in words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pointsman.providers.bm25.actions import (
    LOOKING,
    RequestKind,
    is_of_a_kind,
    kind_of_request,
    refers_back,
    steps,
    verbs_not_asked_for,
    without_negated,
)
from pointsman.providers.bm25.pasted import without_pasted
from pointsman.providers.bm25.phrases import IDENTIFIER, command_in_words, in_words_of_tools, subject_of
from pointsman.providers.bm25.values import files_in, without_addresses, words_for_values
from pointsman.providers.text import (
    STOP_WORDS,
    calm,
    has_cjk,
    in_one_word,
    plain_text,
    sentences,
    stem,
    without_cjk,
    words,
)

MAX_CHARS = 8_000  # as many as a discovery takes
MAX_PARTS = 12
MAX_WORDS = 2_000  # distinct ones, of all texts of a request together: each costs a stemming and a look-up
FAINT_WEIGHT = 0.5  # of a word that says what a value is (`file`) or that one wants to see (`show`), relative to others
PAIR_LENGTH = 0.33  # the length in words of one or two characters of CJK text: three such tokens make about a word

# A capital inside a sentence: after a space that does not follow the end of another one.
_NAME = re.compile(r"(?<=[^\s.!?:\"]\s)['\"(]?[A-Z]\w*")
_SPACES = re.compile(r"[^\S\n]{2,}|[^\S\n ]")  # also `\r` and the wide ones of Unicode; a line break ends a sentence
_RIDDING = re.compile(r"\bget(?:ting)? rid of\b|\bthrow(?:ing)? (?:away|out)\b", re.IGNORECASE)
_ROLLING_BACK = re.compile(r"\broll(?:ing)? back\b", re.IGNORECASE)
_IDENTIFIER = re.compile(IDENTIFIER)


@dataclass(frozen=True, slots=True)
class Query:
    """A text and its parts, sentences or steps of them, each of which may ask for something else."""

    tokens: dict[str, str]  # each token once, with the word that it came from
    hints: frozenset[str]  # those of the tokens that are not in the text, but say what a value in it is
    faint: frozenset[
        str
    ]  # those that count less: the hints, words of identifiers, and verbs that only say that one wants to see
    names: frozenset[str]  # those that are written as names: `Paris`, `GitHub`
    values: frozenset[str]  # the names, and those with digits: they say with what, not what is to be done
    subject: frozenset[str]  # those that say about what, where a phrase says all of what is wanted: `the code that ...`
    acts: frozenset[str]  # the verbs that its parts begin with: they say what is to be done, not with what
    texts: tuple[str, ...]  # its parts
    parts: tuple[frozenset[str], ...]  # their tokens
    kinds: tuple[RequestKind | None, ...]  # whether they ask for something to be read or to be written
    referring: tuple[bool, ...]  # whether they are about what the part before names
    length: float  # in words
    embedded: tuple[str, ...]  # its parts as they are embedded; empty: search by words alone
    sentences: tuple[str, ...]  # its sentences, for an encoder that reads them as a whole; empty if `embedded` is


def parse_all(texts: Sequence[str], spell: Callable[[str], str] = str) -> list[Query]:
    """Parse each text with its share of MAX_WORDS; the unused rest of a share goes to the texts after it."""
    parsed: list[Query] = []
    room = MAX_WORDS
    for place, text in enumerate(texts):
        parsed.append(parse(text, room // (len(texts) - place), spell))
        room -= len(parsed[-1].tokens)
    return parsed


def parse(text: str, room: int = MAX_WORDS, spell: Callable[[str], str] = str) -> Query:
    """Parse a text up to `room` distinct words; `spell` corrects its spelling.

    A pasted block is left out before: `spell` corrects a few words, and a log has many that it does not know.
    """
    text = without_negated(_in_words_of_tools(spell(without_pasted(_bounded(text)))))
    whole = _few(list(map(command_in_words, sentences(text))))
    parts = _Parts(room)
    for piece in _few([step for sentence in whole for step in _steps_in_words(sentence)]):
        parts.add(piece)
    tokens, hints = parts.tokens, parts.hints
    length = sum([PAIR_LENGTH if has_cjk(token) else 1 for token in tokens])
    unsaid = frozenset(hints.keys() - tokens.keys())
    in_identifiers = {token for token in map(stem, words_of_identifiers(text)) if token in tokens}
    in_files = {stem(word) for name in files_in(text) for word in words(name)} & tokens.keys()
    subject = frozenset(parts.subjects - parts.outside_subjects) & tokens.keys()
    looking = {token for token, word in tokens.items() if word in LOOKING}
    not_asked_for = parts.not_asked_for & tokens.keys()
    embedded = _embeddable(parts.with_hints)
    with_words = [sentence for sentence in whole if any(word not in STOP_WORDS for word in words(sentence))]
    names = frozenset([token for token in map(stem, names_in(text)) if token in tokens])
    if 2 * len(names) > len(tokens):
        names = frozenset()  # all of it is capitalized
    return Query(
        tokens=hints | tokens,
        hints=unsaid,
        faint=(unsaid - parts.firm) | in_identifiers | in_files | looking | not_asked_for | subject,
        names=names,
        values=names | {token for token in tokens if not token.isalpha()},
        subject=subject,
        acts=frozenset(parts.acts),
        texts=tuple(parts.texts),
        parts=tuple(parts.tokens_of_each),
        kinds=tuple(parts.kinds),
        referring=(False, *map(refers_back, parts.texts[1:])),
        length=length,
        embedded=embedded,
        sentences=_embeddable(with_words) if embedded else (),
    )


class _Parts:
    """What the parts of a text say, added one after the other."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.tokens: dict[str, str] = {}
        self.hints: dict[str, str] = {}
        self.firm: set[str] = set()  # the hints that count as if they were said
        self.acts: set[str] = set()
        self.subjects: set[str] = set()  # the tokens of subjects; some of them may be outside one, too
        self.outside_subjects: set[str] = set()
        self.not_asked_for: set[str] = set()  # verbs that say about what, not what to do: `add` in `undo git add`
        self.tokens_of_each: list[frozenset[str]] = []
        self.texts: list[str] = []
        self.kinds: list[RequestKind | None] = []
        self.with_hints: list[str] = []  # the texts with the words for their values

    def add(self, text: str) -> None:
        kind = kind_of_request(text)
        subject = subject_of(text)
        head = text.removesuffix(subject)
        said = words(text)
        self.not_asked_for |= set(map(stem, verbs_not_asked_for(said, kind)))
        part = self._add_words(said)
        said_of_values = words_for_values(text)
        for word, as_said in said_of_values.items():
            self.hints.setdefault(stem(word), word)
            part.add(stem(word))
            self.firm |= {stem(word)} if as_said else set()
        if not part:
            return
        self.tokens_of_each.append(frozenset(part))
        self.texts.append(text)
        self.kinds.append(kind)
        # The words in the path of an address that is to be read or opened say where it is, not what to do.
        shown = without_addresses(head) if said_of_values.get("url") else head
        self.with_hints.append(" ".join((shown, *said_of_values)))
        self.subjects |= set(map(stem, words(subject)))
        self.outside_subjects |= set(map(stem, words(head))) if subject else part

    def _add_words(self, said: Iterable[str]) -> set[str]:
        """Add the words of a part, as far as there is room, and return their tokens."""
        part: set[str] = set()
        for word in said:
            if len(self.tokens) >= self._room:
                break
            if word not in STOP_WORDS:
                token = stem(word)
                self.tokens.setdefault(token, word)
                if is_of_a_kind(word) and not part and token not in self.not_asked_for:
                    self.acts.add(token)
                part.add(token)
        return part


def _steps_in_words(sentence: str) -> list[str]:
    """The steps of a sentence whose own beginning is in words already."""
    first, *others = steps(sentence)
    return [first, *map(command_in_words, others)]


def _bounded(text: str) -> str:
    """At most MAX_CHARS, also when its characters are folded: one Arabic ligature becomes eighteen letters."""
    text = text[:MAX_CHARS]
    folded = plain_text(text)
    return folded[:MAX_CHARS] if len(folded) > MAX_CHARS else text


def _in_words_of_tools(text: str) -> str:
    return in_words_of_tools(in_one_word(_ROLLING_BACK.sub("rollback", _RIDDING.sub("delete", _plain(text)))))


def _plain(text: str) -> str:
    """With one kind of apostrophe, and one space between words: patterns cost much in a long run of spaces."""
    return _SPACES.sub(" ", text.replace("\u2019", "'"))


def _few(pieces: list[str]) -> list[str]:
    """At most MAX_PARTS: the rest is one more part."""
    return [*pieces[: MAX_PARTS - 1], " ".join(pieces[MAX_PARTS - 1 :])] if len(pieces) > MAX_PARTS else pieces


def _embeddable(texts: Sequence[str]) -> tuple[str, ...]:
    """The parts without CJK text, which the model hardly covers; empty if that is most of the text."""
    whole = [calm(text) for text in texts]
    return tuple(map(without_cjk, whole)) if without_cjk(" ".join(whole)) else ()


def words_of_identifiers(text: str) -> Iterator[str]:
    """The words of `load_user` and `getUserById`: such a name is mostly what to look for, not what to do."""
    for name in _IDENTIFIER.finditer(text):
        yield from words(name[0])


def names_in(text: str) -> Iterator[str]:
    """The words of a text that are written as names, in lower case."""
    for name in _NAME.finditer(text):
        yield from words(name[0])
