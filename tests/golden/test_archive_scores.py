"""Scores of the archive's searches are honest: what fits has a high one, the best hit of a nonsense query a low one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pointsman.archive.archive import Archive, open_archive
from pointsman.archive.embedding.passage_vectors import embed_passages as embed
from pointsman.archive.embedding.settings import EmbeddingSettings
from pointsman.archive.embedding.static import StaticEmbedding
from pointsman.archive.settings import ArchiveSettings
from pointsman.archive.tools.base import Call
from pointsman.archive.tools.documents_search import search_documents
from pointsman.archive.tools.search_local_archives import search_local_archives
from tests.archive.sample_documents import fill, prepared

HIGH, LOW = 0.6, 0.35
GOLDEN: dict[str, Any] = YAML(typ="safe").load(Path(__file__).with_name("archive_scores.yaml"))

Hits = list[tuple[str, float]]  # documents with their scores, best first


@pytest.fixture(scope="module", params=["none", "static"])
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    database = tmp_path_factory.mktemp("archive") / "archive.db"
    archive = open_archive(ArchiveSettings(database, {}, embeddings=EmbeddingSettings(request.param)), shipped=False)
    fill(archive.storage, *(prepared(id_, text) for id_, text in GOLDEN["documents"].items()))
    if request.param == "static":
        embed(archive.storage, StaticEmbedding())
    yield archive
    archive.close()


def passages(archive: Archive, query: str, **options: Any) -> Hits:
    found = search_documents(archive, {"query": query, **options}, Call())["results"]
    return [(hit["documentId"], hit["relevanceScore"]) for hit in found]


def whole_documents(archive: Archive, query: str) -> Hits:
    found = search_local_archives(archive, {"query": query}, Call())["results"]
    return [(hit["document"]["path"], hit["document"]["score"]) for hit in found]


@pytest.mark.parametrize("real", GOLDEN["real"], ids=lambda real: real["right"])
def test_what_fits_comes_first_with_a_high_score(archive: Archive, real: dict[str, str]) -> None:
    document, score = passages(archive, real["ask"])[0]
    assert document == real["right"]
    assert score >= HIGH
    assert whole_documents(archive, real["ask"])[0][0] == real["right"]


@pytest.mark.parametrize("query", GOLDEN["nonsense"])
def test_the_best_hit_of_nonsense_has_a_low_score(archive: Archive, query: str) -> None:
    for hits in (
        passages(archive, query),
        passages(archive, query, hybridSearch=False),
        whole_documents(archive, query),
    ):
        assert max((score for _, score in hits), default=0.0) <= LOW, hits


@pytest.mark.parametrize("query", GOLDEN["nonsense"])
@pytest.mark.parametrize("hybrid", [True, False])
def test_an_answer_says_where_nothing_covers_the_query(archive: Archive, query: str, hybrid: bool) -> None:
    answer = search_documents(archive, {"query": query, "hybridSearch": hybrid}, Call())
    best = max((hit["relevanceScore"] for hit in answer["results"]), default=0.0)
    assert ("No passage" in answer.get("notice", "")) == (best < LOW)


def test_scores_fall_from_hit_to_hit(archive: Archive) -> None:
    for query in (*(real["ask"] for real in GOLDEN["real"]), *GOLDEN["nonsense"]):
        scores = [score for _, score in passages(archive, query)]
        assert scores == sorted(scores, reverse=True)
