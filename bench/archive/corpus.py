"""A generated archive: words as frequent as in real text, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate

from pointsman.archive.model.documents import Chunk, Document, PreparedDocument

COLLECTION = "generated"
CHUNKS_EACH = 10
WORDS_EACH = 90
VOCABULARY = 40_000
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


class Corpus:
    """Zipf's law over made-up words: few are everywhere, most are rare."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)
        words: dict[str, None] = {}
        while len(words) < VOCABULARY:
            words["".join(self._random.choices(_SYLLABLES, k=self._random.randint(2, 4)))] = None
        self.words = list(words)
        self._weights = list(accumulate(1 / (rank + 2) for rank in range(VOCABULARY)))

    def documents(self, chunks: int) -> Iterator[PreparedDocument]:
        for number in range(chunks // CHUNKS_EACH):
            yield self.document(number)

    def document(self, number: int) -> PreparedDocument:
        return self.made(number, [self.passage() for _ in range(CHUNKS_EACH)])

    def made(self, number: int, texts: list[str]) -> PreparedDocument:
        document = Document(
            collection=COLLECTION,
            id=f"part-{number % 97}/document-{number}.md",
            title=f"{self.words[number % VOCABULARY]} {self.words[number * 7 % VOCABULARY]} {number}",
            content="\n\n".join(texts),
            source="research",
            date="2024-05-31",
            tags=(self.words[number % 50],),
        )
        chunks = tuple(
            Chunk(text, f"Section {place}", 2 * place + 1, 2 * place + 1) for place, text in enumerate(texts)
        )
        return PreparedDocument(document, chunks)

    def passage(self) -> str:
        return self._text(WORDS_EACH)

    def query(self) -> str:
        """A typical query: two to six words of a text, common ones among them."""
        return self._text(self._random.randint(2, 6))

    def _text(self, words: int) -> str:
        return " ".join(self._random.choices(self.words, cum_weights=self._weights, k=words))
