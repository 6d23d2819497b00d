"""Embeddings over HTTP: batched, deduplicated, retried, and failed with a reason."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from pointsman.archive.embedding.base import MAX_CHARS, EmbeddingError
from pointsman.archive.embedding.remote import BATCH, RemoteEmbedding
from pointsman.archive.embedding.settings import Endpoint
from pointsman.archive.store.base import Space
from tests.archive.embedding.server import DIMENSION, EmbeddingServer, embedding_server

LONG_S = 60.0
SHORT_S = 15.0  # less than any pause that is asked for, so that nobody waits for its end
WAIT_S = 60.0  # a bound against hanging


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as server:
        yield server


def client(server: EmbeddingServer, **more: object) -> RemoteEmbedding:
    return RemoteEmbedding(Endpoint(server.url, "small", **more), first_pause_s=0.001)  # type: ignore[arg-type]


def test_rows_have_length_one_and_the_order_of_the_texts(server: EmbeddingServer) -> None:
    rows = client(server).embed(["red apple", "green pear", "apple"], deadline_s=LONG_S)
    assert rows.shape == (3, DIMENSION)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert rows[2] @ rows[0] > rows[2] @ rows[1]


def test_many_texts_go_in_batches_and_equal_or_empty_ones_cost_nothing(server: EmbeddingServer) -> None:
    texts = [f"text {number}" for number in range(BATCH + 1)]
    rows = client(server).embed([*texts, "text 0", "  ", "x" * (MAX_CHARS + 5)], deadline_s=LONG_S)
    assert [len(request["input"]) for request in server.asked] == [BATCH, 2]
    assert max(map(len, server.texts)) == MAX_CHARS
    assert (rows[0] == rows[BATCH + 1]).all()
    assert not rows[BATCH + 2].any()


def test_the_key_and_the_wanted_dimensions_are_sent(server: EmbeddingServer) -> None:
    embedding = client(server, key="secret", dimensions=8)
    assert embedding.space() == Space("openai-compatible", "small", 8)
    embedding.embed(["one"], deadline_s=LONG_S)
    assert server.keys == ["Bearer secret"]
    assert server.asked[0]["dimensions"] == 8
    assert "secret" not in repr(embedding)


def test_the_dimension_is_asked_for_once_where_nobody_said_it(server: EmbeddingServer) -> None:
    embedding = client(server)
    assert embedding.space().dimension == DIMENSION
    assert embedding.space().dimension == DIMENSION
    assert len(server.asked) == 1


def test_busy_and_broken_servers_are_asked_again(server: EmbeddingServer) -> None:
    server.refusals = [429, 503, 500]
    assert client(server).embed(["one"], deadline_s=LONG_S).any()
    assert server.texts == ["one"]


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (401, "rejected the key"),
        (400, "answered 400"),
        (b"not json", "does not follow OpenAI's API"),
        (b'{"data": []}', "0 vectors for 1 texts"),
        (b'{"data": [{"index": 0, "embedding": ["x"]}]}', "not rows of numbers"),
        (b'{"data": [{"index": 0, "embedding": [NaN]}]}', "not rows of numbers"),
        (b'{"data": [{"index": 0, "embedding": [1e300]}]}', "not rows of numbers"),
        (b'{"data": [{"index": 0, "embedding": []}]}', "not rows of numbers"),
        (b"[" * 100_000, "does not follow OpenAI's API"),
    ],
)
def test_what_cannot_be_mended_is_not_tried_again(server: EmbeddingServer, refusal: int | bytes, reason: str) -> None:
    server.refusals = [refusal]
    with pytest.raises(EmbeddingError, match=reason):
        client(server).embed(["one"], deadline_s=LONG_S)
    assert len(server.keys) == 1


def test_a_server_that_repeats_the_key_does_not_give_it_away(server: EmbeddingServer) -> None:
    server.refusals = [400]
    server.says = b"Bearer s3cret is not welcome"
    with pytest.raises(EmbeddingError, match="not welcome") as refused:
        client(server, key="s3cret").embed(["one"], deadline_s=LONG_S)
    assert "s3cret" not in str(refused.value)


def test_another_dimension_than_before_is_refused(server: EmbeddingServer) -> None:
    embedding = client(server)
    embedding.embed(["one"], deadline_s=LONG_S)
    server.refusals = [json.dumps({"data": [{"index": 0, "embedding": [1.0, 2.0]}]}).encode()]
    with pytest.raises(EmbeddingError, match=f"2 dimensions instead of {DIMENSION}"):
        embedding.embed(["two"], deadline_s=LONG_S)


def test_the_deadline_ends_the_asking(server: EmbeddingServer) -> None:
    server.refusals = [503] * 100
    server.retry_after = "3600"
    with pytest.raises(EmbeddingError, match="answered 503"):
        client(server).embed(["one"], deadline_s=SHORT_S)
    with pytest.raises(EmbeddingError, match="no time was left"):
        client(server).embed(["one"], deadline_s=0)


def test_an_answer_that_trickles_in_does_not_outlast_the_deadline(server: EmbeddingServer) -> None:
    server.trickles = True
    with pytest.raises(EmbeddingError):
        client(server).embed(["one"], deadline_s=0.3)


def test_closing_ends_a_wait(server: EmbeddingServer) -> None:
    server.refusals = [503] * 100
    server.retry_after = "20"
    embedding = client(server)
    reasons: list[str] = []

    def wait() -> None:
        try:
            embedding.embed(["one"], deadline_s=3600)
        except EmbeddingError as error:
            reasons.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    embedding.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert len(reasons) == 1


def test_a_server_that_is_not_there_is_named_as_such() -> None:
    with embedding_server() as gone:
        url = gone.url
    with pytest.raises(EmbeddingError, match="cannot be reached"):
        RemoteEmbedding(Endpoint(url, "small"), first_pause_s=2 * SHORT_S).embed(["one"], deadline_s=SHORT_S)
