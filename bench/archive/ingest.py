"""How fast a folder of notes gets into the archive: text, passages, citations and static vectors, in one process.

`python -m bench.archive.ingest [DOCUMENTS]`
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bench.archive.corpus import Corpus
from pointsman.archive.embedding.passage_vectors import embed_passages
from pointsman.archive.embedding.static import StaticEmbedding
from pointsman.archive.ingest.run import IngestJob, Report, ingest
from pointsman.archive.model.documents import Manifest
from pointsman.archive.store.sqlite.storage import SqliteStorage

DOCUMENTS = 2_000
SECTIONS = 9
COLLECTION = "generated"
Answer = TypeVar("Answer")


def write_corpus(folder: Path, documents: int) -> int:
    """Markdown as in the documentation of a large project: front matter, headings, code, links. Bytes written."""
    corpus = Corpus()
    size = 0
    for number in range(documents):
        path = folder / f"part-{number % 97}" / f"page-{number}.md"
        path.parent.mkdir(exist_ok=True)
        size += path.write_text(_page(corpus, number, documents), "utf-8")
    return size


def _page(corpus: Corpus, number: int, documents: int) -> str:
    words = corpus.words
    title = f"{words[number % len(words)]} {words[number * 7 % len(words)]}"
    parts = [f"---\ntitle: {title}\ndate: 2024-05-31\ntags: [{words[number % 50]}, bench]\n---\n\n# {title}\n"]
    for section in range(SECTIONS):
        target = (number * 31 + section) % documents
        parts.append(
            f"## {words[section + number % 90]}\n\n{corpus.passage()[:330]} "
            f"[{words[section]}](../part-{target % 97}/page-{target}.md) and https://example.org/{target}\n"
        )
    parts.append(f"```py\nprint('{words[number % 300]}')\n```\n")
    return "\n".join(parts)


def measured(work: Callable[[], Answer]) -> tuple[Answer, float]:
    """Return the result and the CPU seconds it took."""
    before = time.process_time()
    answer = work()
    return answer, time.process_time() - before


def main(documents: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "notes"
        folder.mkdir()
        size = write_corpus(folder, documents)
        storage = SqliteStorage(Path(name) / "archive.db")
        storage.documents.put_collection(Manifest(COLLECTION))
        job = IngestJob(folder, COLLECTION)

        def first() -> Report:
            return ingest(storage.documents, job)

        report, text_s = measured(first)
        vectors, vectors_s = measured(lambda: embed_passages(storage, StaticEmbedding()))
        _, again_s = measured(first)
        stats = storage.documents.stats()
        storage.close()
    assert report.added == documents
    assert not report.broken
    passages = sum(each.chunks for each in stats.collections)
    rate = 60 * documents / (text_s + vectors_s)
    print(f"documents          {documents} ({size / 1e6:.1f} MB, {passages / documents:.1f} passages each)")
    print(f"text, citations    {text_s:.1f} s of CPU")
    print(f"vectors            {vectors_s:.1f} s of CPU ({vectors / max(vectors_s, 0.001):.0f} passages a second)")
    print(f"documents a minute {rate:.0f} of CPU")
    print(f"nothing changed    {again_s:.2f} s of CPU for all files")
    print(f"store              {stats.bytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENTS)
