"""The preview of a large result, which is the same for undecoded content as for decoded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from pointsman.core import wire
from pointsman.router.gateway.large_results.pieces import PIECE_BYTES, LargeText, json_pieces, text_pieces
from pointsman.router.gateway.large_results.preview import preview_of
from pointsman.router.gateway.large_results.slices import MAX_VALUES, outline

ORDERS: Any = {
    "total": 2,
    "orders": [{"id": 7, "lines": [{"sku": "a"}], "some key": True}, {"id": 8, "lines": [{"sku": "c"}]}],
}
LONG = "word \u00e9 " * PIECE_BYTES


def preview(text: str | Raw = "", content: Any = None) -> str:
    structured = LargeText(json_pieces(content) if content is not None else ())
    return preview_of(LargeText(text_pieces([text])), structured, content, "abc", 40_000, 20_000)


def test_a_preview_has_structure_beginning_and_the_next_step() -> None:
    text = "\n".join(["# One", *["word " * 10] * 500, "## Two", *["word " * 10] * 500])
    shown = preview(text)
    assert '"handle": "abc"' in shown
    assert "1,002 lines" in shown
    assert "# One\n## Two" in shown
    assert f"\n\n{text[:8_000]}\n[cut here; continue with offset 8000]" in shown


def test_text_and_its_copy_count_apart_and_the_structure_is_that_of_the_text() -> None:
    text = json.dumps(ORDERS)
    shown = preview(text, {"content": text})
    structured = len(wire.encode({"content": text}))
    assert f"a result of {len(text):,} characters of text and {structured:,} characters of structured content." in shown
    assert "Structure: {total: number, orders: [2 x {id" in shown
    assert '"select": "orders[*].lines"' in shown


@pytest.mark.parametrize("place", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES - 3])
def test_headings_are_found_wherever_a_piece_ends(place: int) -> None:
    heading = "# \u00c4" + "\u00e9" * 79
    text = "x" * (place - 1) + f"\n{heading}\u00e9\n#no\n" + "y" * PIECE_BYTES + "\n### Last"
    assert f"with the headings\n{heading}\n### Last\n\n" in preview(text)


def test_characters_are_not_bytes() -> None:
    text = "\u20ac" * 50_000
    shown = preview(text)
    assert "a result of 50,000 characters. " in shown
    assert "text of 1 lines and 50,000 characters" in shown
    assert text[:8_000] in shown
    assert text[:8_001] not in shown


@pytest.mark.parametrize(
    "value",
    [
        ORDERS,
        {"result": LONG},
        {"a": LONG, "b": [LONG, {"c": LONG}], "d": None},
        {"n": 1.5, "z": [], "rows": [{"id": number, "note": LONG[:50]} for number in range(5_000)]},
        [[[["deep"]]]] * 20_000,
        [1] * 50_000,
        {f"key {number}": {"n": [number]} for number in range(5_000)},
        {"\u00e9\n": LONG, "": {"": [LONG]}},
    ],
)
def test_undecoded_json_has_the_structure_of_the_decoded(value: Any) -> None:
    for encoded in (wire.encode(value), json.dumps(value, indent=1).encode(), b" \r\n" + json.dumps(value).encode()):
        for text in ("", "short", LONG, json.dumps(value)):
            shown = preview(text, Raw(encoded.strip()))
            assert shown == preview(text, value)
        assert f"Structure: {outline(value)}\n" in preview(encoded.decode())
    quoted = json.dumps(json.dumps(value)).encode()
    assert preview(Raw(quoted)) == preview(json.dumps(value))
    assert preview(Raw(quoted), Raw(b'{"content":%b}' % quoted)) == preview(
        json.dumps(value), {"content": json.dumps(value)}
    )


def test_json_with_too_many_values_is_not_opened() -> None:
    assert "very many values" in preview("[" + "[]," * MAX_VALUES + "[]]")


@pytest.mark.parametrize("text", ["{broken", "[1, 2", "{} {}", '{"a": 1e999}', "[" * 100_000])
def test_what_only_begins_like_json_is_text(text: str) -> None:
    assert "Structure: text of 1 lines" in preview(text)
