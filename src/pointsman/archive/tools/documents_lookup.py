"""Finds the collections and documents that a call names, and suggests the nearest names for those that do not exist."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.archive.archive import Archive
from pointsman.archive.model.documents import Collection, Document
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ToolError
from pointsman.core.model import Json

MAX_NAME_CHARS = 1_000
EMPTY_ARCHIVE = "The archive is empty. Fill it with `pointsman archive ingest`."

COLLECTION_PARAMETER: Json = {"type": "string", "description": "Collection name or alias"}
DOCUMENT_PARAMETER: Json = {"type": "string", "description": "Document ID"}
COLLECTION_SCHEMA: Json = {
    "collection": {"type": "string", "description": "Collection name or alias"},
    "collectionId": {"type": "string", "description": "The full name, where an alias is shown"},
}


def collection_fields(collection: Collection) -> Json:
    """The alias if there is one, with the full name beside it; otherwise the name."""
    if collection.manifest.alias:
        return {"collection": collection.manifest.alias, "collectionId": collection.name}
    return {"collection": collection.name}


def find_document(archive: Archive, given: Arguments) -> tuple[Collection, Document]:
    """The document that `collection` and `document` of the call name.

    Raises:
        ToolError: the collection or the document does not exist.
    """
    requested = given.text("collection", at_most=MAX_NAME_CHARS)
    id_ = given.text("document", at_most=MAX_NAME_CHARS)
    collection = find_collection(archive, requested)
    document = archive.storage.documents.document(collection.name, id_)
    if document is None:
        raise document_not_found(archive, collection, requested, id_)
    return collection, document


def find_collection(archive: Archive, name: str) -> Collection:
    """Raises ToolError: no collection has this name or alias."""
    collection = archive.storage.documents.collection(name)
    if collection is None:
        help_ = _suggest_collections(archive, name)
        raise ToolError(f'Collection "{name}" not found.', code="not_found", help=help_)
    return collection


def document_not_found(archive: Archive, collection: Collection, requested: str, document: str) -> ToolError:
    """`requested`: the collection's name as the call has it."""
    near = archive.storage.documents.nearest_documents(collection.name, document)
    listing = "Use documents_list_documents to see all documents."
    return ToolError(
        f'Document "{document}" not found in collection "{requested}".',
        code="not_found",
        help=f"Did you mean {join_names(near)}? {listing}" if near else listing,
        candidates=near,
    )


def join_names(names: Sequence[str]) -> str:
    return " or ".join(f'"{name}"' for name in names)


def _suggest_collections(archive: Archive, name: str) -> str:
    near = archive.storage.documents.nearest_collections(name)
    if near:
        return f"Did you mean {join_names(near)}? Use documents_list_collections to see all collections."
    existing = [each.shown_as for each in archive.storage.documents.collections()[:10]]
    if not existing:
        return EMPTY_ARCHIVE
    return f"Existing collections: {', '.join(existing)}. Use documents_list_collections for details."
