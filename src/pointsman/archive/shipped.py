"""Pointsman's own documentation as a collection, so that the first search in a new store has results."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pointsman
from pointsman.archive.model.documents import Document, Manifest, PreparedDocument
from pointsman.archive.model.query import Query
from pointsman.archive.store.base import Storage
from pointsman.archive.store.errors import NameTakenError, StoreError
from pointsman.archive.text.chunks import chunks_of
from pointsman.archive.text.outline import outline

PARTS = ("guide", "concepts", "reference")  # of docs/
COLLECTION = "pointsman-docs"
ALIAS = "pointsman"
DESCRIPTION = "The documentation of Pointsman: setting it up, clients, discovery, search, the archive, audit."

_MEMO = "shipped pages"
_DATE = "2026-01-01"  # of the pages, since files from a wheel have the date of their installation

logger = logging.getLogger(__name__)


def ensure_pages(storage: Storage) -> None:
    """Add the pages to a new store and update older ones; don't restore a removed collection.

    If the store cannot be written, the next start tries again.
    """
    pages = shipped_pages()
    if not pages:
        return
    digest = _digest(pages)
    try:
        stored = storage.key_values.read(_MEMO)
        if stored == digest:
            return
        if stored is None or storage.documents.collection(COLLECTION) is not None:
            _put(storage, pages)
        storage.key_values.write(_MEMO, digest)
    except StoreError as error:
        logger.warning("could not add the shipped documentation to the store: %s", error)


def without_pages(storage: Storage, query: Query) -> Query:
    """Exclude the pages from a search that names no collection, once there are other documents."""
    if query.filters.collections:
        return query
    collections = storage.documents.collections()
    own = any(each.documents for each in collections if each.name != COLLECTION)
    if not own or all(each.name != COLLECTION for each in collections):
        return query
    return replace(query, filters=replace(query.filters, hidden_collections=(COLLECTION,)))


def shipped_pages() -> dict[str, str]:
    """README.md and the pages of docs/ by id, from the wheel or the checkout."""
    here = Path(__file__).resolve().parent
    for top in (here / "pages", here.parents[2]):
        files = [top / "README.md", *sorted(page for part in PARTS for page in (top / "docs" / part).rglob("*.md"))]
        if files[0].is_file():
            return {file.relative_to(top).as_posix(): file.read_text("utf-8") for file in files}
    return {}


def _put(storage: Storage, pages: dict[str, str]) -> None:
    try:
        storage.documents.put_collection(Manifest(COLLECTION, ALIAS, pointsman.__version__, DESCRIPTION))
    except NameTakenError:  # the alias belongs to another collection
        storage.documents.put_collection(Manifest(COLLECTION, None, pointsman.__version__, DESCRIPTION))
    existing = storage.documents.list_documents(COLLECTION, limit=1_000).documents
    storage.documents.remove_documents(COLLECTION, {document.id for document in existing} - pages.keys())
    storage.documents.put_documents(COLLECTION, list(_prepare(pages)))


def _prepare(pages: dict[str, str]) -> Iterable[PreparedDocument]:
    from pointsman.archive.citations.extract import citations_of  # loads a parser that most runs do not need

    for id_, content in pages.items():
        title = next((heading.text for heading in outline(content) if heading.level == 1), id_)
        document = Document(COLLECTION, id_, title, content, source="research", date=_DATE, tags=("pointsman",))
        yield PreparedDocument(document, chunks_of(content, title), citations_of(content))


def _digest(pages: dict[str, str]) -> str:
    digest = hashlib.sha256(pointsman.__version__.encode())
    for id_, content in pages.items():
        digest.update(f"\0{id_}\0{content}".encode())
    return digest.hexdigest()
