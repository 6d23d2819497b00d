"""The store in PostgreSQL: many writers, followers, background tasks, its index of vectors."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from pointsman.archive.embedding.passage_vectors import embed_passages
from pointsman.archive.embedding.static import StaticEmbedding
from pointsman.archive.model.query import Filters, Query
from pointsman.archive.search.query_parser import parse
from pointsman.archive.search.searcher import Searcher
from pointsman.archive.search.vectors import ChosenSearch, VectorIndex
from pointsman.archive.settings import PostgresStore
from pointsman.archive.store.base import Scope, Space, VectorCursor, VectorFilter, VectorSearch
from pointsman.archive.store.errors import StoreError, StoreUnusableError
from pointsman.archive.store.postgres import compaction, vectors
from pointsman.archive.store.postgres.database import Transaction
from pointsman.archive.store.postgres.storage import PostgresStorage
from pointsman.archive.store.sql.database import Rows
from tests.archive.engines import Place, new_store
from tests.archive.sample_documents import fill, prepared
from tests.archive.store.agreement import assert_agrees
from tests.archive.wait import wait_until

PROJECT = Path(__file__).parents[3]
SPACE = Space("test", "random", 8)
WRITERS, ROUNDS = 4, 25


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return new_store(request, tmp_path, "postgres")


@pytest.fixture
def storage(place: Place) -> Iterator[PostgresStorage]:
    storage = opened(place)
    yield storage
    storage.close()


def opened(place: Place) -> PostgresStorage:
    storage = place.open()
    assert isinstance(storage, PostgresStorage)
    return storage


def random_vector(number: int, dimension: int = 8) -> bytes:
    found = np.random.default_rng(number).standard_normal(dimension)
    return (found / np.linalg.norm(found)).astype("<f2").tobytes()


def indexes_of(storage: PostgresStorage, dimension: int) -> int:
    """How many indexes of vectors there are; -1 while one is of another dimension, or not ready."""
    with storage.database.reading() as connection:
        rows = connection.execute(
            "SELECT pg_get_indexdef(indexrelid), indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
            "WHERE relnamespace = ?::regnamespace AND relname LIKE 'vectors_signs%'",
            (storage.database.schema,),
        ).fetchall()
    return len(rows) if all(valid and f"bit({dimension})" in definition for definition, valid in rows) else -1


def test_a_follower_misses_nothing_that_four_writers_write(storage: PostgresStorage, place: Place) -> None:
    """Numbers that were given out by writers at the same time become visible in their order."""
    fill(storage)
    start = threading.Barrier(WRITERS + 1)

    def write(writer: int) -> None:
        own = opened(place)
        start.wait()
        for turn in range(ROUNDS):
            own.documents.put_documents("notes", [prepared(f"{writer}-{turn}.md", f"shared text {writer} {turn}")])
            pending = own.vectors.pending(SPACE, 100)
            own.vectors.put(SPACE, [(each.number, random_vector(each.number)) for each in pending])
        own.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    start.wait()
    followed: set[int] = set()
    cursor: VectorCursor | None = None
    ended = False
    while not ended:
        ended = not any(thread.is_alive() for thread in threads)  # then one more look, at all there is
        changes = storage.vectors.changes(cursor)
        cursor = changes.cursor
        followed |= {each.number for each in changes.added}
        storage.passages.search(Query(words=("shared",)), 10, enough=10)  # follows the passages
    with storage.database.reading() as connection:
        there = {number for (number,) in connection.execute("SELECT passage FROM vectors")}
    assert len(there) == WRITERS * ROUNDS
    assert followed == there
    assert len(storage.passages.search(Query(words=("shared",)), 1_000, enough=1)) == WRITERS * ROUNDS
    assert_agrees(storage)


def test_two_processes_that_ingest_one_folder_have_one_result(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for number in range(60):
        text = f"# Note {number}\n\nText of note {number}. See [next]({number + 1}.md).\n"
        (folder / f"{number}.md").write_text(text)
    command = [sys.executable, "-P", "-m", "pointsman", "archive", "ingest", str(folder), "--collection", "notes"]
    environment = {**os.environ, **place.environment, "POINTSMAN_ARCHIVE_EMBEDDINGS": "none"}
    processes = [
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[0].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    storage = opened(place)
    with ExitStack() as stack:
        stack.callback(storage.close)
        listed = storage.documents.list_documents("notes", 1_000)
        assert listed.total == len(listed.documents) == 60
        with storage.archives.reading() as view:
            documents = view.newest(Filters(collections=("notes",)), 100)
            assert len(view.graph(documents, 1, 100).edges) == 60  # each once
        assert [hit.score > 0 for hit in storage.passages.search(Query(words=("note", "17")), 1, enough=1)] == [True]


KILLED = """
import os, sys
from tests.archive.engines import place_in
from tests.archive.sample_documents import fill, prepared
storage = place_in(os.environ).open()
fill(storage)
print("writing", flush=True)
documents = [prepared(f"{n}.md", *(f"word{n} {m}" for m in range(20))) for n in range(400)]
storage.documents.put_documents("notes", documents)
"""


@pytest.mark.parametrize("life_s", [0.05, 0.3, 0.6])
def test_of_documents_that_are_put_together_all_or_none_survive_kill_9(place: Place, life_s: float) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED], cwd=PROJECT, env={**os.environ, **place.environment}, stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"writing\n"
    threading.Event().wait(life_s)  # the moment is the point
    writer.kill()
    writer.wait()
    writer.stdout.close()
    storage = opened(place)
    assert storage.documents.list_documents("notes", 1).total in (0, 400)
    assert_agrees(storage)
    fill(storage, prepared("after.md", "still writable"))
    storage.close()


def test_a_task_is_done_by_one_at_a_time_and_who_dies_gives_it_up(storage: PostgresStorage, place: Place) -> None:
    other = opened(place)
    with storage.turn("embedding") as mine, other.turn("embedding") as theirs, other.turn("another") as another:
        assert (mine, theirs, another) == (True, False, True)
    with other.turn("embedding") as theirs:
        assert theirs
    script = (
        "import os; from tests.archive.engines import place_in; storage = place_in(os.environ).open()\n"
        "with storage.turn('embedding') as mine: print(mine, flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=PROJECT,
        env={**os.environ, **place.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"True\n"
    with other.turn("embedding") as theirs:
        assert not theirs
    holder.kill()
    holder.communicate()

    def free() -> bool:
        with other.turn("embedding") as theirs:
            return theirs

    wait_until(free)
    other.close()


def test_archives_apart_in_one_database_do_not_see_each_other(storage: PostgresStorage, place: Place) -> None:
    assert isinstance(place.database, PostgresStore)
    other = PostgresStorage(place.database.url, f"{place.database.schema}-other")  # quoted: it has a hyphen
    fill(storage, prepared("a.md", "walrus"))
    fill(other, prepared("b.md", "walrus"))
    assert storage.documents.list_documents("notes", 10).total == 1
    assert not storage.documents.has("notes", "b.md")
    assert other.documents.has("notes", "b.md")
    other.close()


def test_the_nearest_by_the_index_are_nearly_those_by_comparing_all(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "MEMORY_BYTES", 200 * 4 * 32)
    monkeypatch.setattr(vectors, "LIKELY", 400)
    space = Space("test", "random", 32)
    fill(storage, *(prepared(f"{number}.md", "x") for number in range(600)))
    fill(storage, *(prepared(f"{number}.md", "y") for number in range(30)), collection="small")
    while pending := storage.vectors.pending(space, 100):
        storage.vectors.put(space, [(each.number, random_vector(each.number, 32)) for each in pending])
    storage.housekeeper.tidy()
    wait_until(lambda: indexes_of(storage, 32) == 1)
    exact = VectorIndex(storage.vectors)
    exact.refresh()
    search = storage.vector_search
    assert search.needed()
    assert search.refresh() == space
    kept = 0
    small = VectorFilter(Scope(collections=frozenset([2])))
    for number in range(1_000, 1_020):
        query = np.frombuffer(random_vector(number, 32), "<f2").astype(np.float32)
        wanted = exact.nearest(query, 50, VectorFilter())
        found = search.nearest(query, 50, VectorFilter())
        kept += len({each.number for each in wanted} & {each.number for each in found})
        assert search.nearest(query, 50, small)[0].number == exact.nearest(query, 50, small)[0].number
        assert len(search.nearest(query, 50, small)) == 30
        never = VectorFilter(never=frozenset([wanted[0].number]))
        assert wanted[0].number not in {each.number for each in search.nearest(query, 50, never)}
        for number_, cosine in search.cosines(query, [each.number for each in wanted]).items():
            assert cosine == pytest.approx(exact.cosines(query, [number_])[number_], abs=2e-3)
    assert kept >= 0.95 * 20 * 50
    centroid, expected = search.centroid([1, 2, 3]), exact.centroid([1, 2, 3])
    assert centroid is not None
    assert expected is not None
    assert np.allclose(centroid, expected, atol=1e-3)


def test_vectors_of_another_space_get_an_index_of_their_own(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "MEMORY_BYTES", 10 * 4 * 8)
    fill(storage, *(prepared(f"{number}.md", f"text {number}") for number in range(20)))
    embed_passages(storage, StaticEmbedding())
    storage.housekeeper.tidy()
    for dimension in (8, 16):
        space = Space("test", "random", dimension)
        pending = storage.vectors.pending(space, 100)
        storage.vectors.put(space, [(each.number, random_vector(each.number, dimension)) for each in pending])
        storage.vectors.switch_to(space)
        storage.housekeeper.tidy()
        wait_until(lambda dimension=dimension: indexes_of(storage, dimension) == 1)  # type: ignore[misc]


def test_vectors_are_searched_in_memory_while_they_are_few(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(storage, *(prepared(f"{number}.md", f"text {number}") for number in range(40)))
    space = Space("test", "random", 8)
    pending = storage.vectors.pending(space, 100)
    storage.vectors.put(space, [(each.number, random_vector(each.number)) for each in pending])
    search = ChosenSearch(storage.vectors, storage.vector_search)
    query = np.frombuffer(random_vector(99), "<f2").astype(np.float32)
    storage.housekeeper.tidy()
    assert indexes_of(storage, 8) == 0
    assert search.refresh() == space
    few = search.nearest(query, 5, VectorFilter())
    assert isinstance(search._chosen, VectorIndex)

    monkeypatch.setattr(vectors, "MEMORY_BYTES", 39 * 4 * 8)
    assert search.refresh() == space
    many = search.nearest(query, 5, VectorFilter())
    chosen: VectorSearch = search._chosen
    assert chosen is storage.vector_search
    assert not search._memory._rows
    assert [each.number for each in many] == [each.number for each in few]
    assert [each.cosine for each in many] == pytest.approx([each.cosine for each in few], abs=2e-3)
    storage.housekeeper.tidy()
    assert indexes_of(storage, 8) == 1

    storage.documents.remove_documents("notes", ["0.md"])
    storage.vectors.put(space, [])
    storage.housekeeper.tidy()  # 39 are left, but so far 40 have been counted
    storage.vector_search._counted = vectors._Counted(0, 0, 0)
    storage.housekeeper.tidy()
    assert not storage.vector_search.needed()
    assert indexes_of(storage, 8) == 0
    assert search.refresh() == space
    assert isinstance(search._chosen, VectorIndex)


def test_a_search_asks_few_statements_in_one_view(storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a round trip."""
    fill(storage, *(prepared(f"{number}.md", f"walrus text {number}") for number in range(20)))
    embed_passages(storage, StaticEmbedding())
    searcher = Searcher(storage, StaticEmbedding())
    assert len(searcher.search(parse("walrus 3"), 10).found) == 10
    asked: list[str] = []
    execute, searching = Transaction.execute, threading.get_ident()

    def counting(transaction: Transaction, statement: str, parameters: Sequence[Any] = (), /) -> Rows:
        if threading.get_ident() == searching:  # the housekeeper has its own
            asked.append(statement)
        return execute(transaction, statement, parameters)

    monkeypatch.setattr(Transaction, "execute", counting)
    assert len(searcher.search(parse("walrus 4"), 10).found) == 10
    assert len(asked) <= 4, asked  # the state, blocks of words, passages, their documents


