"""The interface of the archive's store. SQLite and PostgreSQL implement it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pointsman.archive.model.documents import Chunk, Collection, Document, FileState, Manifest, PreparedDocument
from pointsman.archive.model.indexes import StoredIndexes
from pointsman.archive.model.query import Filters, Query
from pointsman.archive.store.archives import ArchiveStore
from pointsman.archive.store.context import ContextStore

if TYPE_CHECKING:  # heavy: loaded with the first search
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DocumentSummary:
    id: str
    title: str
    size: int  # in characters


@dataclass(frozen=True, slots=True)
class DocumentPage:
    documents: tuple[DocumentSummary, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk with its position in the archive. The store assigns `number` and never reuses it."""

    number: int
    collection: str
    document: str
    title: str
    chunk: Chunk
    place: int  # from 1
    places: int


@dataclass(frozen=True, slots=True)
class TextHit:
    number: int
    score: float  # BM25: higher is better, comparable within one search only


class Named(NamedTuple):
    """How many identifiers of a query a passage has. Headings decide first: they say what a passage is about."""

    in_headings: int  # in its heading, or in the title of its document
    anywhere: int


NOT_NAMED = Named(0, 0)


@dataclass(frozen=True, slots=True)
class Scope:
    """What passes the filters, in numbers of the store; None: everything."""

    collections: frozenset[int] | None = None
    documents: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class VectorFilter:
    """Which vectors to compare: within a scope, only those in `only` (None: all), except those in `never`."""

    scope: Scope = field(default_factory=Scope)
    only: frozenset[int] | None = None
    never: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Near:
    number: int
    cosine: float


@dataclass(frozen=True, slots=True)
class Space:
    """A vector space: vectors of different providers, models or dimensions cannot be compared."""

    provider: str
    model: str
    dimension: int

    def __str__(self) -> str:
        return f"{self.provider}, {self.model}, {self.dimension} dimensions"


@dataclass(frozen=True, slots=True)
class PendingPassage:
    """A passage without a vector."""

    number: int
    title: str
    heading: str | None
    text: str


@dataclass(frozen=True, slots=True)
class StoredVector:
    number: int  # of the passage
    document: int  # numbers of the store: good for comparing only
    collection: int
    vector: bytes  # float16, little-endian


@dataclass(frozen=True, slots=True)
class VectorCursor:
    """How far a reader has followed the vectors of a space: the last one added, the last passage removed."""

    space: int
    added: int
    removed: int
    store: object = None  # another store in its place is read from the start


@dataclass(frozen=True, slots=True)
class VectorChanges:
    """Changes to the vectors of the space in use since a cursor, in bounded batches."""

    space: Space | None
    cursor: VectorCursor | None  # where the next call starts
    reset: bool  # discard what was read before
    removed: tuple[int, ...]
    added: tuple[StoredVector, ...]
    more: bool = False  # call again at once


@dataclass(frozen=True, slots=True)
class CollectionStats:
    name: str
    documents: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Stats:
    collections: tuple[CollectionStats, ...]
    vectors: Mapping[str, int]  # by space
    waiting: int  # passages without a vector in the space in use
    bytes: int


class DocumentStore(Protocol):
    """Collections and documents. A collection can be named by its alias everywhere.

    Raises:
        UnknownCollectionError: from every method that names one, except `collection` and `remove_collection`.
        StoreError: in its other kinds.
    """

    def put_collection(self, manifest: Manifest) -> None:
        """Create it, or replace its description.

        Raises:
            NameTakenError: its alias is the name or alias of another.
        """
        ...

    def collections(self) -> tuple[Collection, ...]: ...

    def collection(self, name: str) -> Collection | None: ...

    def remove_collection(self, name: str) -> bool:
        """Remove it with its documents. False: there was none."""
        ...

    def put_documents(self, collection: str, documents: Sequence[PreparedDocument]) -> None:
        """Write all of them or none. A document with the same id is replaced; unchanged passages are kept."""
        ...

    def remove_documents(self, collection: str, ids: Iterable[str]) -> int:
        """Return how many there were."""
        ...

    def document(self, collection: str, id: str) -> Document | None: ...  # noqa: A002

    def has(self, collection: str, id: str) -> bool: ...  # noqa: A002

    def list_documents(self, collection: str, limit: int, offset: int = 0) -> DocumentPage:
        """In the order of their ids."""
        ...

    def chunks_of(self, collection: str, id: str) -> tuple[Chunk, ...]: ...  # noqa: A002

    def origins(self, collection: str) -> dict[str, FileState]:
        """The state of each document's file when it was read, by id."""
        ...

    def prepared(self, collection: str, id: str) -> PreparedDocument | None:  # noqa: A002
        """As it was put."""
        ...

    def touch(self, collection: str, id: str, origin: FileState) -> None:  # noqa: A002
        """Record a new state of a file whose content has not changed."""
        ...

    def nearest_documents(self, collection: str, id: str, limit: int = 3) -> list[str]:  # noqa: A002
        """Ids that resemble an unknown one."""
        ...

    def nearest_collections(self, name: str, limit: int = 3) -> list[str]: ...

    def stats(self) -> Stats: ...


