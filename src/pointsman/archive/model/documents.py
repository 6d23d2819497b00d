"""What the archive holds: collections of documents, their passages and what they cite. Frozen at birth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Source = Literal["research", "url"]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a collection says of itself."""

    name: str
    alias: str | None = None
    version: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    manifest: Manifest
    documents: int

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def shown_as(self) -> str:
        """The alias where there is one: what people and models call it."""
        return self.manifest.alias or self.manifest.name


@dataclass(frozen=True, slots=True)
class Document:
    """One text, whole. Its id is unique in its collection, usually the path below the folder that was ingested."""

    collection: str
    id: str
    title: str
    content: str
    source: Source
    date: str  # ISO: a day, or a moment
    tags: tuple[str, ...] = ()
    url: str | None = None  # where it came from, if from the web
    metadata: Mapping[str, Any] | None = None  # what else its front matter says


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a document, cut at headings. Places are counted from 1; lines are those of the document."""

    text: str
    heading: str | None  # the nearest above it
    start_line: int
    end_line: int


@dataclass(frozen=True, slots=True)
class Citation:
    """A reference that a document makes, as written; what it leads to is found out by the store."""

    kind: str  # inline, reference, autolink, bare, footnote, wiki, doi, arxiv
    target: str  # the address, path, title or number, without decoration
    context: str  # the sentence round it
    confidence: float
    line: int


@dataclass(frozen=True, slots=True)
class FileState:
    """How a file looked when it was read; the same again means nothing to do."""

    path: str
    size: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document with all that is worked out of it before the store is touched."""

    document: Document
    chunks: tuple[Chunk, ...]
    citations: tuple[Citation, ...] = ()
    origin: FileState | None = None
