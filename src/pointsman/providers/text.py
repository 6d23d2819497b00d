"""Splits text into tokens, the same way for documents and for queries. Needs only `stemmer` and `word_forms`."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from pointsman.providers.stemmer import english
from pointsman.providers.word_forms import american, base_forms

MAX_TOKEN_CHARS = 64
_KEPT_CHARS = 32  # of a text between spaces whose words are kept

# A class of characters with thousands of members takes 3 ms to compile, so `re` does it at first use.
CJK = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_APOSTROPHE = re.compile(r"(?<=\w)['\u2019](?=\w)")
# Runs of one kind of character: a plural acronym (URLs), an acronym (the HTTP of HTTPServer), a word, digits; and, in
# text that is not ASCII alone, Chinese, Japanese and Korean, and the letters of all other scripts.
_ASCII_PIECE = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PIECE = f"{_ASCII_PIECE.pattern}|(?P<cjk>[{CJK}]+)|[^\\W0-9A-Za-z_{CJK}]+"
# Names with a capital inside: GitHub, eBay and OAuth are also searched as one word.
_COMPOUND = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Z][a-z]+[A-Z][A-Za-z]*|[a-z][A-Z][a-z]+|[A-Z]{2}[a-z]{2,})(?![A-Za-z0-9])"
)

# Articles, pronouns, prepositions, conjunctions and auxiliaries.
_GRAMMAR = """
    a an the this that these those some any each every all both such no not nor
    i me my mine myself we us our ours you your yours he him his she her hers it its they them their theirs
    who whom whose which what when where why how whether
    everything anything something nothing everyone anyone someone everybody anybody somebody
    of in on at by to from for with without into onto upon over under between about as than then and or but if so
    is are was were be been being am do does did done doing have has had having
    will would shall should can could may might must ought
    there here just only also too very more most much many few own same other another again once ever
    im ive youre youve weve theyre hes shes thats whats whos wheres hows lets
    dont doesnt didnt cant couldnt wont wouldnt shouldnt isnt arent wasnt werent havent hasnt
"""
# Politeness and filler before the actual request.
_COURTESY = """
    please kindly thanks thank hi hello hey sorry help helping want wants wanted need needs needed wish like
    love try trying let tell give know hoping wondering wonder interested looking able using use via
