"""The index of words: merges in small steps, what readers see meanwhile, and space that is given back."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pointsman.archive.search.query_parser import parse
from pointsman.archive.store import postings
from pointsman.archive.store.corpus import Corpus
from pointsman.archive.store.sql import passage_map, passage_texts, words
from pointsman.archive.store.sql.passage_texts import compress, decompress
from tests.archive.engines import AnyStorage, Place
from tests.archive.sample_documents import fill, prepared
from tests.archive.store.agreement import assert_index_agrees

WORDS = [f"{first}{second}" for first in ("kettle", "walrus", "tide", "stone", "cup") for second in "abcdefgh"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "POSTINGS_PER_BLOCK", 16)


@pytest.fixture
def quiet(storage: AnyStorage, monkeypatch: pytest.MonkeyPatch) -> AnyStorage:
    """A store whose housekeeper works only when it is told to."""
    monkeypatch.setattr(storage.documents, "_wake_housekeeper", lambda: None)
    return storage


def write_some(storage: AnyStorage, chance: random.Random, turns: int) -> None:
    for _ in range(turns):
        texts = [" ".join(chance.choices(WORDS, k=12)) for _ in range(chance.randint(1, 4))]
        fill(storage, prepared(f"{chance.randrange(30)}.md", *texts))
        if chance.random() < 0.2:
            storage.documents.remove_documents("notes", [f"{chance.randrange(30)}.md"])


def rows(storage: AnyStorage, table: str) -> int:
    with storage.database.reading() as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def found(storage: AnyStorage, text: str) -> list[tuple[int, float]]:
    return [(hit.number, hit.score) for hit in storage.passages.search(parse(text), 1_000, enough=1)]


def test_many_writes_leave_few_segments_and_an_index_that_agrees(quiet: AnyStorage) -> None:
    write_some(quiet, random.Random(1), 120)
    assert rows(quiet, "segments") > 80
    assert_index_agrees(quiet)
    quiet.housekeeper.tidy()
    assert rows(quiet, "segments") < 2 * postings.FAN_IN
    assert_index_agrees(quiet)


def test_every_step_of_a_merge_leaves_the_same_answers(quiet: AnyStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "POSTINGS_PER_BLOCK", 4)
    monkeypatch.setattr(words, "ROWS_PER_STEP", 3)
    write_some(quiet, random.Random(2), 40)
    questions = ["kettlea", "walrusb tidec", f'"{WORDS[3]} {WORDS[7]}" stoned', "+cupe -kettleb"]
    before = [found(quiet, question) for question in questions]
    assert all(before[:2])
    steps = 0
    while quiet.housekeeper._step():
        steps += 1
        assert [found(quiet, question) for question in questions] == before
    assert steps > 20
    assert_index_agrees(quiet)


def test_small_segments_are_merged_in_one_step(quiet: AnyStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "POSTINGS_PER_BLOCK", 2_048)
    for turn in range(postings.FAN_IN):
        fill(quiet, prepared(f"{turn}.md", f"kettle number{turn}"))
    assert rows(quiet, "segments WHERE ready = 1") == postings.FAN_IN
    assert quiet.housekeeper._step()
    assert rows(quiet, "segments WHERE ready = 1") == 1
    assert quiet.housekeeper._step()
    assert rows(quiet, "segments") == 1


def test_a_merge_goes_on_after_its_process_ended(quiet: AnyStorage, place: Place) -> None:
    write_some(quiet, random.Random(3), 40)
    while not rows(quiet, "segments WHERE done IS NOT NULL"):  # a merge is under way
        assert quiet.housekeeper._step()
    quiet.close()
    storage = place.open()
    assert_index_agrees(storage)
    storage.housekeeper.tidy()
    assert rows(storage, "segments WHERE ready = 0") == 0
    assert_index_agrees(storage)
    storage.close()


def test_words_of_deleted_passages_leave_the_file(quiet: AnyStorage) -> None:
    write_some(quiet, random.Random(4), 60)
    quiet.documents.remove_collection("notes")
    quiet.housekeeper.tidy()
    for table in ("segments", "postings", "passages", "removed_texts"):
        assert rows(quiet, table) == 0, table


def documents_in(corpus: Corpus) -> list[int]:
    """The document of each passage; 0 for a deleted one."""
    assert corpus.words == corpus.lengths[corpus.alive].sum()
    return [int(document) for document in np.where(corpus.alive, corpus.document_of, 0)]


def in_another_thread(act: Callable[[], object]) -> None:
    """In this thread, PostgreSQL would read in the view that is open."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(act).result()


