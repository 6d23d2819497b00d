"""The part of the store that keeps what projects have learned, and which files are read most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pointsman.archive.model.context import Access, ContextItem, Wanted
from pointsman.archive.model.query import Query


@dataclass(frozen=True, slots=True)
class KnownVector:
    """An item's vector in half precision, with what it can be filtered by."""

    row: int
    type: str
    module: str | None
    vector: bytes


@dataclass(frozen=True, slots=True)
class ContextFigures:
    items: int
    embedded: int  # of them, in the space asked for
    by_source: Mapping[str, int]


class ContextStore(Protocol):
    """Items belong to an origin (a file, a command) and are replaced with it. All methods raise StoreError."""

    def replace(self, origin: str, digest: str, items: Sequence[ContextItem]) -> None:
        """What the origin holds now. An item whose id another origin had moves here."""
        ...

    def add(self, item: ContextItem) -> None: ...

    def forget(self, origins: Iterable[str]) -> None: ...

    def remove(self, item_id: str) -> bool: ...

    def digests(self, prefix: str) -> dict[str, str]:
        """The origins whose names begin so, with the digest of what was read from them."""
        ...

    def figures(self, space: str) -> ContextFigures: ...

    def generation(self) -> int:
        """Changes whenever an item or a vector does, whoever changed it."""
        ...

    def find(self, query: Query, wanted: Wanted, limit: int) -> list[tuple[int, float]]:
        """Rows that have some of the words, best first, with their BM25 (higher is better)."""
        ...

    def items(self, rows: Sequence[int]) -> dict[int, ContextItem]: ...

    def newest(self, wanted: Wanted, limit: int) -> list[ContextItem]: ...

    def vectors(self, space: str) -> list[KnownVector]: ...

    def without_vector(self, space: str, limit: int) -> list[tuple[int, str]]:
        """Rows that have none in this space, with the text to embed."""
        ...

    def put_vectors(self, space: str, vectors: Sequence[tuple[int, bytes]]) -> None: ...

    def note_accesses(self, accesses: Sequence[Access]) -> None:
        """Add these counts to the known ones."""
        ...

    def accesses(self, most: int) -> list[Access]:
        """Those read last."""
        ...
