"""What is read of a stored result: paths, matching lines; and what they cost at worst."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pointsman.core.errors import InvalidArgumentsError
from pointsman.router.gateway.large_results.slices import MAX_MATCHES, MAX_VALUES, View, outline, select
from pointsman.router.gateway.large_results.store import StoredResult

ORDERS: Any = {
    "total": 2,
    "orders": [
        {"id": 7, "lines": [{"sku": "a"}, {"sku": "b"}], "some key": True},
        {"id": 8, "lines": [{"sku": "c"}]},
    ],
}


def view(text: str = "", structured: Any = None) -> View:
    return View(StoredResult(None, "s:t", text, b"" if structured is None else json.dumps(structured).encode()))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("total", 2),
        ("$.total", 2),
        ("$", ORDERS),
        ("orders[0].id", 7),
        ("orders.1.id", 8),
        ("orders[-1].id", 8),
        ("orders[*].id", [7, 8]),
        ("orders.*.id", [7, 8]),
        ("orders[*].lines[*].sku", ["a", "b", "c"]),
        ("orders[0]['some key']", True),
        ('orders[0]["some key"]', True),
        ("orders[*]['some key']", [True]),
    ],
)
def test_a_path_selects_values(path: str, value: Any) -> None:
    assert select(ORDERS, path) == value


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("c'd", '["c\'d"]'),
        ("c'd", "['c\\'d']"),
        ("c'd", "c'd"),
        ("c'd", "$.c'd"),
        ('say "hi"', "['say \"hi\"']"),
        ('say "hi"', '["say \\"hi\\""]'),
        ("a]b", "['a]b']"),
        ("back\\slash", "['back\\slash']"),
        ("back\\slash", "['back\\\\slash']"),
        ("", "['']"),
    ],
)
def test_a_key_with_quotes_can_be_selected(key: str, path: str) -> None:
    assert select({key: 1, "other": 2}, path) == 1


def test_a_path_of_many_backslashes_is_refused_at_once() -> None:
    with pytest.raises(InvalidArgumentsError, match="`select`"):
        select(ORDERS, "['" + "\\" * 497)


@pytest.mark.parametrize(
    "path", ["orders[2]", "orders[*].price", "total.id", "orders[id]", "orders[", "a..b", "[1", "'"]
)
def test_a_path_that_does_not_fit_is_refused_with_a_reason(path: str) -> None:
    with pytest.raises(InvalidArgumentsError, match="`select`"):
        select(ORDERS, path)


def test_a_missing_key_shows_the_structure_where_it_was_sought() -> None:
    with pytest.raises(InvalidArgumentsError, match=r"no `price` in \{id: number, lines: \[2 x \{sku: string\}\]"):
        select(ORDERS, "orders[*].price")


def test_text_that_is_json_can_be_selected_from_and_other_text_cannot() -> None:
    assert view(json.dumps(ORDERS)).select("orders[*].id").text == "[7,8]"
    assert view("prose", ORDERS).select("orders[0].lines[0].sku").text == "a"
    for text in ("prose", "{broken", "[" * 100_000, ""):
        with pytest.raises(InvalidArgumentsError, match="needs JSON"):
            view(text).select("a")


def test_a_text_that_is_json_inside_of_json_can_be_selected_from() -> None:
    text = json.dumps(ORDERS, indent=2)
    for wrapped in (view(text, {"content": text}), view("see the structured part", {"content": text})):
        assert wrapped.select("content.orders[*].id").text == "[7,8]"
    assert view(text, {"content": text}).select("orders[*].id").text == "[7,8]"
    assert view(text, {"meta": 1, "pages": [text, text, "prose"]}).select("orders[0].id").text == "7"
    assert view("", {"pages": [text, text, "prose"]}).select("pages[*].total").text == "[2,2]"
    assert view("", {"text": "{broken"}).select("text").text == "{broken"
    with pytest.raises(InvalidArgumentsError, match=r"no `price` in \{total: number, orders: \[2 x"):
        view(text, {"content": text}).select("price")


def test_texts_inside_of_json_share_one_budget_of_values() -> None:
    pages = [json.dumps([0] * 1_000)] * (MAX_VALUES // 1_000 - 1)
    assert select(pages, "[*][0]") == [0] * len(pages)
    with pytest.raises(InvalidArgumentsError, match="too many values"):
        select(pages * 2, "[*][0]")


def test_json_with_too_many_values_is_not_decoded() -> None:
    text = "[" + "[]," * MAX_VALUES + "[]]"
    with pytest.raises(InvalidArgumentsError, match="too many values"):
        view(text).select("[0]")


def test_search_finds_lines_in_any_case_with_their_place() -> None:
    text = "alpha\nBeta one\ngamma\nbeta two beta\n"
    found = view(text).search("BETA", 0, 1_000)
    assert found.matches == [
        {"offset": 6, "line": 2, "text": "Beta one"},
        {"offset": 21, "line": 4, "text": "beta two beta"},
    ]
    assert found.next_offset is None
    assert [match["line"] for match in view(text).search("beta", 14, 1_000).matches] == [4]
    assert view(text).search("delta", 0, 1_000).matches == []


def test_letters_that_change_their_length_do_not_move_a_match() -> None:
    text = "\u0130\u0130\u0130 x\n\u03c3\u03b1\u03c2 needle"
    [match] = view(text).search("NEEDLE", 0, 1_000).matches
    assert text[match["offset"] :] == match["text"] == "\u03c3\u03b1\u03c2 needle"


def test_a_match_across_windows_is_found_and_a_long_line_is_cut() -> None:
    text = "x" * 65_530 + "needle" + "y" * 100_000
    [match] = view(text).search("needle", 0, 10_000).matches
    assert match["offset"] == 65_530 - 200
    assert match["text"] == "x" * 200 + "needle" + "y" * 200


def test_a_search_with_many_matches_goes_on_where_it_stopped() -> None:
    text = "".join(f"row {number}\n" for number in range(3 * MAX_MATCHES))
    seen: list[str] = []
    begin: int | None = 0
    while begin is not None:
        found = view(text).search("row", begin, 100_000)
        assert len(found.matches) <= MAX_MATCHES
        seen += [match["text"] for match in found.matches]
        begin = found.next_offset
    assert seen == text.splitlines()


@pytest.mark.parametrize("text", ["a" * 16_000_000, "ab" * 8_000_000, "a\n" * 8_000_000])
def test_the_worst_text_for_a_search_takes_no_more_than_one_pass(text: str) -> None:
    assert view(text).search("a" * 199 + "b", 0, 20_000).matches == []


def test_an_outline_stays_short() -> None:
    wide = {f"key {number}" * 20: [{"a": [1]}] * 5 for number in range(1_000)}
    assert len(outline(wide)) < 1_600
    assert outline({"a": {"b": {"c": {"d": 1}}}}) == "{a: {b: {c: {1 keys}}}}"
    assert outline([]) == "[0 items]"
    assert outline({"s": "x" * 5_000, "n": None, "b": True}) == "{s: string of 5,000 characters, n: null, b: boolean}"
