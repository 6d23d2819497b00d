"""The size of a store: documents are compressed, vectors take two bytes per number, and both are read back."""

from __future__ import annotations

from pointsman.archive.embedding.passage_vectors import embed_passages as embed
from pointsman.archive.embedding.static import DIMENSION, StaticEmbedding
from pointsman.archive.store.postgres.storage import PostgresStorage
from tests.archive.engines import Place
from tests.archive.sample_documents import fill, prepared


def test_documents_are_kept_compressed_and_vectors_with_two_bytes_a_number(place: Place) -> None:
    storage = place.open()
    document = prepared("a.md", "The same words again, straße und 日本語. " * 500)
    fill(storage, document)
    embed(storage, StaticEmbedding())
    with storage.database.reading() as connection:
        (kept,) = connection.execute("SELECT length(content) FROM documents").fetchone()
        size_of = "pg_column_size" if isinstance(storage, PostgresStorage) else "length"
        sizes = [size for (size,) in connection.execute(f"SELECT {size_of}(vector) FROM vectors")]
    assert kept * 10 < len(document.document.content)
    assert sizes
    assert all(2 * DIMENSION <= size < 2 * DIMENSION + 16 for size in sizes)  # PostgreSQL adds a header
    back = storage.documents.document("notes", "a.md")
    assert back is not None
    assert back.content == document.document.content
    storage.close()
