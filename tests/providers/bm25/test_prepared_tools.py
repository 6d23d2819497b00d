"""What is known about tools is made once and does not pile up."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import pointsman
from pointsman.providers import embeddings
from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.documents import FIELDS, KEPT_CONTENTS, PreparedTools, embeddable_texts, texts_of
from pointsman.providers.bm25.provider import FILE, BM25SearchProvider
from pointsman.providers.disk_cache import DiskCache
from pointsman.providers.embeddings import Embedder


def document(name: str, description: str = "") -> ToolDocument:
    return ToolDocument(f"s:{name}", name, "s", description, {})


def test_equal_content_is_prepared_once() -> None:
    library = PreparedTools()
    assert library.prepared(document("a", "text")) is library.prepared(document("a", "text"))
    assert library.prepared(document("a", "text")) is not library.prepared(document("a", "other"))


def test_content_that_was_not_seen_for_long_is_forgotten() -> None:
    library = PreparedTools(kept=2)
    first = library.prepared(document("a"))
    for name in ("b", "c"):
        library.prepared(document(name))
    assert library.prepared(document("a")) is not first


def test_a_document_that_lives_is_known_however_many_come_after_it() -> None:
    library = PreparedTools(kept=1)
    alive = document("a")
    first = library.prepared(alive)
    for name in ("b", "c"):
        library.prepared(document(name))
    assert library.prepared(alive) is first


def test_all_contents_in_use_are_kept_and_as_many_that_are_not() -> None:
    library = PreparedTools(kept=2)
    alive = [document(name) for name in "abcd"]
    used = [library.prepared(each) for each in alive]
    gone = [library.prepared(document(name)) for name in "wxyz"]
    assert [library.prepared(document(each.tool_name)) for each in alive] == used  # as after a restart of its server
    assert [library.prepared(document(name)) for name in "wxyz"] == gone
    alive.clear()
    for name in "12":
        library.prepared(document(name))
    assert len(library._by_content) == 2


def test_a_server_that_keeps_renaming_its_tools_leaves_a_bounded_number_behind() -> None:
    library = PreparedTools()
    for number in range(3 * KEPT_CONTENTS):
        library.prepared(document(f"extra_{number}"))
    assert len(library._by_content) == KEPT_CONTENTS


def test_the_vector_of_a_tool_does_not_keep_those_of_others() -> None:
    library, tools = PreparedTools(), [document(name) for name in ("weather", "mail", "calendar")]
    prepared = [library.prepared(tool) for tool in tools]
    library.vectors(tools, prepared, embeddings.load())
    assert [each.vectors is not None and each.vectors.base is None for each in prepared] == [True] * 3


def test_text_that_is_not_text_does_no_harm() -> None:
    library = PreparedTools()
    assert len(library.prepared(document("a", "half a pair: \ud83d and weather")).words) > 1


def test_a_word_is_counted_in_every_field_that_has_it() -> None:
    library = PreparedTools()
    prepared = library.prepared(ToolDocument("k", "get_weather", "weather", "the weather", {}))
    number = library.vocabulary.get("weather")
    assert number is not None
    places = prepared.fields_by_word()[number]
    assert [field for bit, field in enumerate(FIELDS) if places >> bit & 1] == ["name", "server", "description"]
    assert prepared.counts[prepared.words.tolist().index(number)] == 6 + 4 + 2


def test_identifiers_are_taken_apart_before_their_meaning_is_looked_up() -> None:
    tool = ToolDocument("k", "getForecast_v2", "my-weather", "Looks ahead.", {"properties": {"cityName": {}}})
    purpose, whole = embeddable_texts(texts_of(tool))
    assert purpose == "get Forecast v2 Looks ahead."
    assert whole == "get Forecast v2 my weather Looks ahead. city Name"
    assert embeddable_texts(texts_of(document("天气"))) == ("", "")


def test_a_tool_that_shouts_means_the_same() -> None:
    shouted, said = ("SEND_MAIL", "MAIL", "SEND A LETTER."), ("send_mail", "mail", "send a letter.")
    loud, calm = (ToolDocument("k", *texts, {}) for texts in (shouted, said))
    assert embeddable_texts(texts_of(loud)) == embeddable_texts(texts_of(calm))


def test_threads_that_read_at_the_same_time_agree_on_the_numbers_of_words() -> None:
    library = PreparedTools()
    documents = [document(f"tool_{number}", f"word{number % 7} other{number}") for number in range(200)]
    equals = [document(each.tool_name, each.description) for each in documents]
    with ThreadPoolExecutor(4) as pool:
        first, second = pool.map(lambda tools: [library.prepared(tool) for tool in tools], (documents, equals[::-1]))
    assert all(one is other for one, other in zip(first, second[::-1], strict=True))
    words = {number for prepared in first for number in prepared.words.tolist()}
    assert len(words) == len(library.vocabulary) == max(words) + 1


class CountingModel:
    """The real model, which counts the texts that it embeds."""

    def __init__(self, model_id: str = "static 1") -> None:
        self.model_id = model_id
        self.texts = 0

    def itself(self) -> Embedder:
        return self

    def sums(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += len(texts)
        return embeddings.load().sums(texts)


def catalog() -> list[ToolDocument]:
    schema = {"properties": {"cityName": {"description": "Which city"}, "when": {"type": "string"}}}
    return [
        ToolDocument(f"s:tool_{number}", f"get_thing_{number}", "things", f"Gets thing number {number}.", schema)
        for number in range(120)
    ]


def described(tools: PreparedTools, model: Embedder) -> list[tuple[object, ...]]:
    """What search sees of each tool of the catalog, with tokens in place of their numbers."""
    documents = catalog()
    prepared = tools.prepared_all(documents, model, in_thread=True)
    tools.save()
    tokens = {number: token for token, number in tools.vocabulary._numbers.items()}
    return [
        ([tokens[word] for word in each.words.tolist()], each.counts.tolist(), each.fields.tolist(), each.kind, vector)
        for each, vector in zip(prepared, tools.vectors(documents, prepared, model).own.tolist(), strict=True)
    ]


def test_a_restart_finds_on_disk_what_was_prepared_before(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path / FILE)
    first, again = CountingModel(), CountingModel()
    expected = described(PreparedTools(disk=disk), first)
    assert first.texts == 240
    restarted = PreparedTools(disk=DiskCache(tmp_path / FILE))
    assert described(restarted, again) == expected
    assert (again.texts, restarted.unsaved) == (0, False)
    assert {"things", "thing", "gets", "city", "name", "number"} <= restarted.vocabulary.words().keys()


def test_example_requests_are_kept_on_disk_with_their_tool(tmp_path: Path) -> None:
    tool = ToolDocument("s:a", "a", "s", "A", {}, examples=("why did we", "who decided"))
    changed = ToolDocument("s:a", "a", "s", "A", {}, examples=("why did we", "who said so"))
    found = []
    for one, texts in ((tool, 4), (tool, 0), (changed, 4)):  # its purpose, all of its texts, and the examples
        model, tools = CountingModel(), PreparedTools(disk=DiskCache(tmp_path / FILE))
        prepared = tools.prepared_all([one], model, in_thread=True)
        tools.save()
        assert model.texts == texts
        found.append(tools.vectors([one], prepared, model).examples.tolist())
    assert found[0] == found[1] != found[2]
    assert found[0][0] == found[2][0]


def test_another_model_finds_the_words_but_not_the_vectors(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path / FILE)
    described(PreparedTools(disk=disk), CountingModel("one"))
    other = CountingModel("two")
    described(PreparedTools(disk=disk), other)
    assert other.texts == 240


def test_the_disk_is_not_touched_outside_a_thread(tmp_path: Path) -> None:
    library = PreparedTools(disk=DiskCache(tmp_path / FILE))
    library.prepared_all(catalog(), CountingModel())
    assert not library.unsaved
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("damage", ["values", "file"])
def test_what_is_damaged_on_disk_is_prepared_again(tmp_path: Path, damage: str) -> None:
    path = tmp_path / FILE
    expected = described(PreparedTools(disk=DiskCache(path)), CountingModel())
    if damage == "values":  # of a right checksum, but not of our making
        with closing(sqlite3.connect(path)) as database:
            keys = [digest for (digest,) in database.execute("SELECT digest FROM entries")]
        nonsense = (b"", b"\xc1", msgspec.msgpack.encode([["a"], b"", b"", {"a": 7}, None]), b"\xff" * 512)
        DiskCache(path).put({key: nonsense[place % len(nonsense)] for place, key in enumerate(keys)})
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 3 : len(data) // 2] = b"\xa5" * (len(data) // 2 - len(data) // 3)
        path.write_bytes(data)
    model = CountingModel()
    assert described(PreparedTools(disk=DiskCache(path)), model) == expected
    assert model.texts > 0
    assert described(PreparedTools(disk=DiskCache(path)), CountingModel()) == expected


def test_a_change_of_the_code_that_prepares_tools_invalidates_the_file(tmp_path: Path) -> None:
    package = Path(pointsman.__file__).parent
    ask = "from pointsman.providers.bm25.documents import _version; print(_version().hex())"
    versions = []
    for name in ("same", "equal", "changed"):
        copy = tmp_path / name / "pointsman"
        shutil.copytree(package / "providers", copy / "providers", ignore=shutil.ignore_patterns("__pycache__"))
        (copy / "__init__.py").touch()
        if name == "changed":
            with (copy / "providers" / "word_forms.py").open("a") as source:
                source.write("# another rule\n")
        environment = {**os.environ, "PYTHONPATH": str(copy.parent)}
        versions.append(subprocess.check_output([sys.executable, "-c", ask], env=environment, text=True))
    assert versions[0] == versions[1] != versions[2]


async def test_a_search_over_many_new_tools_leaves_them_on_disk_for_the_next_process(tmp_path: Path) -> None:
    request = SearchRequest(("thing 7",), None, tuple(catalog()), 5)
    models = [CountingModel(), CountingModel()]
    hits = []
    for model in models:
        provider = BM25SearchProvider(load=model.itself, disk=DiskCache(tmp_path / FILE))
        hits.append(await provider.search(request))
        while provider._saving:
            await asyncio.wait(provider._saving)
    assert hits[0] == hits[1] != []
    assert models[0].texts - models[1].texts == 240  # the second embeds its query alone


def test_threads_with_the_same_new_tools_prepare_each_of_them_once() -> None:
    tools, model, known = [tool for _ in range(30) for tool in catalog()], CountingModel(), PreparedTools()
    with ThreadPoolExecutor(4) as threads:
        runs = [threads.submit(known.prepared_all, tools, model, in_thread=True) for _ in range(4)]
        first, *others = (run.result() for run in runs)
    for other in others:
        assert all(one is two for one, two in zip(first, other, strict=True))
    assert model.texts == 2 * len(catalog())  # the purpose and the whole of each


async def test_tools_that_were_prepared_ahead_cost_a_search_nothing() -> None:
    tools, model = tuple(catalog()), CountingModel()
    provider = BM25SearchProvider(load=model.itself)
    await provider.prepare_tools(tools)
    before = model.texts
    await provider.search(SearchRequest(("thing 7",), None, tools, 5))
    assert model.texts == before + 2  # the query, and its object
    await provider.prepare_tools(())