@pytest.mark.parametrize("kept", [1_000, 0])
def test_a_reader_whose_view_is_older_sees_that_and_spoils_nothing_for_newer_ones(
    quiet: AnyStorage, place: Place, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(passage_map, "_DELETIONS_KEPT", kept)
    map_ = passage_map.PassageMap()
    write_some(quiet, random.Random(6), 30)
    first, second, third = (place.open() for _ in range(3))  # views of their own
    with first.database.reading() as older, second.database.reading() as old:
        seen = [documents_in(passage_map.PassageMap().current(older)[0])]
        write_some(quiet, random.Random(7), 10)
        seen.append(documents_in(passage_map.PassageMap().current(old)[0]))
        write_some(quiet, random.Random(8), 10)
        with third.database.reading() as new:
            seen.append(documents_in(passage_map.PassageMap().current(new)[0]))
            for view, expected in ((old, seen[1]), (new, seen[2]), (old, seen[1]), (older, seen[0]), (new, seen[2])):
                corpus, cache = map_.current(view)
                assert documents_in(corpus) == expected
                assert map_._newest is not None
                assert (cache is None) == (map_._newest.last >= len(expected))
    for storage in (first, second, third):
        storage.close()
    fill(quiet, prepared("a.md", "zebra one"))
    with quiet.archives.reading() as archive:
        fill(quiet, prepared("b.md", "zebra two"))
        in_another_thread(lambda: found(quiet, "giraffe"))  # brings the passages up to date
        assert archive.count_passages("zebra", 10) == 1
    assert len(found(quiet, "zebra")) == 2


def test_readers_see_whole_writes_while_segments_are_merged(storage: AnyStorage) -> None:
    """Each write replaces all passages: a reader finds all of one write, never a part or two."""
    fill(storage, prepared("a.md", *["walrus alpha0"] * 5))
    wrong: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            hits = storage.passages.search(parse("walrus"), 100, enough=1)
            if len(hits) != 5:
                wrong.append(hits)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(60):
        fill(storage, prepared("a.md", *[f"walrus alpha{turn}"] * 5))
        if turn % 5 == 0:
            storage.housekeeper.tidy()
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_a_passage_of_a_long_document_is_read_without_the_rest(
    storage: AnyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passage_texts, "BLOCK", 100)
    texts = [f"passage {number} straße 日本 " * (1 + number % 9) for number in range(60)]
    texts = [text.strip() for text in texts]
    document = prepared("long.md", *texts)
    fill(storage, document)
    assert decompress(compress(document.document.content)) == document.document.content
    assert [chunk.text for chunk in storage.documents.chunks_of("notes", "long.md")] == texts
    assert storage.passages.passages([31])[31].chunk.text == texts[30]
    unpacked: list[int] = []
    block = passage_texts._block

    def counting(stored: bytes, number: int) -> str:
        unpacked.append(number)
        return block(stored, number)

    monkeypatch.setattr(passage_texts, "_block", counting)
    storage.passages.passages([60])
    assert len(unpacked) <= 5


def test_a_passage_that_is_no_part_of_its_document_has_its_own_text(storage: AnyStorage) -> None:
    windows = "one\r\ntwo"
    made = prepared("a.md", "one\ntwo", "three")
    fill(storage, type(made)(type(made.document)("notes", "a.md", "A", windows, "research", "2024-01-01"), made.chunks))
    assert [chunk.text for chunk in storage.documents.chunks_of("notes", "a.md")] == ["one\ntwo", "three"]
    assert_index_agrees(storage)


def test_a_large_write_is_indexed_in_parts(storage: AnyStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "PASSAGES_PER_SEGMENT", 3)
    fill(storage, prepared("a.md", *(f"kettle number{number}" for number in range(10))))
    assert_index_agrees(storage)
    assert len(found(storage, "kettle")) == 10


def test_the_last_of_two_documents_with_one_id_in_a_write_stays(storage: AnyStorage) -> None:
    fill(storage, prepared("a.md", "first", "both"), prepared("a.md", "second", "both"))
    assert [chunk.text for chunk in storage.documents.chunks_of("notes", "a.md")] == ["second", "both"]
    assert [each.documents for each in storage.documents.stats().collections] == [1]
    assert_index_agrees(storage)


def test_a_reader_sees_its_own_passages_after_others_have_seen_newer_ones(quiet: AnyStorage) -> None:
    fill(quiet, prepared("a.md", "walrus one", "walrus two"))
    assert len(found(quiet, "walrus")) == 2
    fill(quiet, prepared("b.md", "walrus three"))

    def change() -> None:
        for number in range(2):
            fill(quiet, prepared(f"new-{number}.md", "walrus four"))
            quiet.documents.remove_documents("notes", ["a.md"])
            assert len(found(quiet, "walrus")) == 2 + number

    with quiet.database.reading() as connection:
        connection.execute("SELECT count(*) FROM documents").fetchone()  # the view begins
        in_another_thread(change)
        assert quiet.archives._words.corpus(connection).total == 3
    assert len(found(quiet, "walrus")) == 3
