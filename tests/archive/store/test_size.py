"""The size of a store: documents are compressed, vectors take two bytes per number, and both are read back."""

from __future__ import annotations

from pathlib import Path

from pointsman.archive.embedding.passage_vectors import embed_passages as embed
from pointsman.archive.embedding.static import DIMENSION, StaticEmbedding
from pointsman.archive.store.sqlite.storage import SqliteStorage
from tests.archive.sample_documents import fill, prepared


def test_documents_are_kept_compressed_and_vectors_with_two_bytes_a_number(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path / "archive.db")
    document = prepared("a.md", "The same words again, straße und 日本語. " * 500)
    fill(storage, document)
    embed(storage, StaticEmbedding())
    with storage.database.reading() as connection:
        (kept,) = connection.execute("SELECT length(content) FROM documents").fetchone()
        sizes = {size for (size,) in connection.execute("SELECT length(vector) FROM vectors")}
    assert kept * 10 < len(document.document.content)
    assert sizes == {2 * DIMENSION}
    back = storage.documents.document("notes", "a.md")
    assert back is not None
    assert back.content == document.document.content
    storage.close()
