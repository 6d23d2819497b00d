"""How the document tools name collections and documents, and what they say of those that are not there."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.archive.archive import Archive
from pointsman.archive.model.documents import Collection, Document
from pointsman.archive.tools.base import Json, ToolError

LONGEST_NAME = 1_000

COLLECTION: Json = {"type": "string", "description": "Collection name or alias"}
DOCUMENT: Json = {"type": "string", "description": "Document ID"}
NAMED: Json = {
    "collection": {"type": "string", "description": "Collection name or alias"},
    "collectionId": {"type": "string", "description": "The full name, where an alias is shown"},
}


def find_collection(archive: Archive, name: str) -> Collection:
    """Raises ToolError: there is none of that name."""
    found = archive.storage.documents.collection(name)
    if found is None:
        there = _collections_there_are(archive, name)
        raise ToolError(f'Collection "{name}" not found.', code="not_found", help=there)
    return found


def find_document(archive: Archive, collection: Collection, asked_as: str, document: str) -> Document:
    """Raises ToolError: there is none of that id."""
    found = archive.storage.documents.document(collection.name, document)
    if found is None:
        raise no_document(archive, collection, asked_as, document)
    return found


def no_document(archive: Archive, collection: Collection, asked_as: str, document: str) -> ToolError:
    near = archive.storage.documents.nearest_documents(collection.name, document)
    listing = "documents_list_documents shows what there is."
    return ToolError(
        f'Document "{document}" not found in collection "{asked_as}".',
        code="not_found",
        help=f"Did you mean {listed(near)}? {listing}" if near else listing,
        candidates=near,
    )


def shown(collection: Collection) -> Json:
    """Its alias where there is one, then also its full name."""
    if collection.manifest.alias:
        return {"collection": collection.manifest.alias, "collectionId": collection.name}
    return {"collection": collection.name}


def listed(names: Sequence[str]) -> str:
    return " or ".join(f'"{name}"' for name in names)


def _collections_there_are(archive: Archive, name: str) -> str:
    near = archive.storage.documents.nearest_collections(name)
    if near:
        return f"Did you mean {listed(near)}? documents_list_collections shows all."
    there = [each.shown_as for each in archive.storage.documents.collections()[:10]]
    if not there:
        return "The archive is empty: `pointsman archive ingest` fills it."
    return f"There are {', '.join(there)}. documents_list_collections tells more."
