"""A store of the version before is upgraded when it is opened, while an archive of that version goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pointsman.archive.model.query import Query
from pointsman.archive.search.vectors import VectorIndex
from pointsman.archive.settings import PostgresStore
from pointsman.archive.store.base import VectorFilter
from pointsman.archive.store.postgres.storage import PostgresStorage
from tests.archive.engines import new_store
from tests.archive.sample_documents import fill, prepared
from tests.archive.store.agreement import assert_agrees
from tests.earlier_version import unpack_earlier

OLDER_SEARCH = "vectors_nearest_"
# What an archive of the version before does: each line that it reads is a document to write, with its vector.
OLDER = """
import json, sys
import numpy as np
from pointsman.archive.model.documents import Chunk, Document, Manifest, PreparedDocument
from pointsman.archive.model.query import Query
from pointsman.archive.store.base import Space, VectorFilter
from pointsman.archive.store.postgres import vectors
from pointsman.archive.store.postgres.storage import PostgresStorage

vectors.INDEXED_FROM = 10
space = Space("test", "random", 8)
storage = PostgresStorage(sys.argv[1], sys.argv[2])
storage.documents.put_collection(Manifest("notes"))

def vector(number):
    found = np.random.default_rng(number).standard_normal(8)
    return (found / np.linalg.norm(found)).astype("<f2")

for line in sys.stdin:
    first, end = json.loads(line)
    for number in range(first, end):
        document = Document("notes", f"{number}.md", "Title", f"walrus {number}", "research", "2024-05-31")
        chunk = Chunk(f"walrus {number}", None, 1, 1)
        storage.documents.put_documents("notes", [PreparedDocument(document, (chunk,))])
    pending = storage.vectors.pending(space, 100)
    storage.vectors.put(space, [(each.number, vector(each.number).tobytes()) for each in pending])
    storage.housekeeper.tidy()
    words = storage.passages.search(Query(words=("walrus",)), 100, enough=1)
    near = storage.vector_search.nearest(vector(7).astype(np.float32), 100, VectorFilter())
    print(json.dumps([sorted(hit.number for hit in words), near[0].number, len(near)]), flush=True)
"""


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PostgresStore:
    database = new_store(request, tmp_path, "postgres").database
    assert isinstance(database, PostgresStore)
    return database


@contextmanager
def older_archive(store: PostgresStore, package: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", OLDER, store.url, store.schema],
        env={**os.environ, "PYTHONPATH": str(package)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(process: subprocess.Popen[str], first: int, end: int) -> Any:
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(json.dumps([first, end]) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    return json.loads(answer) if answer else process.stderr.read()


def types(store: PostgresStore) -> dict[str, str]:
    with psycopg.connect(store.url) as connection:
        rows = connection.execute(
            "SELECT column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = 'vectors'",
            (store.schema,),
        ).fetchall()
    return dict(rows)


def indexes(store: PostgresStore) -> list[str]:
    with psycopg.connect(store.url) as connection:
        rows = connection.execute(
            "SELECT indexname FROM pg_indexes WHERE schemaname = %s AND tablename = 'vectors'", (store.schema,)
        ).fetchall()
    return [name for (name,) in rows]


def test_an_archive_of_the_version_before_goes_on_until_its_restart(store: PostgresStore, tmp_path: Path) -> None:
    package = unpack_earlier(tmp_path)
    with older_archive(store, package) as older:
        numbers, nearest, compared = ask(older, 0, 20)
        assert (len(numbers), nearest, compared) == (20, 7, 20)
        assert any(name.startswith(OLDER_SEARCH) for name in indexes(store))

        assert types(store)["collection"] == "bigint"
        storage = PostgresStorage(store.url, store.schema)
        assert types(store)["collection"] == "integer"
        assert not any(name.startswith(OLDER_SEARCH) for name in indexes(store))
        assert len(storage.passages.search(Query(words=("walrus",)), 100, enough=1)) == 20
        memory = VectorIndex(storage.vectors)
        memory.refresh()

        numbers, nearest, compared = ask(older, 20, 25)
        assert (len(numbers), nearest, compared) == (25, 7, 25)
        fill(storage, prepared("new.md", "walrus of the newer one"))
        numbers, _, _ = ask(older, 25, 26)
        assert len(numbers) == 27

        memory.refresh()
        found = memory.nearest(memory._vector(7), 100, VectorFilter())
        assert (found[0].number, len(found)) == (7, 27)
        storage.housekeeper.tidy()
        assert not any(name.startswith(OLDER_SEARCH) for name in indexes(store))  # the older one had built it again
        assert_agrees(storage)
    with older_archive(store, package) as restarted:
        assert "was written by a newer Pointsman" in ask(restarted, 30, 31)
    storage.close()