def test_vectors_fill_their_pages(storage: PostgresStorage) -> None:
    space = Space("test", "random", 256)
    fill(storage, *(prepared(f"{number}.md", f"text {number}") for number in range(140)))
    pending = storage.vectors.pending(space, 200)
    storage.vectors.put(space, [(each.number, random_vector(each.number, 256)) for each in pending])
    with storage.database.reading() as connection:
        (size,) = connection.execute("SELECT pg_relation_size('vectors')").fetchone()
    assert size == 10 * 8_192  # 14 on each


def test_merged_segments_give_their_space_back(storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LEAST_WASTE", 1)
    for number in range(70):
        fill(storage, prepared(f"{number}.md", *(f"walrus {number} {part} " * 50 for part in range(4))))
    storage.housekeeper.tidy()
    sizes = []
    for _ in range(2):
        with storage.database.reading() as connection:
            sizes += connection.execute("SELECT pg_total_relation_size('postings')").fetchone()
        with storage.database.outside_transactions() as connection:
            connection.execute("VACUUM FULL postings")
    assert sizes[0] == sizes[1]  # nothing was left to give back: merging alone only adds
    assert len(storage.passages.search(Query(words=("walrus",)), 1_000, enough=1)) == 280
    assert_agrees(storage)


def test_a_reader_delays_the_compaction_only_until_another_time(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "LEAST_WASTE", 1)
    monkeypatch.setattr(compaction, "_WAIT", "10ms")
    for number in range(20):
        fill(storage, prepared(f"{number}.md", f"walrus {number} " * 50))
    with storage.database.reading() as connection:
        connection.execute("SELECT count(*) FROM postings")
        tidying = threading.Thread(target=storage.housekeeper.tidy)
        tidying.start()
        tidying.join()
    storage.housekeeper.tidy()
    assert len(storage.passages.search(Query(words=("walrus",)), 100, enough=1)) == 20


def test_a_null_character_is_replaced_and_long_words_are_found(storage: PostgresStorage) -> None:
    long_words = ["a" * 5_000, "a" * 4_999 + "b", "".join(random.Random(1).choices("abcdef", k=8_000))]
    fill(storage, prepared("a.md", "null \0 character", *long_words))
    chunks = storage.documents.chunks_of("notes", "a.md")
    assert [chunk.text for chunk in chunks[1:]] == long_words
    for place_, word in enumerate(long_words, start=2):
        (hit,) = storage.passages.search(Query(words=(word,)), 10, enough=1)
        assert storage.passages.passages([hit.number])[hit.number].place == place_


def test_a_newer_schema_and_a_user_without_rights_are_told(storage: PostgresStorage, place: Place) -> None:
    assert isinstance(place.database, PostgresStore)
    with psycopg.connect(place.database.url, autocommit=True) as connection:
        connection.execute(f"UPDATE {place.database.schema}.schema_versions SET version = 99".encode())
        with pytest.raises(StoreUnusableError, match="written by a newer Pointsman"):
            opened(place)
        role = f"reader_{os.getpid()}"
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        url = place.database.url.replace("postgres@", f"{role}@")
        with pytest.raises(StoreError, match="permission denied"):
            PostgresStorage(url, "of_its_own")
