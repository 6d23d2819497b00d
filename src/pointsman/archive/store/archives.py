"""The part of the store that searches whole documents: their words, their citations, their descriptions."""

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
class Postings:
    """The passages and documents that contain a word or phrase, in numbers of the store."""

    passages: Numbers
    documents: Numbers  # the document of each passage
    titles: Numbers  # documents that have it in the title, without duplicates


@dataclass(frozen=True, slots=True)
class DocumentDescription:
    """A document as lists show it. `id` is unique across collections."""

    id: str
    title: str
    path: str
    source: str
    date: str


@dataclass(frozen=True, slots=True)
class Reference:
    """A citation with both its ends. `target` is None while it is unresolved."""

    source: str
    target: str | None
    url: str
    context: str
    confidence: float


@dataclass(frozen=True, slots=True)
class References:
    """The citations of one document and those that lead to it; `more` were left out."""

    citing: tuple[Reference, ...]
    cited: tuple[Reference, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    label: str
    kind: NodeKind
    url: str | None = None  # of an external node


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

    def passage_count(self) -> int: ...

    def count_passages(self, text: str, most: int) -> int:
        """Count the passages with a word or phrase; stop above `most`."""
        ...

    def postings(self, text: str) -> Postings: ...

    def documents_with_all(self, groups: Sequence[Sequence[str]]) -> Numbers:
        """Documents with a passage that has one text of each group."""
        ...

    def lengths(self, documents: Numbers) -> Numbers:
        """The number of passages of each."""
        ...

    def within(self, filters: Filters) -> Numbers | None:
        """Documents that pass the filters; None: all do."""
        ...

    def hidden(self, filters: Filters) -> Numbers:
        """Documents of hidden collections, which `within` and `newest` do not exclude."""
        ...

    def newest(self, filters: Filters, limit: int) -> list[int]:
        """The latest documents that pass the filters."""
        ...

    def describe(self, documents: Sequence[int]) -> dict[int, DocumentDescription]: ...

    def highlight_title(self, document: int, texts: Sequence[str]) -> str | None:
        """The title as HTML, with `<mark>` around these texts; None if it has none of them."""
        ...

    def highlight_passage(self, passage: int, texts: Sequence[str]) -> str | None:
        """The best excerpt of a passage, likewise."""
        ...

    def vocabulary(self) -> Vocabulary: ...

    def references(self, document: int, most: int) -> References:
        """What it cites and what cites it, most confident first, at most `most` of each."""
        ...

    def graph(self, documents: Sequence[int], depth: int, most: int) -> Graph:
        """What citations reach from these documents, in both directions, at most `most` nodes."""
        ...


class ArchiveStore(Protocol):
    def reading(self) -> AbstractContextManager[ArchiveView]:
        """Raises StoreError."""
        ...
