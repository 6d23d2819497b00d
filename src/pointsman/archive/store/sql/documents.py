"""Collections and whole documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pointsman.archive.cpu_turns import computing
from pointsman.archive.model.documents import Chunk, Collection, Document, FileState, Manifest, PreparedDocument
from pointsman.archive.store.base import CollectionStats, DocumentPage, DocumentSummary, Stats
from pointsman.archive.store.errors import NameTakenError, StoreError, UnknownCollectionError
from pointsman.archive.store.sql import citations, document_writer, vectors
from pointsman.archive.store.sql.database import Connection, Database, once
from pointsman.archive.store.sql.passage_texts import PLACED, Texts, decompress
from pointsman.archive.text.similar_names import nearest

SCHEMA = """
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE collections (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    alias TEXT UNIQUE,
    version TEXT,
    description TEXT,
    documents INTEGER NOT NULL DEFAULT 0,
    passages INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    collection INTEGER NOT NULL REFERENCES collections,
    name TEXT NOT NULL,
    title TEXT NOT NULL,
    size INTEGER NOT NULL,
    passages INTEGER NOT NULL,
    source TEXT NOT NULL,
    date TEXT NOT NULL,
    url TEXT,
    tags TEXT NOT NULL,
    metadata TEXT,
    path TEXT,
    file_size INTEGER,
    mtime_ns INTEGER,
    sha256 TEXT,
    content BLOB NOT NULL,
    UNIQUE (collection, name)
);
"""
_NAMES_COMPARED = 20_000  # with a name that was not found


class SqlDocuments:
    """Fits `DocumentStore`."""

    def __init__(self, database: Database, wake_housekeeper: Callable[[], None]) -> None:
        self._database = database
        self._wake_housekeeper = wake_housekeeper

    def put_collection(self, manifest: Manifest) -> None:
        with self._database.writing() as connection:
            for name in filter(None, (manifest.name, manifest.alias)):
                holder = connection.execute(
                    "SELECT name FROM collections WHERE (name = ? OR alias = ?) AND name <> ?",
                    (name, name, manifest.name),
                ).fetchone()
                if holder is not None:
                    raise NameTakenError(name, holder[0])
            alias = manifest.alias if manifest.alias != manifest.name else None
            connection.execute(
                "INSERT INTO collections (name, alias, version, description) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (name) DO UPDATE SET alias = excluded.alias, version = excluded.version, "
                "description = excluded.description",
                (manifest.name, alias, manifest.version, manifest.description),
            )

    def collections(self) -> tuple[Collection, ...]:
        with self._database.reading() as connection:
            return once(connection, "collections", lambda: _collections(connection))

    def collection(self, name: str) -> Collection | None:
        with self._database.reading() as connection:
            found = connection.execute(f"{_COLLECTIONS} WHERE {_NAMED} LIMIT 1", (name, name)).fetchone()
        return _collection(found) if found else None

    def remove_collection(self, name: str) -> bool:
        with self._database.writing() as connection:
            try:
                number = collection_number(connection, name)
            except UnknownCollectionError:
                return False
            rows = connection.execute("SELECT id FROM documents WHERE collection = ?", (number,)).fetchall()
            document_writer.remove(connection, number, [row for (row,) in rows])
            connection.execute("DELETE FROM collections WHERE id = ?", (number,))
        self._wake_housekeeper()
        return True

    def put_documents(self, collection: str, documents: Sequence[PreparedDocument]) -> None:
        try:
            with self._database.writing() as connection, computing(urgent=True):
                document_writer.put(connection, collection_number(connection, collection), documents)
        except UnicodeEncodeError as error:
            raise StoreError(_surrogate_message(documents)) from error
        self._wake_housekeeper()

    def remove_documents(self, collection: str, ids: Iterable[str]) -> int:
        with self._database.writing() as connection:
            number = collection_number(connection, collection)
            found = [document_row(connection, number, id_) for id_ in dict.fromkeys(ids)]
            rows = [row for row in found if row is not None]
            document_writer.remove(connection, number, rows)
        self._wake_housekeeper()
        return len(rows)

    def document(self, collection: str, id: str) -> Document | None:  # noqa: A002
        with self._database.reading() as connection:
            found = connection.execute(
                f"SELECT {_DOCUMENT} FROM documents WHERE collection = ? AND name = ?",
                (collection_number(connection, collection), id),
            ).fetchone()
            name = collection_name(connection, collection)
        return _document(name, found) if found else None

    def has(self, collection: str, id: str) -> bool:  # noqa: A002
        with self._database.reading() as connection:
            return document_row(connection, collection_number(connection, collection), id) is not None

    def list_documents(self, collection: str, limit: int, offset: int = 0) -> DocumentPage:
        with self._database.reading() as connection:
            number = collection_number(connection, collection)
            rows = connection.execute(
                "SELECT name, title, size FROM documents WHERE collection = ? ORDER BY name LIMIT ? OFFSET ?",
                (number, limit, offset),
            ).fetchall()
            (total,) = connection.execute("SELECT documents FROM collections WHERE id = ?", (number,)).fetchone()
        return DocumentPage(tuple(DocumentSummary(*row) for row in rows), total)

    def chunks_of(self, collection: str, id: str) -> tuple[Chunk, ...]:  # noqa: A002
        with self._database.reading() as connection:
            row = document_row(connection, collection_number(connection, collection), id)
            rows = connection.execute(
                f"SELECT heading, start_line, end_line, {PLACED} FROM passages WHERE document = ? ORDER BY place",
                (row,),
            ).fetchall()
            texts = Texts(connection)
            return tuple(Chunk(texts.of(*placed)[1], *chunk) for *chunk, placed in ((*r[:3], r[3:]) for r in rows))

    def origins(self, collection: str) -> dict[str, FileState]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT name, path, file_size, mtime_ns, sha256 FROM documents "
                "WHERE collection = ? AND path IS NOT NULL",
                (collection_number(connection, collection),),
            ).fetchall()
        return {name: FileState(*state) for name, *state in rows}

    def prepared(self, collection: str, id: str) -> PreparedDocument | None:  # noqa: A002
        document = self.document(collection, id)
        if document is None:
            return None
        chunks = self.chunks_of(collection, id)
        with self._database.reading() as connection:
            number = collection_number(connection, collection)
            row = document_row(connection, number, id)
            written = citations.written_by(connection, row) if row is not None else ()
            origin = connection.execute(
                "SELECT path, file_size, mtime_ns, sha256 FROM documents WHERE id = ? AND path IS NOT NULL", (row,)
            ).fetchone()
        return PreparedDocument(document, chunks, written, FileState(*origin) if origin else None)

    def touch(self, collection: str, id: str, origin: FileState) -> None:  # noqa: A002
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE documents SET path = ?, file_size = ?, mtime_ns = ?, sha256 = ? "
                "WHERE collection = ? AND name = ?",
                (*document_writer.origin_row(origin), collection_number(connection, collection), id),
            )

    def nearest_documents(self, collection: str, id: str, limit: int = 3) -> list[str]:  # noqa: A002
        with self._database.reading() as connection:
            names = connection.execute(
                "SELECT name FROM documents WHERE collection = ? LIMIT ?",
                (collection_number(connection, collection), _NAMES_COMPARED),
            ).fetchall()
        return nearest(id, [name for (name,) in names], limit)

    def nearest_collections(self, name: str, limit: int = 3) -> list[str]:
        collections = self.collections()
        shown = {known: each.shown_as for each in collections for known in (each.name, each.manifest.alias) if known}
        return list(dict.fromkeys(shown[match] for match in nearest(name, list(shown), 2 * limit)))[:limit]

    def stats(self) -> Stats:
        with self._database.reading() as connection:
            rows = connection.execute("SELECT name, documents, passages FROM collections ORDER BY name").fetchall()
            by_space, waiting = vectors.counts(connection)
            size = self._database.size(connection)
        return Stats(tuple(CollectionStats(*row) for row in rows), by_space, waiting, size)


_NAMED = "name = ? OR alias = ?"
_COLLECTIONS = "SELECT name, alias, version, description, documents FROM collections"
_DOCUMENT = "name, title, content, source, date, tags, url, metadata"


def _surrogate_message(documents: Sequence[PreparedDocument]) -> str:
    for each in documents:
        try:
            "".join((each.document.id, each.document.title, each.document.content)).encode()
        except UnicodeEncodeError:
            return (
                f"Document {json.dumps(each.document.id)} contains a lone surrogate, which is not valid Unicode text."
            )
    return "A document's metadata contains a lone surrogate, which is not valid Unicode text."


def _collections(connection: Connection) -> tuple[Collection, ...]:
    return tuple(map(_collection, connection.execute(f"{_COLLECTIONS} ORDER BY name")))


def collection_number(connection: Connection, name: str) -> int:
    """Raises UnknownCollectionError."""
    found = connection.execute(f"SELECT id FROM collections WHERE {_NAMED} LIMIT 1", (name, name)).fetchone()
    if found is None:
        raise UnknownCollectionError(name)
    return int(found[0])


def collection_name(connection: Connection, name: str) -> str:
    (full,) = connection.execute(f"SELECT name FROM collections WHERE {_NAMED} LIMIT 1", (name, name)).fetchone()
    return str(full)


def document_row(connection: Connection, collection: int, name: str) -> int | None:
    found = connection.execute(
        "SELECT id FROM documents WHERE collection = ? AND name = ?", (collection, name)
    ).fetchone()
    return int(found[0]) if found else None


def _collection(row: tuple[str, str | None, str | None, str | None, int]) -> Collection:
    name, alias, version, description, documents = row
    return Collection(Manifest(name, alias, version, description), documents)


def _document(collection: str, row: tuple[Any, ...]) -> Document:
    name, title, content, source, date, tags, url, metadata = row
    return Document(
        collection=collection,
        id=name,
        title=title,
        content=decompress(content),
        source=source,
        date=date,
        tags=tuple(json.loads(tags)),
        url=url,
        metadata=json.loads(metadata) if metadata else None,
    )
