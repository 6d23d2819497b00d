"""What a search reads after a write: what the write has changed. What was read before stays true."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

from pointsman.archive.search.query_parser import parse
from pointsman.archive.search.vectors import VectorIndex
from pointsman.archive.store import phrase_frequencies, postings
from pointsman.archive.store.base import Scope, Space
from pointsman.archive.store.lru_cache import OVERHEAD, LruCache
from pointsman.archive.store.phrase_frequencies import Part, Parts
from pointsman.archive.store.sql.database import Connection
from pointsman.archive.store.sql.words import SqlWords
from tests.archive.engines import AnyStorage, Place
from tests.archive.sample_documents import fill, prepared

SPACE = Space("test", "constant", 8)
WORDS = [f"{first}{second}" for first in ("kettle", "walrus", "tide", "stone", "cup") for second in "abcdefgh"]
QUESTIONS = ["kettlea", "walrusb tidec", f'"{WORDS[3]} {WORDS[7]}" stoned', "+cupe -kettleb", "getUserName"]


class Counting:
    """A view that counts the rows that are read, by table."""

    def __init__(self, connection: Any, read: dict[str, int]) -> None:
        self._connection, self._read = connection, read

    @property
    def memo(self) -> object:
        return self._connection.memo

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        found = self._connection.execute(sql, parameters).fetchall()
        tables = ("segments",) if "LEFT JOIN segments" in sql else ("postings", "passages", "vectors")
        for table in tables:
            if f"FROM {table}" in sql or f"JOIN {table}" in sql:
                self._read[table] = self._read.get(table, 0) + len(found)
        return _Rows(found)


class _Rows(list[Any]):
    def fetchall(self) -> list[Any]:
        return list(self)

    def fetchone(self) -> Any:
        return self[0] if self else None


@pytest.fixture
def read(storage: AnyStorage, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many rows views have read, by table. The housekeeper works only when it is told to."""
    storage.housekeeper.close()
    counted: dict[str, int] = {}
    reading = storage.database.reading

    @contextmanager
    def counting() -> Iterator[Any]:
        with reading() as connection:
            yield Counting(connection, counted)

    monkeypatch.setattr(storage.database, "reading", counting)
    return counted


def write_some(storage: AnyStorage, chance: random.Random, turns: int) -> None:
    for _ in range(turns):
        texts = [" ".join(chance.choices(WORDS, k=12)) for _ in range(chance.randint(1, 4))]
        fill(storage, prepared(f"{chance.randrange(30)}.md", *texts))
        if chance.random() < 0.2:
            storage.documents.remove_documents("notes", [f"{chance.randrange(30)}.md"])


def embed(storage: AnyStorage) -> None:
    waiting = storage.vectors.pending(SPACE, 1_000)
    storage.vectors.put(SPACE, [(each.number, np.ones(8, "<f2").tobytes()) for each in waiting])


def test_after_an_update_a_search_reads_what_is_new(storage: AnyStorage, read: dict[str, int]) -> None:
    index = VectorIndex(storage.vectors)
    fill(storage, *(prepared(f"{number}.md", f"kettle walrus{number}", "tide") for number in range(200)))
    storage.housekeeper.tidy()
    embed(storage)
    query = parse("kettle tide zebra")
    storage.passages.search(query, 1_000, enough=1)
    index.refresh()
    assert read["passages"] >= 400
    assert read["vectors"] >= 400
    fill(storage, prepared("7.md", "kettle zebra", "tide"))
    embed(storage)

    read.clear()
    hits = storage.passages.search(query, 1_000, enough=1_000)
    index.refresh()
    assert len(hits) == 400
    # The directory and the block of the new segment. The new passage and the tombstone of the old one, and the passage
    # that comes with its vector. Two states, one of each view.
    assert read == {"postings": 2, "passages": 2 + 1, "vectors": 1, "segments": 2 + 2}

    read.clear()
    storage.passages.search(query, 1_000, enough=1_000)
    assert read.keys() == {"segments"}


@pytest.mark.parametrize("most_parts", [2, 16])
def test_what_is_kept_over_writes_and_merges_equals_what_is_read_anew(
    storage: AnyStorage, place: Place, monkeypatch: pytest.MonkeyPatch, most_parts: int
) -> None:
    """In views of every age: one is opened before each round of writes, and all of them search after each."""
    monkeypatch.setattr(storage.documents, "_wake_housekeeper", lambda: None)
    monkeypatch.setattr(postings, "POSTINGS_PER_BLOCK", 16)
    monkeypatch.setattr(phrase_frequencies, "_MOST_PARTS", most_parts)
    monkeypatch.setattr(phrase_frequencies, "_PARTS_APART", 1)
    kept = SqlWords(storage.database)
    chance = random.Random(most_parts)
    write_some(storage, chance, 20)
    with ExitStack() as stack:
        views: list[Connection] = []
        for turn in range(5):
            other = place.open()
            stack.callback(other.close)
            view: Any = stack.enter_context(other.database.reading())
            view.execute("SELECT count(*) FROM passages").fetchone()  # it begins
            views.append(view)
            for each in reversed(views):
                new = SqlWords(storage.database)
                assert [found(kept, each, question) for question in QUESTIONS] == [
                    found(new, each, question) for question in QUESTIONS
                ]
            write_some(storage, chance, 6)
            if turn % 2:
                storage.housekeeper.tidy()


def found(words: SqlWords, view: Connection, question: str) -> list[tuple[int, float]]:
    search = words._search(view)
    hits = search.search(parse(question), 1_000, enough=1, scope=Scope())
    return [(hit.number, hit.score) for hit in hits]


def test_a_replaced_value_is_counted_once() -> None:
    def parts(passages: int) -> Parts:
        return Parts((Part(1, 0, np.zeros(passages, np.int32), np.zeros(passages, np.float32)),))

    cache = LruCache[str, Parts](2 * (parts(100).bytes + OVERHEAD))
    for _ in range(10):
        cache.put("a", parts(100))
    cache.put("b", parts(100))
    assert cache.get("a") is not None
    cache.put("c", parts(100))
    assert cache.get("b") is None
    assert cache.get("a") is not None