"""
FUNCTION_WORDS = frozenset(_GRAMMAR.split())
# A request that asks why wants a tool that knows reasons, and few tools say the word. `used` is no stop word either: it
# is all that `where is parse_header used` says besides a name.
STOP_WORDS = (FUNCTION_WORDS - {"why"}) | frozenset(_COURTESY.split())


_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[\u3002\uff01\uff1f\uff1b])|\n+")
_SENTENCE_STOP = re.compile(r"[.!?;](?=\s)|[\n\u3002\uff01\uff1f\uff1b]")  # the same places, quicker to find
_REGULAR_EXPRESSION = re.compile(r"\bregular[ -]expressions?\b", re.IGNORECASE)
_BETWEEN = re.compile(r"[\W_]+")


def _one_of(letters: str) -> re.Pattern[str]:
    return re.compile(f"[{letters}]")


def has_cjk(text: str) -> bool:
    return not text.isascii() and _one_of(CJK).search(text) is not None


# Scripts that requests are written in, by the letters that only they have.
_SCRIPTS = (
    CJK,
    "\u0370-\u03ff\u1f00-\u1fff",  # Greek
    "\u0400-\u052f",  # Cyrillic
    "\u0530-\u058f",  # Armenian
    "\u0590-\u05ff",  # Hebrew
    "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefc",  # Arabic
    "\u0900-\u0dff",  # of India and Sri Lanka
    "\u0e00-\u0eff",  # Thai, Lao
    "\u1000-\u109f",  # Burmese
    "\u10a0-\u10ff",  # Georgian
    "\u1200-\u139f",  # Ethiopic
    "\u1780-\u17ff",  # Khmer
)


def foreign_script(text: str) -> re.Pattern[str] | None:
    """The letters of the script that most of a text is written in, unless that is Latin or another one."""
    if text.isascii():
        return None
    letters = sum(map(str.isalpha, text))
    return next((script for script in map(_one_of, _SCRIPTS) if 2 * len(script.findall(text)) > letters), None)


def calm(text: str) -> str:
    """Normalize text for the embedding model: plain characters, and no all-caps. Other capitals carry meaning."""
    text = plain_text(text)
    return text.lower() if text.isupper() else text


def without_cjk(text: str) -> str:
    """The text without CJK characters, for a model of Latin text; empty if they are most of its letters."""
    if not has_cjk(text):
        return text
    rest, count = _one_of(CJK).subn(" ", text)
    return rest if 2 * count <= count + sum(map(str.isalpha, rest)) else ""


def without_stop_words(text: str) -> str:
    return " ".join([word for word in text.split() if squeezed(word) not in STOP_WORDS])


def in_one_word(text: str) -> str:
    """Say phrases by the word that means the same, in requests and in the texts of tools."""
    return _REGULAR_EXPRESSION.sub("regex", text) if "xpression" in text else text


def sentences(text: str) -> list[str]:
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip()]


def first_sentence(text: str) -> str:
    """The first of `sentences`; empty if there is none."""
    begin = 0
    for end in _SENTENCE_STOP.finditer(text):
        sentence = text[begin : end.start() if end[0] == "\n" else end.end()]
        if sentence.strip():
            return sentence
        begin = end.end()
    rest = text[begin:]
    return rest if rest.strip() else ""


def words(text: str) -> list[str]:
    """The words of a text in lower case and in order, including stop words; of CJK text pairs of characters.

    Compounds come after all others.
    """
    found: list[str] = []
    compounds: list[str] = []
    for chunk in _folded(text).split():
        pieces, joined = _known_chunk(chunk) if len(chunk) <= _KEPT_CHARS else _words_of(chunk)
        found += pieces
        if joined:
            compounds += joined
    return found + compounds


def words_with_tokens(text: str) -> list[tuple[str, str]]:
    """The words of a text that are not stop words, each with its token; in the order of `words`."""
    found: list[tuple[str, str]] = []
    compounds: list[tuple[str, str]] = []
    for chunk in _folded(text).split():
        pieces, joined = _known_tokens(chunk) if len(chunk) <= _KEPT_CHARS else _tokens_of(chunk)
        found += pieces
        if joined:
            compounds += joined
    return found + compounds


def with_tokens(words: list[str]) -> list[tuple[str, str]]:
    """Those of `words` that are not stop words, each with its token."""
    return [(word, stem(word)) for word in words if word not in STOP_WORDS]


def _words_of(chunk: str) -> tuple[list[str], list[str]]:
    """The words of a text without spaces, and its compounds."""
    pieces: list[str] = []
    pattern = _ASCII_PIECE if chunk.isascii() else re.compile(_PIECE)
    for piece in pattern.finditer(chunk):
        word = piece.group().lower()
        if piece.lastgroup == "cjk":
            pieces += _pairs(word)
        elif len(word) <= MAX_TOKEN_CHARS:
            pieces.append(word)
    compounds = [compound.group().lower() for compound in _COMPOUND.finditer(chunk)]
    return pieces, [word for word in compounds if len(word) <= MAX_TOKEN_CHARS]


def _tokens_of(chunk: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    pieces, compounds = _words_of(chunk)
    return with_tokens(pieces), with_tokens(compounds)


# The same words come again and again.
_known_chunk = lru_cache(maxsize=4_096)(_words_of)
_known_tokens = lru_cache(maxsize=8_192)(_tokens_of)


def tokens(text: str) -> list[str]:
    """The stems of the words that are not stop words."""
    return [token for _, token in words_with_tokens(text)]


def beginnings(token: str) -> frozenset[str]:
    """The first letters that words with this token may have: irregular forms, like `went`, begin otherwise."""
    forms = [form for form, base in _base_forms.items() if base == token]
    dying = [f"{token[0]}ying"] if len(token) == 3 and token.endswith("ie") else []
    return frozenset(_kept_by_stemmer(stem) for stem in (token, *forms, *dying))


def _kept_by_stemmer(stem: str) -> str:
    """What a stem has in common with all its words: they end in `-bility` for `-ble`, and in `-y` for `-i`."""
    changed = 2 if stem.endswith(("bl", "ble")) else stem.endswith(("e", "i", "y", "z"))
    return stem[: max(1, len(stem) - changed)]


def squeezed(text: str) -> str:
    """Letters and digits only, in one case: the same for all spellings of one name."""
    return _BETWEEN.sub("", plain_text(text)).casefold()


def stem(word: str) -> str:
    """The stem of a word of letters, the same for irregular forms and British spellings.

    Ids and numbers are returned as they are and do not fill the cache.
    """
    return _stem(word) if word.isascii() and word.isalpha() else word


def is_plural(word: str) -> bool:
    """Whether a word looks like a plural: `issues`, and not `status`, `access` or `analysis`."""
    return len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))


@lru_cache(maxsize=16_384)
def _stem(word: str) -> str:
    stemmer = getattr(_local, "stemmer", None)
    if stemmer is None:
        stemmer = _local.stemmer = english()  # loaded at first use
        if not _base_forms:
            _base_forms.update(base_forms(stemmer.stemWord))  # at once: another thread sees all of them or none
    found = str(stemmer.stemWord(word))
    return _base_forms.get(found) or american(found)


_local = threading.local()
_base_forms: dict[str, str] = {}


def _folded(text: str) -> str:
    """Remove apostrophes inside words."""
    plain = plain_text(text)
    return _APOSTROPHE.sub("", plain) if "'" in plain or "\u2019" in plain else plain


def plain_text(text: str) -> str:
    """Normalize characters: resolve full-width forms and ligatures, remove accents and invisible marks."""
    if text.isascii():
        return text
    return "".join(map(_plain_character, unicodedata.normalize("NFKC", text)))


@lru_cache(maxsize=4_096)
def _plain_character(character: str) -> str:
    if unicodedata.category(character) == "Cf":  # soft hyphens, joiners, direction marks: invisible
        return ""
    if not "\u00c0" <= character <= "\u024f":
        return character
    return unicodedata.normalize("NFKD", character)[0]


def _pairs(run: str) -> Iterator[str]:
    """Each two neighbours, and each Chinese character by itself: it carries the meaning of the words that have it."""
    if len(run) == 1:
        yield run
        return
    for start in range(len(run) - 1):
        yield run[start : start + 2]
    yield from _one_of(_HAN).findall(run)
