"""The semantic half: it helps where words fail, can be switched off, and is never needed."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pointsman.providers import embeddings
from pointsman.providers.base import SearchHit, SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.embeddings import Embedder, EmbeddingsUnavailableError, StaticEmbeddings, load, unit
from tests.providers.small_catalog import small_catalog

CATALOG = small_catalog()


async def ask(provider: BM25SearchProvider, query: str) -> list[SearchHit]:
    return await provider.search(SearchRequest((query,), None, CATALOG, 3))


async def test_a_request_in_other_words_is_understood() -> None:
    other_words = "dispatch a letter electronically"
    assert await ask(BM25SearchProvider(embeddings=False), other_words) == []
    [best, *_] = await ask(BM25SearchProvider(), other_words)
    assert best.tool_key == "mail:send_email"
    assert best.explanation == "similar in meaning"


async def test_the_switch_is_asked_at_every_search() -> None:
    on = True
    provider = BM25SearchProvider(embeddings=lambda: on)
    with_meaning = await ask(provider, "rename a file")
    assert provider.name == "bm25+static"
    on = False
    assert provider.name == "bm25"
    assert await ask(provider, "rename a file") == await ask(BM25SearchProvider(embeddings=False), "rename a file")
    on = True
    assert await ask(provider, "rename a file") == with_meaning


async def test_a_model_that_does_not_load_is_reported_once_and_missed_by_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> Embedder:
        raise EmbeddingsUnavailableError("no such file")

    provider = BM25SearchProvider(load=broken)
    with caplog.at_level(logging.WARNING):
        answers = await asyncio.gather(*(ask(provider, "rename a file") for _ in range(3)))
    assert answers == [await ask(BM25SearchProvider(embeddings=False), "rename a file")] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no such file" in caplog.text
    assert provider.name == "bm25"


async def test_the_model_is_loaded_once_and_aside_for_all_who_come_at_the_same_time() -> None:
    threads: list[int] = []

    def counted() -> Embedder:
        threads.append(threading.get_ident())
        return load()

    provider = BM25SearchProvider(load=counted)
    assert threads == []
    await asyncio.gather(*(ask(provider, "rename a file") for _ in range(3)))
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_a_search_that_comes_while_the_model_loads_is_answered_by_words() -> None:
    loaded = threading.Event()

    def slow() -> Embedder:
        assert loaded.wait(60)
        return load()

    provider = BM25SearchProvider(load=slow, load_wait_s=0.01)
    request = SearchRequest(("dispatch a letter electronically",), None, small_catalog(), 3)
    preparing = asyncio.create_task(provider.prepare())
    words = await provider.search(request)
    assert (words, words.ranked_by) == ([], "bm25")
    loaded.set()
    await preparing
    with_meaning = await provider.search(request)
    assert (with_meaning[0].tool_key, with_meaning.ranked_by) == ("mail:send_email", "bm25+static")


async def test_prepared_means_that_no_search_loads_anything() -> None:
    loads: list[int] = []

    def counted() -> Embedder:
        loads.append(1)
        return load()

    provider = BM25SearchProvider(load=counted)
    await provider.prepare()
    assert loads == [1]
    await ask(provider, "rename a file")
    await provider.prepare()
    assert loads == [1]


async def test_what_is_switched_off_is_not_loaded() -> None:
    def never() -> Embedder:
        raise AssertionError("loaded")

    await BM25SearchProvider(embeddings=False, load=never).prepare()


async def test_a_model_that_does_not_load_beside_the_start_is_reported_and_words_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> Embedder:
        raise EmbeddingsUnavailableError("no such file")

    provider = BM25SearchProvider(load=broken)
    await provider.prepare()
    assert "no such file" in caplog.text
    assert await ask(provider, "rename a file") == await ask(BM25SearchProvider(embeddings=False), "rename a file")


def test_the_table_is_the_one_that_its_package_loads() -> None:
    """We read its files ourselves, which is quicker; its own loader is the oracle."""
    import wordllama

    own = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    own.tokenizer.no_padding()
    texts = ["send a letter", "", "rename_file öäü 天气", "word " * 600]
    theirs = StaticEmbeddings(own.tokenizer, own.embedding.astype("float16"))
    assert np.array_equal(load().sums(texts), theirs.sums(texts))


def test_words_have_the_tokens_that_the_tokenizer_gives_them_in_their_text() -> None:
    model = load()
    assert isinstance(model, StaticEmbeddings)
    texts = [
        Path(__file__).read_text(),
        "",
        " ",
        "a",
        " a",
        "a ",
        "a  b",
        "  a   b  ",
        "tab\tand\nline  end\n",
        "天气 é 😀",
    ]
    texts += ["x <s> y", "<s>", "a</s>b c", "<unk> d", "< s >", "w" * 500, "half \ud83d pair"]
    for text in texts:
        whole = model._tokenizer.encode(embeddings._encodable(text), add_special_tokens=False).ids
        assert model._tokens_of_text(text) == whole, text


async def test_chinese_japanese_and_korean_are_left_to_the_words() -> None:
    weather, mail = (
        ToolDocument("a:1", "天气预报", "天气", "查询城市的天气", {}),
        ToolDocument("b:1", "メール送信", "メール", "メールを送る", {}),
    )
    for query, wanted in (("今天天气怎么样", "a:1"), ("メールを送りたい", "b:1")):
        request = SearchRequest((query,), None, [weather, mail], 3)
        words = await BM25SearchProvider(embeddings=False).search(request)
        assert [hit.tool_key for hit in words] == [wanted]
        assert await BM25SearchProvider().search(request) == words


async def test_tools_that_differ_only_in_identity_are_embedded_once() -> None:
    model = load()
    embedded: list[str] = []

    class Counting:
        def sums(self, texts: Sequence[str]) -> np.typing.NDArray[np.float32]:
            embedded.extend(texts)
            return model.sums(texts)

    provider = BM25SearchProvider(load=Counting)
    await provider.search(SearchRequest(("rename a file",), None, small_catalog(), 3))
    before = len(embedded)
    await provider.search(SearchRequest(("rename a file",), None, small_catalog(), 3))
    assert embedded[before:] == ["rename a file", "file"]  # the query and its object alone


def test_vectors_are_of_unit_length_and_zero_for_nothing() -> None:
    vectors = unit(load().sums(["send a letter", "", "write a mail"]))
    assert np.isfinite(vectors).all()
    assert np.allclose(np.linalg.norm(vectors, axis=1), [1, 0, 1], atol=1e-3)
    assert vectors[0] @ vectors[2] > 0.3


async def test_half_a_surrogate_pair_does_no_harm() -> None:
    tool = ToolDocument("s:rename", "rename", "s", "Rename a file \ud83d.", {})
    hits = await BM25SearchProvider().search(SearchRequest(("rename \ude00 a file",), "\ud83d", [tool], 3))
    assert [hit.tool_key for hit in hits] == ["s:rename"]


def test_loading_changes_neither_the_logging_nor_the_environment_of_the_process() -> None:
    script = """
