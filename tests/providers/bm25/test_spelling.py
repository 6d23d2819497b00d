"""Words that a catalog does not have are replaced by those of its own that are spelt alike, at little cost."""

from __future__ import annotations

import time

import pytest

from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.language import seems_english
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.bm25.spelling import MAX_ALIKE, Spelling, replace_words, with_common_words

WORDS = ["screenshot", "directory", "message", "merge", "request"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("screnshot", "screenshot"),  # left out
        ("directorry", "directory"),  # doubled
        ("mesxage", "message"),  # replaced
        ("reqeust", "request"),  # swapped
        ("direcotyr", "directory"),  # two slips in a long word
    ],
)
def test_a_slip_is_mended(written: str, meant: str) -> None:
    assert Spelling(WORDS).stand_ins(written) == (meant,)


@pytest.mark.parametrize("written", ["mrg", "zebra", "meeting", "erge", "reqeuts", "id7", "天気予報です"])
def test_what_is_short_or_too_different_has_no_stand_in(written: str) -> None:
    assert Spelling(WORDS).stand_ins(written) == ()


@pytest.mark.parametrize(("written", "alike"), [("bank", "back"), ("kill", "kilt"), ("there", "three")])
def test_a_word_of_english_is_meant_as_it_is_written(written: str, alike: str) -> None:
    assert Spelling([alike]).stand_ins(written) == ()


def test_names_keep_their_spelling_in_the_text_that_is_embedded() -> None:
    assert replace_words("post a mesage to Mesage", {"mesage": "message"}) == "post a message to Mesage"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("waht is the tiem in Tokyo", "what is the time in Tokyo"),
        ("Whta changed", "what changed"),
        ("wich page covers refunds", "which page covers refunds"),
        ("remeber it, then opne the page", "remember it, then open the page"),
        ("forgte about Opne", "forget about Opne"),  # a name
        ("read docs/opne/waht.md and waht_is", "read docs/opne/waht.md and waht_is"),
        ("the docs of an urn", "the docs of an urn"),  # not `does`
        ("a fiel in Kiel", "a fiel in Kiel"),  # the catalog has a `fiel`
        ("Waht changed? Opne it", "what changed? open it"),  # no names: they begin sentences
        ("crear un archivo", "crear un archivo"),  # not `clear`
        ("crear the file", "crear the file"),  # another letter makes another verb
        ("delte the file", "delete the file"),
        ("genarate the report", "generate the report"),  # a long verb has no neighbour
        ("updete the file", "update the file"),
        ("I'm here, delte the file", "I'm here, delete the file"),  # not the `im` of German
        ("why did the worker die? serch the log", "why did the worker die? search the log"),
        ("delte the file of M\u00fcller", "delete the file of M\u00fcller"),
        ("delte the 640\u00d7480 file", "delete the 640\u00d7480 file"),
        ("crear un file", "crear un file"),
        ("delte die Datei config.json", "delte die Datei config.json"),
        ("Ordner auflisten", "Ordner auflisten"),
        ("Ordner l\u00f6schen in Tokyo", "Ordner l\u00f6schen in Tokyo"),
    ],
)
def test_slips_in_common_words_are_mended_in_any_catalog(written: str, meant: str) -> None:
    assert with_common_words(written, {"fiel"}.__contains__, seems_english) == meant


def test_a_list_of_unknown_words_is_not_corrected_to_its_end() -> None:
    unknown = " ".join(f"x{number:04}".translate(str.maketrans("0123456789", "bcdfghjklm")) for number in range(100))
    found = with_common_words(f"the waht {unknown} opne", {"none"}.__contains__, seems_english)
    assert found == f"the what {unknown} opne"


async def test_a_slip_after_a_pasted_log_is_corrected() -> None:
    log = "\n".join(f"12:0{number % 10}:31 qxz{number} wvk{number}jb [{number}] zzkqa" for number in range(40))
    tools = [ToolDocument(f"s:{name}", name, "s", "", {}) for name in ("delete_file", "read_log", "zip_archive")]
    request = SearchRequest((f"{log}\n\nPlease delte the file.",), None, tools, 5)
    assert (await BM25SearchProvider(False).search(request))[0].tool_key == "s:delete_file"


async def test_a_misspelt_request_finds_its_tool() -> None:
    names = ("take_screenshot", "send_message", "merge_request")
    tools = [ToolDocument(f"s:{name}", name, "s", "", {}) for name in names]
    for embeddings in (False, True):
        hits = await BM25SearchProvider(embeddings).search(SearchRequest(("tkae a screnshot",), None, tools, 5))
        assert hits[0].tool_key == "s:take_screenshot"


def test_synonyms_stand_in_unless_a_word_of_the_catalog_is_as_near() -> None:
    assert Spelling(["directory"], ["folder"]).stand_ins("flder") == ("folder",)
    assert Spelling(["directory"], ["folder"]).stand_ins("foulder") == ("folder",)
    assert Spelling(["holder", "fodder"], ["folder"]).stand_ins("foder") == ("fodder",)
    assert Spelling(["fodder"], ["folder"]).stand_ins("foldr") == ("folder",)


@pytest.mark.parametrize("embeddings", [False, True])
async def test_a_misspelt_synonym_finds_the_tool_that_the_right_one_finds(embeddings: bool) -> None:
    described = {
        "create_directory": "Create a new directory.",
        "list_directory": "List what is in a directory.",
        "delete_message": "Delete a message.",
        "take_screenshot": "Save an image of the page.",
    }
    tools = [ToolDocument(f"s:{name}", name, "s", text, {}) for name, text in described.items()]
    provider = BM25SearchProvider(embeddings)
    for written, meant in (("make a flder", "create_directory"), ("what is in the foulder", "list_directory")):
        hits = await provider.search(SearchRequest((written,), None, tools, 5))
        assert hits[0].tool_key == f"s:{meant}"


async def test_a_word_that_resembles_a_related_word_is_no_slip() -> None:
    tools = [ToolDocument(f"s:{name}", name, "s", "", {}) for name in ("map_place", "list_devices")]
    hits = await BM25SearchProvider(embeddings=False).search(SearchRequest(("router",), None, tools, 5))
    assert [hit.tool_key for hit in hits] == []  # `route` often stands for `map`


async def test_a_hostile_list_and_a_long_request_of_unknown_words_cost_little() -> None:
    """Words that are all alike, so that every one is a candidate, in more tools than a server really has."""
    letters = "abcdefghij"
    alike = [f"aa{a}{b}{c}{d}zz" for a in letters for b in letters for c in letters for d in letters]
    tools = [
        ToolDocument(f"s:t{at}", f"t{at}", "s", " ".join(alike[at : at + 80]), {}) for at in range(0, len(alike), 80)
    ]
    provider = BM25SearchProvider(embeddings=False)
    await provider.search(SearchRequest(("anything",), None, tools, 5))
    query = " ".join(f"aa{word[2:5]}xx{word[5]}zz" for word in alike[:880])
    began = time.process_time()
    await provider.search(SearchRequest((query,), None, tools, 5))
    assert time.process_time() - began < 2  # against hanging


def test_the_words_with_the_same_ends_are_bounded() -> None:
    spelling = Spelling(f"aa{number:06}zz" for number in range(3 * MAX_ALIKE))
    assert max(map(len, spelling._by_ends.values())) == MAX_ALIKE
