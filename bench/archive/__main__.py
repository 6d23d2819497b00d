"""`make bench-archive`: a generated archive of 100,000 passages, in SQLite and in PostgreSQL.

Prints figures; fails where a call fails. `python -m bench.archive [PASSAGES] [sqlite|postgres]`.
"""

from __future__ import annotations

import os
import platform
import random
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter, process_time, thread_time

from bench.archive.corpus import CHUNKS_EACH, COLLECTION, Corpus
from bench.archive.engines import ENGINES, new_store
from pointsman.archive.archive import Archive, open_archive
from pointsman.archive.embedding.passage_vectors import embed_passages
from pointsman.archive.embedding.settings import EmbeddingSettings, make_embeddings
from pointsman.archive.model.documents import Manifest, PreparedDocument
from pointsman.archive.search.searcher import LITTLE
from pointsman.archive.settings import ArchiveSettings, PostgresStore
from pointsman.archive.tools.base import Call
from pointsman.archive.tools.documents_search import search_documents

PASSAGES = 100_000
BATCH = 200
SEARCHES = 300
UPDATES = 300
READERS = 4
TOGETHER_S = 10.0


def main() -> None:
    passages = int(sys.argv[1]) if len(sys.argv) > 1 else PASSAGES
    engines = sys.argv[2:] or ENGINES
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores. Compare figures of one run only.")
    with ExitStack() as stack:
        stores = {engine: stack.enter_context(new_store(engine)) for engine in engines}
        archives = {engine: _opened(engine, store, passages, stack) for engine, store in stores.items()}
        _interleaved(archives)
        for engine, archive in archives.items():
            print(f"\n{engine}")
            _updates(archive, Corpus(), passages)
            _together(archive, Corpus(), passages)
    if "postgres" in engines:
        print("\nOf PostgreSQL the CPU is the archive's own. Its server writes without waiting for the disk.")


def _opened(engine: str, store: Path | PostgresStore, passages: int, stack: ExitStack) -> Archive:
    print(f"\n{engine}")
    settings = ArchiveSettings(store, {}, embeddings=EmbeddingSettings("static"))
    corpus = Corpus()
    text = _filled(settings, corpus, passages)
    before = _resident_mb()
    archive = open_archive(settings, shipped=False)
    stack.callback(archive.close)
    began = perf_counter()
    _search(archive, corpus)
    print(f"The first search, with the loading of vectors and model: {perf_counter() - began:.2f} s")
    print(f"Resident memory that it has added: {_resident_mb() - before:.0f} MB")
    _size(archive, text, "with vectors")
    return archive


def _filled(settings: ArchiveSettings, corpus: Corpus, passages: int) -> int:
    """Return the bytes of text."""
    archive = open_archive(ArchiveSettings(settings.database, {}, embeddings=EmbeddingSettings("none")), shipped=False)
    archive.storage.documents.put_collection(Manifest(COLLECTION))
    began, cpu = perf_counter(), process_time()
    batch: list[PreparedDocument] = []
    text = 0
    for document in corpus.documents(passages):
        batch.append(document)
        text += len(document.document.content.encode())
        if len(batch) == BATCH:
            archive.storage.documents.put_documents(COLLECTION, batch)
            batch.clear()
    archive.storage.documents.put_documents(COLLECTION, batch)
    print(f"{passages} passages put: {perf_counter() - began:.1f} s, {process_time() - cpu:.1f} s of CPU")
    embeddings = make_embeddings(settings.embeddings)
    assert embeddings is not None
    began, cpu = perf_counter(), process_time()
    embed_passages(archive.storage, embeddings)
    print(f"their vectors: {perf_counter() - began:.1f} s, {process_time() - cpu:.1f} s of CPU")
    began, cpu = perf_counter(), process_time()
    archive.storage.tidy()
    print(f"the rest of the housekeeping: {perf_counter() - began:.1f} s, {process_time() - cpu:.1f} s of CPU")
    archive.close()
    return text


def _size(archive: Archive, text: int, when: str) -> None:
    size = archive.storage.documents.stats().bytes
    print(f"store {when}: {size / 1e6:.0f} MB for {text / 1e6:.0f} MB of text, {size / text:.2f} times the text")


