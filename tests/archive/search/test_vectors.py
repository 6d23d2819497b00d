"""The matrices in memory follow the store, whichever process writes to it, and compare exactly."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pointsman.archive.search import vectors
from pointsman.archive.search.vectors import VectorIndex
from pointsman.archive.store.base import Scope, Space, StoredVector, VectorFilter
from pointsman.archive.store.sql import housekeeper
from tests.archive.engines import AnyStorage, Place
from tests.archive.sample_documents import fill, prepared

SPACE = Space("test", "random", 8)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "BLOCK", 4)


def embed(storage: AnyStorage, space: Space = SPACE) -> None:
    """A made-up vector for each passage that has none; the same number, the same vector."""
    waiting = storage.vectors.pending(space, 1_000)
    storage.vectors.put(space, [(each.number, vector(each.number).astype("<f2").tobytes()) for each in waiting])


def vector(number: int) -> NDArray[np.float32]:
    found = np.random.default_rng(number).standard_normal(8).astype("<f4")
    unit: NDArray[np.float32] = (found / np.linalg.norm(found)).astype("<f2").astype("<f4")  # as they are kept
    return unit


def expected(query: NDArray[np.float32], numbers: list[int]) -> list[int]:
    return sorted(numbers, key=lambda number: -float(vector(number) @ query))


def nearest(index: VectorIndex, limit: int = 100, wanted: VectorFilter | None = None) -> list[int]:
    index.refresh()
    return [near.number for near in index.nearest(vector(0), limit, wanted or VectorFilter())]


def test_it_finds_the_nearest_over_all_collections_or_some(storage: AnyStorage) -> None:
    fill(storage, *(prepared(f"{number}.md", "x", "y") for number in range(6)))
    fill(storage, *(prepared(f"{number}.md", "x") for number in range(3)), collection="other")
    embed(storage)
    index = VectorIndex(storage.vectors)
    everything = expected(vector(0), list(range(1, 16)))
    assert nearest(index) == everything
    assert nearest(index, 4) == everything[:4]
    within = Scope(collections=frozenset([2]))
    assert nearest(index, wanted=VectorFilter(within)) == [number for number in everything if number > 12]
    only = VectorFilter(Scope(documents=frozenset([1, 2])), frozenset([1, 2, 3]), frozenset([2]))
    assert nearest(index, wanted=only) == [number for number in everything if number in (1, 3)]


def test_it_follows_what_others_put_replace_and_remove(storage: AnyStorage, place: Place) -> None:
    index = VectorIndex(storage.vectors)
    assert nearest(index) == []
    other = place.open()  # as another process would
    fill(other, prepared("a.md", "one", "two"), prepared("b.md", "three"))
    embed(other)
    assert nearest(index) == expected(vector(0), [1, 2, 3])
    fill(other, prepared("a.md", "one", "TWO"))
    assert nearest(index) == expected(vector(0), [1, 3])
    embed(other)
    other.documents.remove_documents("notes", ["b.md"])
    other.housekeeper.tidy()
    assert nearest(index) == expected(vector(0), [1, 4])
    other.documents.remove_collection("notes")
    assert nearest(index) == []
    other.close()


def test_it_begins_afresh_after_another_model_and_after_too_long_an_absence(
    storage: AnyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeper, "TOMBSTONES_KEPT", 1)
    fill(storage, *(prepared(f"{number}.md", "x") for number in range(8)))
    embed(storage)
    index = VectorIndex(storage.vectors)
    assert len(nearest(index)) == 8
    storage.documents.remove_documents("notes", [f"{number}.md" for number in range(5)])
    storage.housekeeper.tidy()
    assert nearest(index) == expected(vector(0), [6, 7, 8])
    other = Space("test", "other", 8)
    embed(storage, other)
    assert index.refresh() == SPACE
    storage.vectors.switch_to(other)
    assert index.refresh() == other
    assert len(nearest(index)) == 3


def test_rows_are_used_again(storage: AnyStorage) -> None:
    index = VectorIndex(storage.vectors)
    for turn in range(10):
        fill(storage, prepared("a.md", f"text {turn}"), prepared("b.md", f"other {turn}"))
        embed(storage)
        assert len(nearest(index)) == 2
    (only,) = index._matrices.values()
    assert len(only.numbers) == 4


def test_a_centroid_is_the_middle_of_those_that_have_vectors(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "one", "two"))
    index = VectorIndex(storage.vectors)
    index.refresh()
    assert index.centroid([1, 2]) is None
    embed(storage)
    index.refresh()
    middle = vector(1) + vector(2)
    found = index.centroid([1, 2, 99])
    assert found is not None
    assert np.allclose(found, middle / np.linalg.norm(middle), atol=1e-6)


def test_many_vectors_are_compared_by_their_signs_first_and_filters_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(5)
    centres = chance.standard_normal((60, 64))
    made = centres[chance.integers(0, 60, 3_000)] + 0.7 * chance.standard_normal((3_000, 64))
    made = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype("<f2")
    matrix = vectors.Matrix(64)
    matrix.put(
        [StoredVector(number, number % 10, 1, each.tobytes()) for number, each in enumerate(made[:1_000], start=1)]
    )
    matrix.put(
        [StoredVector(number, number % 10, 1, each.tobytes()) for number, each in enumerate(made[1_000:], start=1_001)]
    )
    for row in range(0, 3_000, 7):
        matrix.drop(row)
    queries = made[1:2_000:40].astype(np.float32) + 0.3 * chance.standard_normal((50, 64)).astype(np.float32) / 8
    wanted = VectorFilter(Scope(documents=frozenset(range(8))), never=frozenset(range(500, 600)))

    def found(query: NDArray[np.float32]) -> list[int]:
        return [near.number for near in matrix.nearest(query, 10, wanted)]

    exact = [found(query) for query in queries]
    monkeypatch.setattr(vectors, "EXACT_UP_TO", 500)
    monkeypatch.setattr(vectors, "LIKELY", 400)
    likely = [found(query) for query in queries]
    same = sum(len(set(one) & set(other)) for one, other in zip(exact, likely, strict=True))
    assert same >= 0.97 * 10 * len(queries)
    for numbers in likely:
        assert len(numbers) == 10
        assert all(number % 10 < 8 and not 500 <= number < 600 and (number - 1) % 7 for number in numbers)


def test_a_limit_above_all_vectors_returns_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "EXACT_UP_TO", 2)
    monkeypatch.setattr(vectors, "LIKELY", 1)
    matrix = vectors.Matrix(8)
    matrix.put([StoredVector(number, 0, 0, vector(number).astype("<f2").tobytes()) for number in range(1, 10)])
    found = matrix.nearest(vector(0), 100, VectorFilter())
    assert [near.number for near in found] == expected(vector(0), list(range(1, 10)))
