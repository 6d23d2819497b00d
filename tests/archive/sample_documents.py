"""Documents for tests, small and whole."""

from __future__ import annotations

from typing import Any

from pointsman.archive.model.documents import Chunk, Document, FileState, Manifest, PreparedDocument
from pointsman.archive.store.base import Storage


def prepared(
    id_: str, *texts: str, title: str | None = None, heading: str | None = None, **more: Any
) -> PreparedDocument:
    """Each text is a passage of two lines: its own and an empty one."""
    origin: FileState | None = more.pop("origin", None)
    return PreparedDocument(
        Document(
            collection=more.pop("collection", "notes"),
            id=id_,
            title=title or id_,
            content="\n\n".join(texts),
            source=more.pop("source", "research"),
            date=more.pop("date", "2024-05-31"),
            **more,
        ),
        tuple(Chunk(text, heading, 2 * place + 1, 2 * place + 1) for place, text in enumerate(texts)),
        origin=origin,
    )


def fill(storage: Storage, *documents: PreparedDocument, collection: str = "notes", alias: str | None = None) -> None:
    storage.documents.put_collection(Manifest(collection, alias))
    storage.documents.put_documents(collection, documents)
