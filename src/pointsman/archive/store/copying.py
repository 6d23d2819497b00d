"""Copies one store into another, of the same engine or another one. Repeatable: what is there already stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pointsman.archive.model.documents import PreparedDocument
from pointsman.archive.store.base import Space, Storage

BATCH = 100  # documents or vectors that are written together
_MOST_ACCESSES = 20_000
_MOST_INDEXES = 1_000_000
_MEMOS = ("shipped pages",)


@dataclass(frozen=True, slots=True)
class Copied:
    collections: int
    documents: int
    vectors: int
    context_items: int
    indexes: int


def copy_storage(source: Storage, target: Storage) -> Copied:
    """Add everything of `source` to `target`; what `target` has besides is kept.

    Documents with the same collection and id are replaced, indexes and context items likewise. A passage without a
    vector in `source` gets one in the background, like one that is ingested. Passages whose vectors come later in the
    order of the target than such a one are computed again.

    Raises:
        StoreError: one of them cannot be used; what was copied stays, and another run goes on.
    """
    numbers: dict[int, int] = {}  # the passages of the target, and theirs in the source
    documents = 0
    collections = source.documents.collections()
    for collection in collections:
        target.documents.put_collection(collection.manifest)
        for batch in _batches(source, collection.name):
            target.documents.put_documents(collection.name, batch)
            documents += len(batch)
            for each in batch:
                copied = target.passages.numbers_of(collection.name, each.document.id)
                original = source.passages.numbers_of(collection.name, each.document.id)
                numbers.update(zip(copied, original, strict=True))
    vectors = _copy_vectors(source, target, numbers)
    for memo in _MEMOS:
        if (value := source.key_values.read(memo)) is not None:
            target.key_values.write(memo, value)
    return Copied(len(collections), documents, vectors, _copy_context(source, target), _copy_indexes(source, target))


def _batches(source: Storage, collection: str) -> Iterator[list[PreparedDocument]]:
    offset = 0
    while page := source.documents.list_documents(collection, BATCH, offset).documents:
        offset += len(page)
        prepared = [source.documents.prepared(collection, each.id) for each in page]
        yield [each for each in prepared if each is not None]  # removed meanwhile


def _copy_vectors(source: Storage, target: Storage, numbers: dict[int, int]) -> int:
    space = source.vectors.space()
    if space is None or target.vectors.space() not in (None, space):
        return 0
    copied = 0
    while True:
        batch = _next_vectors(source, target, space, numbers)
        target.vectors.put(space, batch)
        copied += len(batch)
        if not batch:
            return copied


def _next_vectors(source: Storage, target: Storage, space: Space, numbers: dict[int, int]) -> list[tuple[int, bytes]]:
    """For the next passages of the target without a vector, up to the first that has none in the source either."""
    pending = [each.number for each in target.vectors.pending(space, BATCH)]
    known = source.vectors.vectors_of([numbers[number] for number in pending if number in numbers])
    batch: list[tuple[int, bytes]] = []
    for number in pending:
        vector = known.get(numbers.get(number, 0))
        if vector is None:
            break
        batch.append((number, vector))
    return batch


def _copy_context(source: Storage, target: Storage) -> int:
    digests = source.context.digests("")
    items = source.context.by_origin()
    for origin in {**items, **digests}:
        if origin in digests:
            target.context.replace(origin, digests[origin], items.get(origin, []))
        else:
            for item in items[origin]:
                target.context.add(item)
    if not target.context.accesses(1):  # counts are added to those that are there
        target.context.record_accesses(source.context.accesses(_MOST_ACCESSES))
    return sum(map(len, items.values()))


def _copy_indexes(source: Storage, target: Storage) -> int:
    names = source.indexes.names()
    for name in names:
        index = source.indexes.find(name)
        if index is None:  # removed meanwhile
            continue
        target.indexes.create(name, index.tokenizer, _MOST_INDEXES)
        copy = target.indexes.find(name)
        assert copy is not None
        for entry in index.entries():
            copy.add(entry, copy.tokenizer(entry.content))
    return len(names)
