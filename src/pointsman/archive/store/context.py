"""The part of the store for project context: what was learned about a project, and which files are read most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pointsman.archive.model.context import Access, ContextItem, ItemFilter
from pointsman.archive.model.query import Query


@dataclass(frozen=True, slots=True)
class ItemVector:
    """The vector of an item in half precision, with the attributes that filters use."""

    row: int
    type: str
    module: str | None
    vector: bytes


@dataclass(frozen=True, slots=True)
class ContextStats:
    items: int
    embedded: int  # of them, in the given space
    by_source: Mapping[str, int]


class ContextStore(Protocol):
    """Items belong to an origin (a file, a command) and are replaced together. All methods raise StoreError."""

    def replace(self, origin: str, digest: str, items: Sequence[ContextItem]) -> None:
        """Set the items of an origin. An item whose id belonged to another origin moves here."""
        ...

    def add(self, item: ContextItem) -> None: ...

    def forget(self, origins: Iterable[str]) -> None: ...

    def remove(self, item_id: str) -> bool: ...

    def digests(self, prefix: str) -> dict[str, str]:
        """The origins whose names have this prefix, with the digest of what was read from them."""
        ...

    def by_origin(self) -> dict[str, list[ContextItem]]:
        """All items, oldest first."""
        ...

    def stats(self, space: str) -> ContextStats: ...

    def generation(self) -> int:
        """A number that grows with every change of an item or a vector, in any process."""
        ...

    def find(self, query: Query, item_filter: ItemFilter, limit: int) -> list[tuple[int, float]]:
        """Rows with some of the words, best first, with their BM25 score (higher is better)."""
        ...

    def items(self, rows: Sequence[int]) -> dict[int, ContextItem]: ...

    def newest(self, item_filter: ItemFilter, limit: int) -> list[ContextItem]: ...

    def vectors(self, space: str) -> list[ItemVector]: ...

    def without_vector(self, space: str, limit: int) -> list[tuple[int, str]]:
        """Rows without a vector in this space, with the text to embed."""
        ...

    def put_vectors(self, space: str, vectors: Sequence[tuple[int, bytes]]) -> None: ...

    def record_accesses(self, accesses: Sequence[Access]) -> None:
        """Add these counts to the stored ones."""
        ...

    def accesses(self, most: int) -> list[Access]:
        """The most recent ones."""
        ...
