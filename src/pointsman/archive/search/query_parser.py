"""Parses queries: `words +must -not "a phrase" tag:x after:2024`. Any text is a valid query."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import date

from pointsman.archive.model.query import Filters, Query

MAX_CHARS = 8_000
MAX_WORDS = 64  # distinct ones; a question seldom has more than twenty
MAX_REPEATS = 8
MAX_WORD_CHARS = 80
MAX_MUSTS = 16  # of each kind
MAX_VALUES = 16  # of each filter
MOST_WORDS_WITH_OPERATORS = 12  # in running text of more, quotation marks quote
SOURCES = ("research", "url")

_ITEM = re.compile(r'([+-]?)(?:(collection|source|tag|after|before):(?=[^\s]))?(?:"([^"]*)"?|(\S+))', re.IGNORECASE)
_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u201e": '"'})
_SEPARATORS = re.compile(r"[\s,;|()\[\]{}<>\"]+")
_DAY = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")


def parse(text: str) -> Query:
    """Never fails: what is invalid is reported in `notices` or read as plain words."""
    parser = _Parser()
    if len(text) > MAX_CHARS:
        parser.notices.append(f"Only the first {MAX_CHARS} characters of the query were read.")
    for sign, name, phrase, word in _ITEM.findall(_sanitize(text[:MAX_CHARS])):
        parser.add(sign, name.lower(), phrase, word)
    return parser.query()


class _Parser:
    def __init__(self) -> None:
        self.notices: list[str] = []
        self._words: Counter[str] = Counter()
        self._prose: list[str] = []
        self._must: dict[str, None] = {}
        self._quoted: dict[str, None] = {}
        self._must_not: dict[str, None] = {}
        self._values: defaultdict[str, list[str]] = defaultdict(list)
        self._after: str | None = None
        self._before: str | None = None

    def add(self, sign: str, name: str, phrase: str, word: str) -> None:
        if name:
            self._filter(sign == "-", name, phrase or word.strip('"'))
        elif phrase:
            self._require(sign, phrase)
        elif sign and not word.startswith(("-", "+")):
            self._require(sign, word)
        else:  # people search for `--watch` and `+-3`
            for each in _SEPARATORS.split(sign + word):
                self._add_word(each)

    def query(self) -> Query:
        self._read_quoted()
        if len(self._words) > MAX_WORDS:
            self.notices.append(f"Only the first {MAX_WORDS} words of the query were searched for.")
        kept = list(self._words.items())[:MAX_WORDS]
        return Query(
            words=tuple(word for word, count in kept for _ in range(min(count, MAX_REPEATS))),
            must=self._bounded(self._must, "required words"),
            must_not=self._bounded(self._must_not, "excluded words"),
            filters=Filters(
                **{name: tuple(dict.fromkeys(values))[:MAX_VALUES] for name, values in self._values.items()},
                after=self._after,
                before=self._before,
            ),
            prose=" ".join(self._prose),
            notices=tuple(self.notices),
        )

    def _add_word(self, word: str) -> None:
        if _has_letters(word):
            self._words[_normalize(word)] += 1
            self._prose.append(word)

    def _require(self, sign: str, text: str) -> None:
        if not _has_letters(text):
            return
        if sign == "-":
            self._must_not[text[: 4 * MAX_WORD_CHARS]] = None
            return
        kept = self._must if sign else self._quoted
        kept[text[: 4 * MAX_WORD_CHARS]] = None
        self._prose.append(text)

    def _read_quoted(self) -> None:
        """A phrase is required in a short query; in running text it is one of the words."""
        if sum(self._words.values()) <= MOST_WORDS_WITH_OPERATORS:
            self._must.update(self._quoted)
            return
        if self._quoted:
            self.notices.append('Quoted phrases were not required, as the query is long. Write +"..." to require one.')
        phrases = list(self._quoted)[:MAX_MUSTS]
        self._words = Counter({phrase.lower(): 1 for phrase in phrases}) + self._words

    def _bounded(self, texts: dict[str, None], what: str) -> tuple[str, ...]:
        if len(texts) > MAX_MUSTS:
            self.notices.append(f"Only the first {MAX_MUSTS} {what} were used.")
        return tuple(texts)[:MAX_MUSTS]

    def _filter(self, negated: bool, name: str, value: str) -> None:
        value = value.strip()
        if not value:
            self._add_word(name)
        elif name in ("after", "before"):
            self._limit(name, value, (name == "after") != negated)
        elif name == "source" and value.lower() not in SOURCES:
            self.notices.append(f"`source:{value[:40]}` was ignored: a source is {' or '.join(SOURCES)}.")
        else:
            kept = value.lower() if name == "source" else value
            self._values[f"{'not_' if negated else ''}{name}s"].append(kept[:200])

    def _limit(self, name: str, value: str, lower: bool) -> None:
        day = _first_day(value)
        if day is None:
            self.notices.append(f"`{name}:{value[:40]}` was ignored: write the date as 2024, 2024-05 or 2024-05-31.")
        elif lower:
            self._after = max(day, self._after or day)
        else:
            self._before = min(day, self._before or day)


def _sanitize(text: str) -> str:
    """Normalize quotes; replace control characters and unpaired surrogates."""
    text = text.encode("utf-8", "replace").decode().translate(_QUOTES)
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def _has_letters(text: str) -> bool:
    return any(map(str.isalnum, text))


def _normalize(word: str) -> str:
    """Normalize the spelling of a word. Capitals inside it mark its parts and stay."""
    word = word.strip(".:!?'*_`~#&%=").removesuffix("'s")[:MAX_WORD_CHARS]
    return word if any(map(str.isupper, word[1:])) and not word.isupper() else word.lower()


def _first_day(value: str) -> str | None:
    found = _DAY.fullmatch(value)
    if found is None:
        return None
    year, month, day = (int(part) if part else 1 for part in found.groups())
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return None
