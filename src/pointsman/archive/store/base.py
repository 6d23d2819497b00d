"""What the archive asks of a store. SQLite fills it today; whoever fits the shapes can take its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pointsman.archive.model.documents import Chunk, Collection, Document, FileState, Manifest, PreparedDocument
from pointsman.archive.model.indexes import KeptIndexes
from pointsman.archive.model.query import Filters, Query
from pointsman.archive.store.archives import ArchiveStore
from pointsman.archive.store.context import ContextStore


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
    """A chunk with its place in the archive. `number` is the store's own name for it and never used twice."""

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


@dataclass(frozen=True, slots=True)
class Scope:
    """What filters leave, in the store's own numbers; None: all."""

    collections: frozenset[int] | None = None
    documents: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Space:
    """Where vectors can be compared: those of another provider, model or dimension mean something else."""

    provider: str
    model: str
    dimension: int

    def __str__(self) -> str:
        return f"{self.provider}, {self.model}, {self.dimension} dimensions"


@dataclass(frozen=True, slots=True)
class Pending:
    """A passage that waits for its vector."""

    number: int
    title: str
    heading: str | None
    text: str


@dataclass(frozen=True, slots=True)
class StoredVector:
    number: int  # of the passage
    document: int  # the store's own numbers, good for telling apart and no more
    collection: int
    vector: bytes  # float16, little-endian


@dataclass(frozen=True, slots=True)
class Mark:
    """How far somebody has followed the vectors of a space: the last that came and the last passage that went."""

    space: int
    came: int
    gone: int


@dataclass(frozen=True, slots=True)
class VectorChanges:
    """What happened to the vectors of the space in use since a mark, in bounded portions."""

    space: Space | None
    mark: Mark | None  # to ask from the next time
    afresh: bool  # forget all that was known before
    gone: tuple[int, ...]
    came: tuple[StoredVector, ...]
    more: bool = False  # ask again at once


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
    """Collections and documents. Wherever a collection is named, its alias will do.

    Raises:
        UnknownCollectionError: from all that name one, except `collection` and `remove_collection`.
        StoreError: in its other kinds.
    """

    def put_collection(self, manifest: Manifest) -> None:
        """Make it, or change what it says of itself.

        Raises:
            NameTakenError: its alias is the name or alias of another.
        """
        ...

    def collections(self) -> tuple[Collection, ...]: ...

    def collection(self, name: str) -> Collection | None: ...

    def remove_collection(self, name: str) -> bool:
        """With its documents. False: there was none."""
        ...

    def put_documents(self, collection: str, documents: Sequence[PreparedDocument]) -> None:
        """All of them or none. A document of the same id is replaced; passages that stay the same are left alone."""
        ...

    def remove_documents(self, collection: str, ids: Iterable[str]) -> int:
        """How many there were."""
        ...

    def document(self, collection: str, id: str) -> Document | None: ...  # noqa: A002

    def has(self, collection: str, id: str) -> bool: ...  # noqa: A002

    def list_documents(self, collection: str, limit: int, offset: int = 0) -> DocumentPage:
        """In the order of their ids."""
        ...

    def chunks_of(self, collection: str, id: str) -> tuple[Chunk, ...]: ...  # noqa: A002

    def origins(self, collection: str) -> dict[str, FileState]:
        """How the files looked that documents were read from, by id."""
        ...

    def touch(self, collection: str, id: str, origin: FileState) -> None:  # noqa: A002
        """The file looks different, its text is the same."""
        ...

    def nearest_documents(self, collection: str, id: str, limit: int = 3) -> list[str]:  # noqa: A002
        """Ids that resemble a wrong one."""
        ...

    def nearest_collections(self, name: str, limit: int = 3) -> list[str]: ...

    def stats(self) -> Stats: ...


class PassageStore(Protocol):
    """Search in the words of passages."""

    def search(self, query: Query, limit: int, *, enough: int) -> list[TextHit]:
        """Best first: passages with all the words and, where they are not `enough`, those with some of them."""
        ...

    def passages(self, numbers: Sequence[int]) -> dict[int, Passage]:
        """Those that are still there."""
        ...

    def weights(self, texts: Sequence[str]) -> dict[str, float]:
        """How much each word or phrase tells: the fewer passages have it, the more."""
        ...

    def of_document(self, collection: str, id: str) -> list[int]:  # noqa: A002
        """The numbers of its passages, in order."""
        ...

    def scope(self, filters: Filters) -> Scope:
        """Which documents pass."""
        ...

    def barred(self, query: Query) -> tuple[frozenset[int] | None, frozenset[int]]:
        """What `+`, `"…"` and `-` leave: only these passages (None: any), and never those."""
        ...


class VectorStore(Protocol):
    """Vectors of passages, in one space at a time."""

    def space(self) -> Space | None:
        """The one in use."""
        ...

    def use(self, space: Space) -> None:
        """From now on this one; the vectors of others go."""
        ...

    def pending(self, space: Space, limit: int) -> list[Pending]:
        """The next passages without a vector in `space`, oldest first."""
        ...

    def waiting(self, space: Space) -> int:
        """How many there are of them."""
        ...

    def put(self, space: Space, vectors: Sequence[tuple[int, bytes]]) -> None:
        """The vectors of what `pending` gave, in its order; passages that have gone meanwhile are passed over."""
        ...

    def changes(self, mark: Mark | None) -> VectorChanges: ...


class KeyValueStore(Protocol):
    """Small things that the archive remembers about itself, by name."""

    def read(self, name: str) -> str | None: ...

    def write(self, name: str, value: str) -> None: ...


class Storage(Protocol):
    """All of the archive's memory. Thread-safe."""

    @property
    def documents(self) -> DocumentStore: ...

    @property
    def passages(self) -> PassageStore: ...

    @property
    def vectors(self) -> VectorStore: ...

    @property
    def context(self) -> ContextStore: ...

    @property
    def archives(self) -> ArchiveStore: ...

    @property
    def indexes(self) -> KeptIndexes:
        """Those that callers made themselves and want kept."""
        ...

    @property
    def key_values(self) -> KeyValueStore: ...

    def close(self) -> None: ...
