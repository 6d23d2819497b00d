"""Search with the sentence encoder: vectors come from the background and from disk, and no search waits for them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pointsman.providers.base import SearchHits, SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.semantic import encoder as minilm
from pointsman.providers.semantic.encoder import EncoderUnavailableError, SentenceEncoder
from pointsman.providers.semantic.tool_encoder import MAX_REQUEST_TOKENS, ToolEncoder
from pointsman.providers.semantic.vector_store import FILE, VectorStore
from tests.providers.semantic.installed import with_encoder
from tests.providers.small_catalog import small_catalog

CATALOG = tuple(small_catalog())
ALL, STATIC = "bm25+static+minilm", "bm25+static"
PATIENCE_S = 60.0


@cache
def model() -> SentenceEncoder:
    return minilm.load()


class Counted(SentenceEncoder):
    """The real encoder, with a note of what it ran and where."""

    def __init__(self) -> None:
        super().__init__(model()._session, model()._tokenizer, model().model_id)
        self.encoded: list[str] = []
        self.query_tokens: list[int] = []
        self.query_threads: list[int] = []
        self.may_encode: Callable[[], object] = bool

    def encode(self, text: str, max_tokens: int) -> NDArray[np.float32]:
        self.may_encode()
        self.encoded.append(text)
        return super().encode(text, max_tokens)

    def encode_sentences(self, sentences: Sequence[str], max_tokens: int) -> NDArray[np.float32]:
        self.query_tokens.append(max_tokens)
        self.query_threads.append(threading.get_ident())
        return super().encode_sentences(sentences, max_tokens)


async def ask(provider: BM25SearchProvider, *queries: str, tools: tuple[ToolDocument, ...] = CATALOG) -> SearchHits:
    return await provider.search(SearchRequest(queries or ("rename a file",), None, tools, 5))


async def until_encoded(provider: BM25SearchProvider, tools: tuple[ToolDocument, ...] = CATALOG) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await ask(provider, tools=tools)).ranked_by != ALL:
            await asyncio.sleep(0.01)


def test_a_model_that_does_not_load_is_reported_once_and_static_vectors_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> SentenceEncoder:
        raise EncoderUnavailableError("no such file")

    async def search() -> None:
        encoder = ToolEncoder(True, load=broken)
        provider = BM25SearchProvider(encoder=encoder)
        async with asyncio.timeout(PATIENCE_S):
            while not encoder.failed:
                assert (await ask(provider)).ranked_by == STATIC
                await asyncio.sleep(0.01)
        assert await ask(provider) == await ask(BM25SearchProvider())
        assert provider.name == STATIC
        assert encoder.missing == 0

    with caplog.at_level(logging.WARNING):
        asyncio.run(search())
    assert [record.getMessage() for record in caplog.records] == [
        "search goes on without the sentence encoder: no such file"
    ]


async def test_what_is_switched_off_is_not_loaded() -> None:
    def never() -> SentenceEncoder:
        raise AssertionError("loaded")

    encoder = ToolEncoder(False, load=never)
    provider = BM25SearchProvider(encoder=encoder)
    assert (await ask(provider)).ranked_by == provider.name == STATIC
    without = BM25SearchProvider(embeddings=False, encoder=ToolEncoder(True, load=never))
    assert (await ask(without)).ranked_by == without.name == "bm25"


class TestWithTheModel:
    pytestmark = with_encoder()

    async def test_static_vectors_answer_until_those_of_the_encoder_are_there(self) -> None:
        may_go_on = threading.Event()
        counted = Counted()
        counted.may_encode = lambda: may_go_on.wait(PATIENCE_S)
        encoder = ToolEncoder(True, load=lambda: counted)
        provider = BM25SearchProvider(encoder=encoder)
        before = await ask(provider)
        assert (before.ranked_by, before) == (STATIC, await ask(BM25SearchProvider()))
        assert encoder.missing == len(CATALOG)
        may_go_on.set()
        await until_encoded(provider)
        assert encoder.missing == 0
        assert len(counted.encoded) == len(CATALOG)

    async def test_a_request_in_other_words_is_understood_better(self) -> None:
        provider = BM25SearchProvider(encoder=ToolEncoder(True, load=model))
        await until_encoded(provider)
        query = "what is on my agenda for Tuesday"
        [best, *_] = await ask(provider, query)
        assert best.tool_key == "calendar:listEvents"

    async def test_a_request_is_encoded_beside_the_event_loop(self) -> None:
        counted = Counted()
        provider = BM25SearchProvider(encoder=ToolEncoder(True, load=lambda: counted))
        await until_encoded(provider)
        assert counted.query_threads
        assert threading.get_ident() not in counted.query_threads

    async def test_many_long_queries_have_a_common_bound(self) -> None:
        counted = Counted()
        provider = BM25SearchProvider(encoder=ToolEncoder(True, load=lambda: counted))
        await until_encoded(provider)
        counted.query_tokens.clear()
        found = await ask(provider, *(f"send mail number {number}. " * 300 for number in range(50)))
        assert found.ranked_by == ALL
        assert len(counted.query_tokens) == 51  # with the context
        assert sum(counted.query_tokens[:50]) <= MAX_REQUEST_TOKENS

    async def test_vectors_come_from_disk_after_a_restart_and_only_new_tools_are_encoded(self, tmp_path: Path) -> None:
        first = BM25SearchProvider(encoder=ToolEncoder(True, VectorStore(tmp_path / FILE), lambda: model()))
        await until_encoded(first)
        counted = Counted()
        second = BM25SearchProvider(encoder=ToolEncoder(True, VectorStore(tmp_path / FILE), lambda: counted))
        new = ToolDocument("mail:archive", "archive", "Mail", "Put a message into the archive.", {})
        tools = (*small_catalog(), new)  # the same contents in new objects
        await until_encoded(second, tools)
        assert len(counted.encoded) == 1
        assert "Put a message into the archive." in counted.encoded[0]
        assert (await ask(second, tools=tools))[0].tool_key == (await ask(first))[0].tool_key == "files:move_file"

    async def test_example_requests_are_encoded_once_and_find_their_tool(self, tmp_path: Path) -> None:
        examples = ("why do we use two queues", "who chose")
        why = ToolDocument("log:kept", "kept", "Log", "The team.", {}, examples=examples)
        same = ToolDocument("log:same", "same", "Log", "The team.", {}, examples=examples[1:])

        async def encoded_for(*tools: ToolDocument) -> int:
            counted = Counted()
            provider = BM25SearchProvider(encoder=ToolEncoder(True, VectorStore(tmp_path / FILE), lambda: counted))
            await until_encoded(provider, tools)
            [best, *_] = await ask(provider, "what made us run a second queue", tools=tools)
            assert best.tool_key == "log:kept"
            return len(counted.encoded)

        assert await encoded_for(*CATALOG, why) == len(CATALOG) + 3
        assert await encoded_for(*CATALOG, why) == 0
        assert await encoded_for(*CATALOG, why, same) == 1

    async def test_the_list_that_is_asked_for_last_is_encoded_first(self) -> None:
        loaded, asked_again = threading.Event(), threading.Event()
        counted = Counted()

        def wait() -> None:
            loaded.set()
            assert asked_again.wait(PATIENCE_S)

        counted.may_encode = wait
        provider = BM25SearchProvider(encoder=ToolEncoder(True, load=lambda: counted))
        large = tuple(
            ToolDocument(f"s:{number}", f"tool_{number}", "s", f"Does the thing {number}.", {}) for number in range(400)
        )
        await ask(provider, tools=large)
        assert await asyncio.to_thread(loaded.wait, PATIENCE_S)
        await ask(provider, tools=CATALOG)
        asked_again.set()
        await until_encoded(provider, CATALOG)
        assert len(counted.encoded) < 400
        await until_encoded(provider, large)
        assert len(counted.encoded) == 440

    async def test_closing_ends_the_thread_in_the_middle_of_a_list(self) -> None:
        counted = Counted()
        encoding = threading.Event()
        counted.may_encode = encoding.set
        encoder = ToolEncoder(True, load=lambda: counted)
        provider = BM25SearchProvider(encoder=encoder)
        tools = tuple(ToolDocument(f"s:{n}", f"tool_{n}", "s", f"Does {n}. " * 40, {}) for n in range(2_000))
        await ask(provider, tools=tools)
        assert await asyncio.to_thread(encoding.wait, PATIENCE_S)
        await asyncio.to_thread(encoder.close)
        assert "sentence encoder" not in {thread.name for thread in threading.enumerate()}
        assert len(counted.encoded) < 2_000
        assert (await ask(provider)).ranked_by == STATIC

    async def test_the_switch_is_asked_at_every_search_and_switching_off_frees_the_model(self) -> None:
        on, loads = True, []

        def load() -> SentenceEncoder:
            loads.append(1)
            return model()

        provider = BM25SearchProvider(encoder=ToolEncoder(lambda: on, load=load))
        await until_encoded(provider)
        assert provider.name == ALL
        on = False
        assert (await ask(provider)).ranked_by == provider.name == STATIC
        assert await ask(provider) == await ask(BM25SearchProvider())
        on = True
        await until_encoded(provider)
        assert loads == [1, 1]

    async def test_a_model_that_fails_later_is_given_up_and_search_goes_on(self) -> None:
        counted = Counted()

        def fail() -> None:
            raise RuntimeError("broken inside")

        counted.may_encode = fail
        encoder = ToolEncoder(True, load=lambda: counted)
        provider = BM25SearchProvider(encoder=encoder)
        async with asyncio.timeout(PATIENCE_S):
            while not encoder.failed:
                assert (await ask(provider)).ranked_by == STATIC
                await asyncio.sleep(0.01)

    @pytest.mark.parametrize("query", ["天気を調べる", "?!", "\ud800", " ", "a" * 8_000], ids=ascii)
    async def test_a_request_that_it_cannot_read_is_answered_as_without_it(self, query: str) -> None:
        provider = BM25SearchProvider(encoder=ToolEncoder(True, load=model))
        await until_encoded(provider)
        found = await ask(provider, query)
        assert [hit.tool_key for hit in found] == [hit.tool_key for hit in await ask(BM25SearchProvider(), query)]
