"""Vectors of passages: computed once, resumed after a failure, never from two models at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pointsman.archive.embedding import passage_vectors
from pointsman.archive.embedding.base import EmbeddingError, embed_batch, passage_space
from pointsman.archive.embedding.passage_vectors import BackgroundEmbedding, MixedSpacesError
from pointsman.archive.embedding.passage_vectors import embed_passages as embed
from pointsman.archive.embedding.remote import RemoteEmbedding
from pointsman.archive.embedding.settings import Endpoint
from pointsman.archive.embedding.static import StaticEmbedding
from pointsman.archive.search.query_parser import parse
from pointsman.archive.search.searcher import Searcher
from tests.archive.embedding.server import EmbeddingServer, embedding_server
from tests.archive.engines import AnyStorage
from tests.archive.sample_documents import fill, prepared
from tests.archive.wait import wait_until

BATCH = 4


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    monkeypatch.setattr(passage_vectors, "BATCH", BATCH)
    with embedding_server() as server:
        yield server


def model(server: EmbeddingServer, name: str = "small") -> RemoteEmbedding:
    return RemoteEmbedding(Endpoint(server.url, name, dimensions=8), first_pause_s=0.001)


def texts(count: int) -> list[str]:
    return [f"passage {number}" for number in range(count)]


def vectors(storage: AnyStorage) -> int:
    """How many passages of a.md have one in the space in use."""
    with storage.database.reading() as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM passages JOIN vectors ON passage = passages.id JOIN spaces ON spaces.id = space "
            "WHERE passages.document IS NOT NULL AND in_use = 1"
        ).fetchone()
    return int(count)


def test_every_passage_is_embedded_once_with_its_title_and_heading(
    storage: AnyStorage, server: EmbeddingServer
) -> None:
    fill(storage, prepared("a.md", *texts(6), title="Title", heading="Heading"))
    heard: list[tuple[int, int]] = []
    assert embed(storage, model(server), on_progress=lambda *done: heard.append(done)) == 6
    assert embed(storage, model(server)) == 0
    assert server.texts[0] == "Title\nHeading\npassage 0"
    assert len(server.texts) == 6
    assert heard == [(4, 6), (6, 6)]


def test_an_edit_costs_the_embedding_of_what_changed(storage: AnyStorage, server: EmbeddingServer) -> None:
    fill(storage, prepared("a.md", "one", "two", "three"))
    embed(storage, model(server))
    fill(storage, prepared("a.md", "one", "TWO", "three"))
    embed(storage, model(server))
    assert server.texts[3:] == ["a.md\nTWO"]
    assert vectors(storage) == 3
    storage.housekeeper.tidy()
    assert storage.documents.stats().vectors == {"openai-compatible, small, 8 dimensions": 3}


def test_a_run_that_failed_goes_on_where_it_was(storage: AnyStorage, server: EmbeddingServer) -> None:
    fill(storage, prepared("a.md", *texts(10)))
    embedding = model(server)
    with pytest.raises(EmbeddingError):
        embed(storage, embedding, on_progress=_fails_next(server))
    assert vectors(storage) == BATCH
    embed(storage, embedding)
    assert len(server.texts) == 10
    assert vectors(storage) == 10


def _fails_next(server: EmbeddingServer) -> Callable[[int, int], None]:
    return lambda done, total: server.refusals.append(401)


def test_another_model_is_refused_with_the_command_that_helps(storage: AnyStorage, server: EmbeddingServer) -> None:
    fill(storage, prepared("a.md", "one"))
    embed(storage, model(server, "small"))
    with pytest.raises(MixedSpacesError, match="pointsman archive embed --again"):
        embed(storage, model(server, "large"))
    assert vectors(storage) == 1


def test_old_vectors_serve_until_the_last_new_one_is_there(storage: AnyStorage, server: EmbeddingServer) -> None:
    fill(storage, prepared("a.md", *texts(6)))
    embed(storage, model(server, "small"))
    with pytest.raises(EmbeddingError):
        embed(storage, model(server, "large"), again=True, on_progress=_fails_next(server))
    used = storage.vectors.space()
    assert used is not None
    assert (used.model, vectors(storage)) == ("small", 6)
    assert embed(storage, model(server, "large"), again=True) == 2
    used = storage.vectors.space()
    assert used is not None
    assert (used.model, vectors(storage)) == ("large", 6)
    assert list(storage.documents.stats().vectors) == ["openai-compatible, large, 8 dimensions"]


def test_vectors_of_an_older_version_serve_until_the_background_has_replaced_them(
    storage: AnyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passage_vectors, "BATCH", BATCH)
    fill(storage, prepared("a.md", *texts(6), "bake the bread"))
    older = StaticEmbedding()
    pending = storage.vectors.pending(older.space(), 10)
    storage.vectors.put(
        older.space(),
        list(zip([each.number for each in pending], embed_batch(older, [each.text for each in pending]), strict=True)),
    )
    answer = Searcher(storage, StaticEmbedding()).search(parse("baking loaves"), 1)
    assert answer.found[0].passage.chunk.text == "bake the bread"
    working = BackgroundEmbedding(storage, StaticEmbedding())
    try:
        wait_until(lambda: storage.vectors.space() == passage_space(older))
    finally:
        working.close()
    assert vectors(storage) == 7
    assert list(storage.documents.stats().vectors) == [str(passage_space(older))]


def test_passages_that_go_while_they_are_embedded_leave_no_vector(storage: AnyStorage, server: EmbeddingServer) -> None:
    fill(storage, prepared("a.md", *texts(3)))
    space = model(server).space()
    pending = storage.vectors.pending(space, 10)
    storage.documents.remove_documents("notes", ["a.md"])
    storage.vectors.put(space, [(passage.number, b"\0" * 32) for passage in pending])
    with storage.database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM vectors").fetchone() == (0,)
    assert storage.vectors.count_pending(space) == 0


def test_in_the_background_new_passages_get_their_vectors(
    storage: AnyStorage, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passage_vectors, "POLL_S", 0.02)
    fill(storage, prepared("a.md", "one"))
    server.refusals = [401]
    working = BackgroundEmbedding(storage, model(server))
    try:
        wait_until(lambda: vectors(storage) == 1)
        fill(storage, prepared("a.md", "one", "two"))
        wait_until(lambda: vectors(storage) == 2)
        wait_until(lambda: working.problem is None)
    finally:
        working.close()


def test_the_background_tells_why_it_does_not_get_on(storage: AnyStorage, server: EmbeddingServer) -> None:
    fill(storage, prepared("a.md", "one"))
    embed(storage, model(server))
    working = BackgroundEmbedding(storage, StaticEmbedding())
    try:
        wait_until(lambda: working.problem is not None)
        assert "embed --again" in (working.problem or "")
    finally:
        working.close()
    assert vectors(storage) == 1
