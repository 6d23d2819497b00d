"""Does documents_search find what is relevant? On public sets in BEIR's form and on docstrings; vectors on and off."""

from __future__ import annotations

import math
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any, Literal

import msgspec

from bench.archive.engines import ENGINES, new_store
from bench.quality import docstrings
from pointsman.archive.archive import Archive, open_archive
from pointsman.archive.embedding.passage_vectors import embed_passages
from pointsman.archive.embedding.settings import EmbeddingSettings, make_embeddings
from pointsman.archive.model.documents import Chunk, Document, Manifest, PreparedDocument
from pointsman.archive.settings import ArchiveSettings
from pointsman.archive.text.chunks import chunks_of
from pointsman.archive.tools.base import Call
from pointsman.archive.tools.documents_search import search_documents

DATA = "POINTSMAN_ARCHIVE_DATA"
FLOORS = {  # nDCG@10
    ("none", "cranfield"): 0.378,
    ("none", "cisi"): 0.380,
    ("none", "docstrings"): 0.680,  # lower than measured: Python's versions differ
    ("static", "cranfield"): 0.405,
    ("static", "cisi"): 0.400,
    ("static", "docstrings"): 0.710,
}
DEPTH = 10
BATCH = 200
Mode = Literal["none", "static"]
MODES: tuple[Mode, ...] = ("none", "static")


@dataclass(frozen=True, slots=True)
class JudgedSet:
    name: str
    documents: tuple[PreparedDocument, ...]
    queries: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, float]]  # by query: documents and how much they are worth


def measure(folder: Path | None, engines: Sequence[str] = ENGINES) -> list[str]:
    """Print a line for each set, mode and engine; the figures under their floors. `folder`: of the public sets."""
    sets = [_load(path.parent) for path in sorted(folder.glob("*/corpus.jsonl"))] if folder else []
    if folder and not sets:
        return [f"{folder} has no <set>/corpus.jsonl. Is {DATA} right?"]
    sets.append(_docstrings())
    head = f"{'set':12}{'documents':>10}{'engine':>10}{'vectors':>9}{'nDCG@10':>9}{'p50 ms':>8}"
    print(f"Through documents_search\n  {head}")
    failures = []
    for each, mode, engine in product(sets, MODES, engines):
        ndcg, p50_ms = _measured(each, mode, engine)
        print(f"  {each.name:12}{len(each.documents):>10}{engine:>10}{mode:>9}{ndcg:>9.4f}{p50_ms:>8.1f}", flush=True)
        floor = FLOORS.get((mode, each.name), 0.0)
        if ndcg < floor:
            failures.append(f"documents_search on {each.name}, {engine}, vectors: {mode}: {ndcg:.4f}, wanted {floor}")
    return failures


def _measured(each: JudgedSet, mode: Mode, engine: str) -> tuple[float, float]:
    with new_store(engine) as store:
        archive = open_archive(ArchiveSettings(store, {}, embeddings=EmbeddingSettings(mode)), shipped=False)
        try:
            _fill(archive, each, mode)
            return _asked(archive, each)
        finally:
            archive.close()


def _fill(archive: Archive, each: JudgedSet, mode: Mode) -> None:
    archive.storage.documents.put_collection(Manifest(each.name))
    for start in range(0, len(each.documents), BATCH):
        archive.storage.documents.put_documents(each.name, each.documents[start : start + BATCH])
    embeddings = make_embeddings(EmbeddingSettings(mode))
    if embeddings is not None:
        embed_passages(archive.storage, embeddings)


def _asked(archive: Archive, each: JudgedSet) -> tuple[float, float]:
    gains, times = [], []
    for number, judged in each.relevant.items():
        began = perf_counter()
        answer = search_documents(archive, {"query": each.queries[number], "limit": DEPTH}, Call())
        times.append(perf_counter() - began)
        found = list(dict.fromkeys(hit["documentId"] for hit in answer["results"]))  # judged are whole documents
        gains.append(_ndcg(found, judged))
    return fmean(gains), median(times) * 1000


def _ndcg(found: list[str], judged: Mapping[str, float]) -> float:
    gained = sum(judged.get(id_, 0.0) / math.log2(place + 2) for place, id_ in enumerate(found[:DEPTH]))
    best = sorted(judged.values(), reverse=True)[:DEPTH]
    return gained / sum(worth / math.log2(place + 2) for place, worth in enumerate(best))


def _load(folder: Path) -> JudgedSet:
    relevant: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, worth = line.split("\t")
        if float(worth) > 0:
            relevant[query][document] = float(worth)
    queries = {line["_id"]: line["text"] for line in _lines(folder / "queries.jsonl")}
    documents = tuple(_document(folder.name, line) for line in _lines(folder / "corpus.jsonl"))
    return JudgedSet(folder.name, documents, queries, relevant)


def _docstrings() -> JudgedSet:
    name = "docstrings"
    described = docstrings.described()
    queries = docstrings.queries(described)
    documents = tuple(
        PreparedDocument(
            Document(name, each.name, each.name, each.text, "research", "2024-01-01"), chunks_of(each.text, each.name)
        )
        for each in described
    )
    return JudgedSet(name, documents, queries, {each: {each: 1.0} for each in queries})


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        if line.strip():
            yield msgspec.json.decode(line)


def _document(collection: str, line: dict[str, Any]) -> PreparedDocument:
    """One passage each: what is judged are whole documents."""
    title, text = line["title"] or line["_id"], line["text"] or line["title"]
    document = Document(collection, line["_id"], title, text, "research", "2024-01-01")
    return PreparedDocument(document, (Chunk(text, None, 1, 1),) if text else ())


if __name__ == "__main__":  # `python -m bench.quality.archive [sqlite|postgres]`
    named = os.environ.get(DATA)
    sys.exit("\n".join(measure(Path(named) if named else None, sys.argv[1:] or ENGINES)))
