"""Pointsman's own documentation as a collection, so that the first search in a new store finds something."""

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
_DATE = "2026-01-01"  # of the pages: files from a wheel have the date of their installation

logger = logging.getLogger(__name__)


def ensure_pages(storage: Storage) -> None:
    """Put the pages into a new store, and newer ones in the place of older. Who removed them does not get them again.

    A store that cannot be written is no reason to do without it: then they come another time.
    """
    pages = shipped_pages()
    if not pages:
        return
    digest = _digest(pages)
    try:
        seen = storage.key_values.read(_MEMO)
        if seen == digest:
            return
        if seen is None or storage.documents.collection(COLLECTION) is not None:
            _put(storage, pages)
        storage.key_values.write(_MEMO, digest)
    except StoreError as error:
        logger.warning("the shipped documentation was not put into the store: %s", error)


def without_pages(storage: Storage, query: Query) -> Query:
    """Leave the pages out of a search that names no collection, once there are documents of one's own."""
    if query.filters.collections:
        return query
    collections = storage.documents.collections()
    own = any(each.documents for each in collections if each.name != COLLECTION)
    if not own or all(each.name != COLLECTION for each in collections):
        return query
    return replace(query, filters=replace(query.filters, hidden_collections=(COLLECTION,)))


def shipped_pages() -> dict[str, str]:
    """By id: README.md and the pages of docs/, from the wheel or from the checkout that this runs in."""
    here = Path(__file__).resolve().parent
    for top in (here / "pages", here.parents[2]):
        files = [top / "README.md", *sorted(page for part in PARTS for page in (top / "docs" / part).glob("*.md"))]
        if files[0].is_file():
            return {file.relative_to(top).as_posix(): file.read_text("utf-8") for file in files}
    return {}


def _put(storage: Storage, pages: dict[str, str]) -> None:
    try:
        storage.documents.put_collection(Manifest(COLLECTION, ALIAS, pointsman.__version__, DESCRIPTION))
    except NameTakenError:  # a collection of one's own has that name
        storage.documents.put_collection(Manifest(COLLECTION, None, pointsman.__version__, DESCRIPTION))
    kept = storage.documents.list_documents(COLLECTION, limit=1_000).documents
    storage.documents.remove_documents(COLLECTION, {document.id for document in kept} - pages.keys())
    storage.documents.put_documents(COLLECTION, list(_prepared(pages)))


def _prepared(pages: dict[str, str]) -> Iterable[PreparedDocument]:
    from pointsman.archive.citations.extract import citations_of  # a parser that most runs do not need

    for id_, content in pages.items():
        title = next((heading.text for heading in outline(content) if heading.level == 1), id_)
        document = Document(COLLECTION, id_, title, content, source="research", date=_DATE, tags=("pointsman",))
        yield PreparedDocument(document, chunks_of(content, title), citations_of(content))


def _digest(pages: dict[str, str]) -> str:
    digest = hashlib.sha256(pointsman.__version__.encode())
    for id_, content in pages.items():
        digest.update(f"\0{id_}\0{content}".encode())
    return digest.hexdigest()
