"""Stand-ins for words of a request that a catalog does not have: its own words, or synonyms of them, spelt alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import chain, islice

from pointsman.providers.bm25.actions import NON_READING_VERBS, VERBS

CORRECTED_WEIGHT = 0.8  # of a word that may be meant, relative to one that is written
SHORTEST = 4  # letters: among shorter words, one slip leads to many others
SHORT_VERB = 5  # letters: another one makes another verb, `crear` is not `clear`
LONGEST = 24  # letters; longer ones are compounds and ids
LONG = 8  # letters from which a word may have two slips
MAX_STAND_INS = 3
MAX_WORDS = 50_000  # that are looked through; real catalogs have far fewer
MAX_ALIKE = 1_000  # of them with the same ends; real catalogs have a few hundred
MAX_CORRECTED = 32  # words of one request; a longer list of unknown words is not a misspelt request
KEPT = 1_024  # words of requests whose stand-ins are remembered


Corrections = Mapping[str, Sequence[str]]  # the words that may be meant by a token

_WORD = re.compile(r"[A-Za-z]+")
_PLAIN_WORD = re.compile(
    r"(?<![\w./\\@:-])[A-Za-z]{4,24}(?![\w/\\@:-]|\.\w)"
)  # no part of an identifier, a path or an address

# Other words of requests than verbs and subjects; `phrases` and `actions` look for these words.
_WORDS_OF_REQUESTS = """
    about between called changed changes code commit commits current date different directory document documentation
    documents everything file files folder forget function gets have history into know named page pages part remember
    section since that them then there these this those time today used uses website when where which what whom whose
    who will with without written your
"""
_COMMON = VERBS.union(_WORDS_OF_REQUESTS.split())


def is_correctable(word: str) -> bool:
    return SHORTEST <= len(word) <= LONGEST and word.isascii() and word.isalpha()


def is_english(word: str) -> bool:
    """Whether a word of `SHORTEST` letters or more is one of English."""
    return word in _english()


def resembles_english(word: str) -> bool:
    """Whether a word is spelt like one of English, with one slip after the first letter, or is a form of one."""
    from rapidfuzz.distance import OSA
    from rapidfuzz.process import extractOne

    return extractOne(word, _english_by_letter().get(word[0], ()), scorer=OSA.distance, score_cutoff=1) is not None


def with_common_words(text: str, is_known: Callable[[str], bool], is_in_english: Callable[[str], bool]) -> str:
    """Correct the words by which requests are understood, in any catalog: `waht is the tiem` asks what the time is.

    A word that the catalog knows, one of English, and a name, which has a capital inside a sentence, stay as they are;
    and so does a text in another language: `crear` is not `clear`.
    """
    unknown: dict[str, str | None] = {}

    def corrected(match: re.Match[str]) -> str:
        word = match[0].lower()
        if word in _COMMON or word in _english() or (match[0] != word and not _begins_sentence(match)):
            return match[0]
        if word not in unknown:
            if len(unknown) >= MAX_CORRECTED or is_known(word):
                return match[0]
            unknown[word] = _common_word(word)
        return unknown[word] or match[0]

    spelt = _PLAIN_WORD.sub(corrected, text)
    return spelt if spelt != text and is_in_english(text) else text


def _begins_sentence(word: re.Match[str]) -> bool:
    before = word.string[max(word.start() - 3, 0) : word.start()].rstrip(" ")
    return before[-1:] in ".!?:\n" if before else word.start() <= 3


@lru_cache(maxsize=KEPT)
def _common_word(word: str) -> str | None:
    from rapidfuzz.distance import OSA
    from rapidfuzz.process import extract

    alike = _common_by_letter().get(word[0], ())
    slips = 2 if len(word) >= LONG else 1
    found = extract(word, alike, scorer=OSA.distance, score_cutoff=slips, limit=None)
    likely = [common for common, distance, _ in found if distance == found[0][1] and not _is_another(common, word)]
    return likely[0] if len(likely) == 1 else None  # of several, it may be any


@lru_cache(maxsize=1)
def _common_by_letter() -> dict[str, list[str]]:
    return _by_letter(_COMMON)


def _is_another(common: str, word: str) -> bool:
    """Whether a word has another letter than a common one that is short: `docs` is not `does`, `crear` is not `clear`.

    A letter that is left out, added or swapped is a slip.
    """
    replaced = len(common) == len(word) and sorted(common) != sorted(word)
    return replaced and len(word) <= (SHORT_VERB if common in NON_READING_VERBS else SHORTEST)


class Spelling:
    """The words of one catalog, by their first and by their last letters.

    The first letter is rarely wrong, and a slip is at one end of a word or at the other: the word that is meant has the
    same first letter, and the next or the last ones in common with what is written.
    """

    def __init__(self, words: Iterable[str], synonyms: Iterable[str] = ()) -> None:
        """`synonyms`: words that stand for words of the catalog."""
        self._by_ends: dict[str, list[str]] = {}
        own = list(islice(words, MAX_WORDS))
        self._synonyms = frozenset(synonyms).difference(own)
        for word in chain(own, sorted(self._synonyms)):
            for key in _ends(word):
                alike = self._by_ends.setdefault(key, [])
                if len(alike) < MAX_ALIKE:
                    alike.append(word)
        self.stand_ins = lru_cache(maxsize=KEPT)(self._stand_ins)

    def _stand_ins(self, word: str) -> tuple[str, ...]:
        """The words that are spelt most like a word: those with the fewest slips between them.

        Synonyms only if none of the catalog's own words is as near.

        A word of English is meant as it is written: `bank` is not `back`.
        """
        if not is_correctable(word) or word in _english():
            return ()
        from rapidfuzz.distance import OSA  # at first use: most requests are spelt correctly
        from rapidfuzz.process import extract

        alike = dict.fromkeys(known for key in _ends(word) for known in self._by_ends.get(key, ()))
        candidates = sorted(alike, key=self._synonyms.__contains__)
        slips = 2 if len(word) >= LONG else 1
        found = extract(word, candidates, scorer=OSA.distance, score_cutoff=slips, limit=MAX_STAND_INS)
        nearest = [known for known, distance, _ in found if distance == found[0][1]]
        return tuple(known for known in nearest if known not in self._synonyms) or tuple(nearest)


@lru_cache(maxsize=1)
def _english() -> frozenset[str]:
    """The 20,000 or so words in the vocabulary of the sentence encoder, which ships with us for its tokens."""
    text = files("pointsman.providers.semantic").joinpath("vocab.txt").read_text(encoding="utf-8")
    return frozenset(filter(is_correctable, text.split("\n")))


@lru_cache(maxsize=1)
def _english_by_letter() -> dict[str, list[str]]:
    return _by_letter(_english())


def _by_letter(words: Iterable[str]) -> dict[str, list[str]]:
    by_letter: dict[str, list[str]] = {}
    for word in sorted(words):
        by_letter.setdefault(word[0], []).append(word)
    return by_letter


def replace_words(text: str, meant: Mapping[str, str]) -> str:
    """The text with the words that are meant in place of those that are written. A name, with a capital, stays."""
    return _WORD.sub(lambda word: meant.get(word[0], word[0]), text) if meant else text


def _ends(word: str) -> tuple[str, str]:
    return word[:2], f"{word[0]}-{word[-2:]}"
