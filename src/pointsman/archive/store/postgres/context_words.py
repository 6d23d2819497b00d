"""The words of context items, ranked like passages. They are few: their index is in memory, made when they change."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pointsman.archive.model.context import ItemFilter
from pointsman.archive.model.query import Query
from pointsman.archive.store.base import Scope
from pointsman.archive.store.corpus import Corpus
from pointsman.archive.store.postings import Occurrences, PassageTexts, Postings, index
from pointsman.archive.store.sql.context import passing
from pointsman.archive.store.sql.database import Connection
from pointsman.archive.store.text_search import TextSearch


@dataclass(frozen=True, slots=True)
class _Index:
    """Fits `PostingsReader`. Items are numbered from 1 in the order of their rows."""

    generation: int
    rows: Sequence[int]
    postings: Postings
    corpus: Corpus

    def read(self, words: Mapping[str, int], *, positions: bool) -> Mapping[str, Sequence[Occurrences]]:
        return {word: self.postings.find(word) for word in words}

    def common(self, words: Sequence[str]) -> Mapping[str, int]:
        return dict.fromkeys(words, 0)


class ContextWords:
    """Fits `ItemRanking`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._index: _Index | None = None

    def __call__(
        self, connection: Connection, query: Query, words: Sequence[str], item_filter: ItemFilter, limit: int
    ) -> list[tuple[int, float]]:
        current = self._current(connection)
        scope = Scope(documents=_numbers(connection, current, item_filter))
        search = TextSearch(current, current.corpus)
        hits = search.search_some(replace(query, words=tuple(words)), limit, scope)
        return [(current.rows[hit.number - 1], hit.score) for hit in hits]

    def _current(self, connection: Connection) -> _Index:
        (generation,) = connection.execute("SELECT generation FROM context_state").fetchone()
        with self._lock:
            if self._index is None or self._index.generation != generation:
                self._index = _made(connection, generation)
            return self._index


def _made(connection: Connection, generation: int) -> _Index:
    found = connection.execute("SELECT row, title, content, module, parts FROM context_items ORDER BY row").fetchall()
    postings, lengths = index(PassageTexts(number, *texts) for number, (_, *texts) in enumerate(found, start=1))
    numbers = np.arange(len(found) + 1, dtype=np.int32)
    corpus = Corpus.of(numbers, numbers, np.array([0, *(lengths[number] for number in numbers[1:].tolist())], np.int32))
    return _Index(generation, [row for row, *_ in found], postings, corpus)


def _numbers(connection: Connection, current: _Index, item_filter: ItemFilter) -> frozenset[int] | None:
    if item_filter == ItemFilter():
        return None
    where, values = passing(item_filter)
    allowed = {row for (row,) in connection.execute(f"SELECT row FROM context_items WHERE {where}", values)}
    return frozenset(number for number, row in enumerate(current.rows, start=1) if row in allowed)
