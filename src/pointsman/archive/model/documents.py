"""What the archive contains: collections of documents, their passages and citations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Source = Literal["research", "url"]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a collection."""

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
        """The alias if there is one: the name that users and models see."""
        return self.manifest.alias or self.manifest.name


@dataclass(frozen=True, slots=True)
class Document:
    """One whole text. Its id is unique in its collection, usually the path below the ingested folder."""

    collection: str
    id: str
    title: str
    content: str
    source: Source
    date: str  # ISO 8601: a day, or a time
    tags: tuple[str, ...] = ()
    url: str | None = None  # where it came from, if from the web
    metadata: Mapping[str, Any] | None = None  # the other keys of its front matter


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a document, cut at headings. Places are counted from 1; lines are those of the document."""

    text: str
    heading: str | None  # the nearest above it
    start_line: int
    end_line: int


@dataclass(frozen=True, slots=True)
class Citation:
    """A reference in a document, as written; the store resolves it."""

    kind: str  # inline, reference, autolink, bare, footnote, wiki, doi, arxiv
    target: str  # the address, path, title or number, without decoration
    context: str  # the sentence around it
    confidence: float
    line: int


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a file when it was read; an unchanged state means that the file can be skipped."""

    path: str
    size: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document with everything that is computed from it before it is written."""

    document: Document
    chunks: tuple[Chunk, ...]
    citations: tuple[Citation, ...] = ()
    origin: FileState | None = None