class PassageStore(Protocol):
    """Full-text search in passages."""

    def search(self, query: Query, limit: int, *, enough: int) -> list[TextHit]:
        """Best first: passages with all the words and, if these are fewer than `enough`, those with some of them."""
        ...

    def with_identifiers(self, query: Query) -> dict[int, Named]:
        """Passages that have identifiers of the query as written; common identifiers do not count."""
        ...

    def passages(self, numbers: Sequence[int]) -> dict[int, Passage]:
        """Those that still exist."""
        ...

    def weights(self, texts: Sequence[str]) -> dict[str, float]:
        """The inverse document frequency of each word or phrase."""
        ...

    def numbers_of(self, collection: str, id: str) -> list[int]:  # noqa: A002
        """The passages of a document, in order."""
        ...

    def scope(self, filters: Filters) -> Scope:
        """What passes the filters."""
        ...

    def required_and_excluded(self, query: Query) -> tuple[frozenset[int] | None, frozenset[int]]:
        """The passages that `+` and `"…"` require (None: any), and those that `-` excludes."""
        ...


class VectorStore(Protocol):
    """Vectors of passages, in one space at a time."""

    def space(self) -> Space | None:
        """The one in use."""
        ...

    def switch_to(self, space: Space) -> None:
        """Use this space from now on, and delete the vectors of others."""
        ...

    def pending(self, space: Space, limit: int) -> list[PendingPassage]:
        """The next passages without a vector in `space`, oldest first."""
        ...

    def count_pending(self, space: Space) -> int: ...

    def put(self, space: Space, vectors: Sequence[tuple[int, bytes]]) -> None:
        """Write the vectors of what `pending` returned, in its order; passages removed meanwhile are skipped."""
        ...

    def changes(self, cursor: VectorCursor | None) -> VectorChanges: ...

    def vectors_of(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """The vectors of these passages in the space in use, as they were put."""
        ...


class VectorSearch(Protocol):
    """Finds the nearest vectors of the space in use. All methods raise StoreError."""

    def refresh(self) -> Space | None:
        """Apply what changed since the last refresh; returns the space in use."""
        ...

    def nearest(self, vector: Vector, limit: int, wanted: VectorFilter) -> list[Near]:
        """The highest cosines first; equal ones by number."""
        ...

    def cosines(self, vector: Vector, numbers: Iterable[int]) -> dict[int, float]:
        """Of the passages that have a vector."""
        ...

    def centroid(self, numbers: Sequence[int]) -> Vector | None:
        """The mean direction of these passages; None if they have no vectors."""
        ...


class LargeVectorSearch(VectorSearch, Protocol):
    """The engine's own search, for vectors that would take too much memory. Slower, and approximate."""

    def needed(self) -> bool:
        """Whether there are so many. Raises StoreError."""
        ...


class KeyValueStore(Protocol):
    """Small values that the archive keeps about itself, by name."""

    def read(self, name: str) -> str | None: ...

    def write(self, name: str, value: str) -> None: ...


class Storage(Protocol):
    """All that the archive stores. Thread-safe."""

    @property
    def documents(self) -> DocumentStore: ...

    @property
    def passages(self) -> PassageStore: ...

    @property
    def vectors(self) -> VectorStore: ...

    @property
    def vector_search(self) -> LargeVectorSearch | None:
        """The engine's own; None: it has none, and all vectors are compared in memory."""
        ...

    @property
    def context(self) -> ContextStore: ...

    @property
    def archives(self) -> ArchiveStore: ...

    @property
    def indexes(self) -> StoredIndexes:
        """Indexes that callers created and want persisted."""
        ...

    @property
    def key_values(self) -> KeyValueStore: ...

    def reading(self) -> AbstractContextManager[object]:
        """What this thread reads within the block is of one state, and costs less. Raises StoreError."""
        ...

    def turn(self, task: str) -> AbstractContextManager[bool]:
        """Whether this process may do a background task now: no two of those that share the store do it at once.

        Raises StoreError.
        """
        ...

    def wake_housekeeper(self) -> None:
        """Let it do what a write or another process has left."""
        ...

    def tidy(self) -> None:
        """Do all of that now. Raises StoreError."""
        ...

    def close(self) -> None: ...