def _search(archive: Archive, corpus: Corpus) -> None:
    answer = search_documents(archive, {"query": corpus.query()}, Call())
    assert answer["results"]
    assert answer.get("notice") in (None, LITTLE), answer["notice"]  # random words may have no good answer


def _interleaved(archives: dict[str, Archive]) -> None:
    """The same searches on each engine, one after the other: the machine is as busy for both."""
    corpus = Corpus()
    times: dict[str, list[tuple[float, float]]] = {engine: [] for engine in archives}
    for _ in range(SEARCHES):
        query = corpus.query()
        for engine, archive in archives.items():
            began, cpu = perf_counter(), thread_time()
            answer = search_documents(archive, {"query": query}, Call())
            times[engine].append((perf_counter() - began, thread_time() - cpu))
            assert answer["results"]
    print(f"\ndocuments_search, hybrid, {SEARCHES} searches in turns")
    for engine, each in times.items():
        print(f"  {engine:9} {_spread([wall for wall, _ in each])}; CPU {_spread([cpu for _, cpu in each])}")


def _updates(archive: Archive, corpus: Corpus, passages: int) -> None:
    chance = random.Random(3)
    documents = archive.storage.documents

    def edited() -> PreparedDocument:
        number = chance.randrange(passages // CHUNKS_EACH)
        old = documents.chunks_of(COLLECTION, corpus.document(number).document.id)
        texts = [chunk.text for chunk in old]
        texts[chance.randrange(len(texts))] = corpus.passage()
        return corpus.made(number, texts)

    def rewritten() -> PreparedDocument:
        return corpus.document(chance.randrange(passages // CHUNKS_EACH))

    for name, make in (("one passage edited", edited), ("all ten passages new", rewritten)):
        made = [make() for _ in range(UPDATES)]
        walls, cpus = _timed(UPDATES, lambda made=made: documents.put_documents(COLLECTION, [made.pop()]))  # type: ignore[misc]
        print(f"update of a document, {name}: {_spread(walls)}; CPU {_spread(cpus)}")


def _together(archive: Archive, corpus: Corpus, passages: int) -> None:
    """Readers search while a writer rewrites documents as fast as it can."""
    queries = [corpus.query() for _ in range(500)]
    chance = random.Random(5)
    documents = [corpus.document(chance.randrange(passages // CHUNKS_EACH)) for _ in range(500)]
    end = perf_counter() + TOGETHER_S
    errors: list[BaseException] = []
    reads: list[float] = []
    writes: list[float] = []

    def repeat(times: list[float], act: Callable[[int], object]) -> None:
        count = 0
        while perf_counter() < end:
            began = perf_counter()
            try:
                act(count)
            except Exception as error:
                errors.append(error)
            times.append(perf_counter() - began)
            count += 1

    def read(count: int) -> object:
        return search_documents(archive, {"query": queries[count % len(queries)]}, Call())

    def write(count: int) -> None:
        archive.storage.documents.put_documents(COLLECTION, [documents[count % len(documents)]])

    threads = [threading.Thread(target=repeat, args=(reads, read)) for _ in range(READERS)]
    threads.append(threading.Thread(target=repeat, args=(writes, write)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(
        f"{READERS} readers beside a writer for {TOGETHER_S:.0f} s: {len(reads)} searches ({_spread(reads)}), ", end=""
    )
    print(f"{len(writes)} updates ({_spread(writes)}), {len(errors)} errors")
    if errors:
        raise errors[0]


def _timed(count: int, act: Callable[[], object]) -> tuple[list[float], list[float]]:
    walls, cpus = [], []
    for _ in range(count):
        began, cpu = perf_counter(), thread_time()
        act()
        walls.append(perf_counter() - began)
        cpus.append(thread_time() - cpu)
    return walls, cpus


def _spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"p50 {ordered[len(ordered) // 2] * 1000:.1f}, p95 {ordered[int(len(ordered) * 0.95)] * 1000:.1f} ms"


def _resident_mb(field: str = "VmRSS") -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return float("nan")


if __name__ == "__main__":
    main()