import logging, os
before = dict(os.environ)
from pointsman.providers.embeddings import load
load()
print(logging.getLogger().handlers, logging.getLogger().level == logging.WARNING, dict(os.environ) == before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True True"
    assert done.stderr == ""


async def best(query: str, *more: ToolDocument) -> SearchHit:
    return (await BM25SearchProvider().search(SearchRequest((query,), None, [*CATALOG, *more], 1)))[0]


async def test_a_few_foreign_characters_do_not_switch_meaning_off() -> None:
    for query in ("dispatch a letter electronically \u7acb", "dispatch a letter electronically to \u7530\u4e2d"):
        found = await best(query)
        assert (found.tool_key, found.explanation) == ("mail:send_email", "similar in meaning")
    plain = await best("turn the lamp on", ToolDocument("home:switch_light", "switch_light", "home", "", {}))
    marked = ToolDocument("home:switch_light", "switch_light", "home", "\u706f", {})
    assert abs((await best("turn the lamp on", marked)).relevance - plain.relevance) < 0.05


@pytest.mark.parametrize(
    "spelling",
    [
        "DISPATCH A LETTER ELECTRONICALLY",
        "\uff44\uff49\uff53\uff50\uff41\uff54\uff43\uff48 a letter electronically",
        "d\u00edsp\u00e4tch a l\u00e9tter \u00e8lectronically",
        "dis\u00adpatch a let\u200bter electron\u2060ically",
    ],
)
async def test_one_text_in_several_spellings_means_the_same(spelling: str) -> None:
    assert await best(spelling) == await best("dispatch a letter electronically")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_rows_of_the_table_that_were_read_can_be_released() -> None:
    texts = [f"{word} number {number}" for number, word in enumerate(("send", "a", "letter", "tomorrow"))]
    model = load()
    before = model.sums(texts)
    assert table_kb() > 0
    model.rest()
    assert table_kb() == 0
    assert (model.sums(texts) == before).all()


def table_kb() -> int:
    """How much of the table is in the memory of this process."""
    resident, counts = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            counts = line.endswith(".safetensors")
        elif counts and name == "Rss:":
            resident += int(rest.split()[0])
    return resident


def test_words_that_never_come_again_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "KEPT_WORDS", 10)
    model = StaticEmbeddings(load()._tokenizer, load()._table)
    texts = [" ".join(f"word{number}" for number in range(start, start + 7)) for start in range(0, 700, 7)]
    assert np.array_equal(model.sums(texts), load().sums(texts))
    assert len(model._words) <= 10
