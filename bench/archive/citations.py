"""`python -m bench.archive.citations`: searchLocalArchives over 15,000 documents that cite each other."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.archive.corpus import COLLECTION, Corpus
from pointsman.archive.archive import Archive, LazyStore
from pointsman.archive.citations.extract import citations_of
from pointsman.archive.embedding.settings import EmbeddingSettings
from pointsman.archive.model.documents import Manifest, PreparedDocument
from pointsman.archive.settings import ArchiveSettings
from pointsman.archive.store.sqlite.storage import SqliteStorage
from pointsman.archive.tools.base import Call
from pointsman.archive.tools.search_local_archives import search_local_archives
from pointsman.core.model import Json

DOCUMENTS = 15_000
SEARCHES = 200
UPDATES = 300
AT_ONCE = 200


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive.db"
        storage = SqliteStorage(path)
        corpus, chance = Corpus(), random.Random(11)
        began = time.process_time()
        _fill(storage, corpus, chance)
        print(f"{DOCUMENTS:,} documents written in {time.process_time() - began:.1f} s of CPU, citations included")
        began = time.process_time()
        storage.housekeeper.tidy()
        print(f"vocabulary and the rest of the housekeeping: {time.process_time() - began:.1f} s of CPU")
        _graph_size(storage)
        _searches(path, corpus, chance)
        _updates(storage, corpus, chance)
        storage.close()


def _fill(storage: SqliteStorage, corpus: Corpus, chance: random.Random) -> None:
    storage.documents.put_collection(Manifest(COLLECTION))
    batch: list[PreparedDocument] = []
    for number in range(DOCUMENTS):
        batch.append(_citing(corpus.document(number), number, chance))
        if len(batch) == AT_ONCE:
            storage.documents.put_documents(COLLECTION, batch)
            batch = []
    if batch:
        storage.documents.put_documents(COLLECTION, batch)


def _citing(prepared: PreparedDocument, number: int, chance: random.Random) -> PreparedDocument:
    """Few documents are cited by many, most by few; some links lead outside, some to what arrives later."""
    links = []
    for _ in range(chance.randint(0, 6)):
        cited = int(DOCUMENTS * chance.random() ** 3)
        links.append(f"See [that](../part-{cited % 97}/document-{cited}.md) for more.")
    links += (f"Also https://example.com/{chance.randint(0, 5_000)}." for _ in range(chance.randint(0, 3)))
    content = f"{prepared.document.content}\n\n{chr(10).join(links)}\n"
    return replace(
        prepared, document=replace(prepared.document, content=content), citations=citations_of("\n".join(links))
    )


def _graph_size(storage: SqliteStorage) -> None:
    with storage.database.reading() as connection:
        (edges, resolved) = connection.execute("SELECT count(*), count(target) FROM citations").fetchone()
    print(f"{edges:,} citations, {resolved:,} of them of documents of the archive\n")


def _searches(path: Path, corpus: Corpus, chance: random.Random) -> None:
    settings = ArchiveSettings(path, {}, embeddings=EmbeddingSettings(provider="none"))
    archive = Archive({}, store=LazyStore(settings, shipped=False))
    queries = [corpus.query() for _ in range(SEARCHES)]
    rare = [chance.choice(corpus.words[2_000:]) for _ in range(SEARCHES)]
    wrong = [_slip(word, chance) for word in chance.choices([w for w in corpus.words if len(w) >= 6], k=SEARCHES)]
    print(f"searchLocalArchives in ms, {SEARCHES} searches, the first left out{'':9}{'p50':>7}{'p95':>7}{'max':>7}")
    for name, asked, more in (
        ("words of a text", queries, {}),
        ("one rare word", rare, {}),
        ("one word with a slip", wrong, {}),
        ("words of a text, citations, depth 1", queries, {"includeCitations": True}),
        ("words of a text, citations, depth 3", queries, {"includeCitations": True, "citationDepth": 3}),
        ("the same, limit 50", queries, {"includeCitations": True, "citationDepth": 3, "limit": 50}),
    ):
        _timed(name, _search(archive, asked, more))
    archive.close()


def _search(archive: Archive, asked: list[str], more: Json) -> Iterator[Callable[[], object]]:
    for query in asked:
        yield partial(search_local_archives, archive, {"query": query, **more}, Call())


def _updates(storage: SqliteStorage, corpus: Corpus, chance: random.Random) -> None:
    """The whole update of one document: the same text with the same links, then with others."""
    numbers = [chance.randrange(DOCUMENTS) for _ in range(UPDATES)]
    print(f"\none document written again, in ms{'':23}{'p50':>7}{'p95':>7}{'max':>7}")
    for name in ("all of it new", "nothing new"):
        state = random.Random(3)
        made = [_citing(corpus.document(number), number, state) for number in numbers]
        if name == "nothing new":
            for prepared in made:
                storage.documents.put_documents(COLLECTION, [prepared])
        _timed(name, (partial(storage.documents.put_documents, COLLECTION, [prepared]) for prepared in made))


def _timed(name: str, calls: Iterator[Callable[[], object]]) -> None:
    times = []
    for call in calls:
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1000)
    times = sorted(times[1:])
    p50, p95 = (times[int(len(times) * part)] for part in (0.5, 0.95))
    print(f"  {name:54}{p50:7.1f}{p95:7.1f}{times[-1]:7.1f}", flush=True)


def _slip(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, len(word))
    return word[:place] + chance.choice("aeioust") + word[place:]


if __name__ == "__main__":
    main()
