"""What a search for whole documents asks of a store: who has which words, what they cite, what they look like."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from pointsman.archive.model.query import Filters
from pointsman.archive.text.vocabulary import Vocabulary

if TYPE_CHECKING:  # heavy: loaded with the first search
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

NodeKind = Literal["source", "target", "external"]


@dataclass(frozen=True, slots=True)
class Holders:
    """Who has a word or phrase. Numbers are the store's own."""

    passages: Numbers
    documents: Numbers  # that these belong to, one for each
    titles: Numbers  # documents that have it in the title, each once


@dataclass(frozen=True, slots=True)
class Described:
    """A document as it is shown in lists. `id` is unique among all collections."""

    id: str
    title: str
    path: str
    source: str
    date: str


@dataclass(frozen=True, slots=True)
class Reference:
    """A citation with both its ends. `target` is None while no document answers to it."""

    source: str
    target: str | None
    url: str
    context: str
    confidence: float


@dataclass(frozen=True, slots=True)
class References:
    """Of one document; `more` of them are not shown."""

    citing: tuple[Reference, ...]
    cited: tuple[Reference, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    label: str
    kind: NodeKind
    url: str | None = None  # of what is outside


@dataclass(frozen=True, slots=True)
class Edge:
    source: str
    target: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Graph:
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    truncated: bool


class ArchiveView(Protocol):
    """One consistent state of the archive."""

    def total(self) -> int:
        """How many passages there are."""
        ...

    def seen(self, text: str, most: int) -> int:
        """In how many passages a word or phrase stands; counting ends above `most`."""
        ...

    def holders(self, text: str) -> Holders: ...

    def together(self, texts: Sequence[Sequence[str]]) -> Numbers:
        """Documents with a passage that has one of each group."""
        ...

    def lengths(self, documents: Numbers) -> Numbers:
        """How many passages each has."""
        ...

    def within(self, filters: Filters) -> Numbers | None:
        """Documents that pass; None: all do."""
        ...

    def hidden(self, filters: Filters) -> Numbers:
        """Documents of hidden collections, which `within` and `newest` do not look at."""
        ...

    def newest(self, filters: Filters, limit: int) -> list[int]:
        """The latest documents that pass."""
        ...

    def described(self, documents: Sequence[int]) -> dict[int, Described]: ...

    def marked_title(self, document: int, texts: Sequence[str]) -> str | None:
        """The title with `<mark>` round these, escaped; None where it has none of them."""
        ...

    def marked_passage(self, passage: int, texts: Sequence[str]) -> str | None:
        """The best part of a passage, likewise."""
        ...

    def vocabulary(self) -> Vocabulary: ...

    def references(self, document: int, most: int) -> References:
        """What it cites and by whom it is cited, the surest first and at most so many of each."""
        ...

    def graph(self, documents: Sequence[int], depth: int, most: int) -> Graph:
        """What is reached from these by citations, in both directions, at most so many nodes."""
        ...


class ArchiveStore(Protocol):
    def reading(self) -> AbstractContextManager[ArchiveView]:
        """Raises StoreError."""
        ...
