"""Tells requests that are neither in English nor in the words of the catalog: they can hardly find a tool.

Besides words of English, it knows the articles, pronouns and prepositions of some other languages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from pointsman.providers.bm25.phrases import IDENTIFIER
from pointsman.providers.bm25.spelling import is_correctable, is_english, resembles_english
from pointsman.providers.bm25.values import without_values
from pointsman.providers.text import FUNCTION_WORDS, STOP_WORDS, stem, words

MAX_WORDS = 100  # of a request that are looked at
MAX_COMPARED = 16  # of them with the spelling of English words
ENGLISH_SHARE = 0.65  # of the words of an English catalog; others have about .36, real ones in English .82 and more

# Of German, French, Spanish, Italian, Portuguese and Dutch, without those that mean something else in requests: `os`,
# `met`, `per`.
_FOREIGN_WORDS = """
    der die das dem den ein eine einen einem einer eines und oder mit fur sind nicht auf von zum zur im ich mir mich
    mein meine bitte wie welche welcher welches nach aus bei uber wird
    le la les un une des du de et ou dans avec sont sur moi mon mes ce cette ces quel quelle quels quelles au qui que je
    nous vous toutes tous tout
    el los las una del con por en mis este esta estos todos todas cual para
    il lo gli di della dello nel nella che questo questa tutti tutte
    um uma dos meu minha pelo
    het een voor naar mijn alle niet
"""
_FOREIGN = frozenset(_FOREIGN_WORDS.split())
# Words of English that are as frequent in one of the others.
_SHARED = frozenset(["a", "i", "in", "an", "am", "was", "so", "as", "no", "me", "on", "do", "also", "will"])
_IDENTIFIER = re.compile(IDENTIFIER)
_CAPITAL = re.compile(r"(?<=\S\s)['\"(]?[A-Z]\w*")
_ACCENTED = re.compile("[\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f]")  # all letters, not `\u00d7`


def is_foreign(texts: Iterable[str], has: Callable[[str], bool]) -> bool:
    """Whether most words of texts are neither English nor in the catalog, which `has` tokens.

    A name, with a capital, counts only beside a function word of another language: German writes all nouns so.
    """
    text = "\n".join([_IDENTIFIER.sub(" ", without_values(text)) for text in texts])
    plain = _latin_words(_CAPITAL.sub(" ", text))
    known = [word for word in plain if _is_english(word) or has(stem(word))]
    if _FOREIGN.intersection(plain):
        unknown = [word for word in _latin_words(text) if _is_foreign(word) and not has(stem(word))]
    else:
        unknown = [word for word in plain if word not in known and _is_foreign(word)]
        if _are_misspelt(unknown[:MAX_COMPARED]):
            return False
    return len(unknown) > max(len(known), 1)  # one may be the name of a product


def seems_english(text: str) -> bool:
    """Whether a text has more words of English than of another language, so that the others may be misspelt.

    Names do not count: `delte the file of Müller` is in English.
    """
    text = _CAPITAL.sub(" ", without_values(text))
    said = words(text)[:MAX_WORDS]
    accented = [word for word in text.split() if _ACCENTED.search(word)]
    return sum(map(_is_english, said)) > len(accented) + sum(word in _FOREIGN for word in said)


def is_english_catalog(words_of_tools: Iterable[str]) -> bool:
    """Whether most words are English, which those of a few foreign names and examples do not change."""
    long = [word for word in words_of_tools if is_correctable(word)]
    return sum(map(is_english, long)) >= ENGLISH_SHARE * len(long)


def _are_misspelt(unknown: Sequence[str]) -> bool:
    """Whether most words are English ones with a slip; single words of other languages look like that, too."""
    return 2 * sum(map(resembles_english, unknown)) > len(unknown)


def _latin_words(text: str) -> list[str]:
    return [word for word in dict.fromkeys(words(text)) if word.isascii()][:MAX_WORDS]


def _is_english(word: str) -> bool:
    if word in _SHARED or word in _FOREIGN:
        return False
    return word in STOP_WORDS or word in FUNCTION_WORDS or is_english(word)


def _is_foreign(word: str) -> bool:
    return word in _FOREIGN or (is_correctable(word) and word not in STOP_WORDS and not is_english(word))
