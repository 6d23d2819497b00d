"""Text and JSON in pieces are the same as in one go, wherever a piece ends."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from msgspec import Raw

from pointsman.core import wire
from pointsman.router.gateway.large_results.pieces import PIECE_BYTES, LargeText, json_pieces, opened, string_pieces

ATOMS = [
    "a",
    "u",
    "d83d",
    "\\",
    "\\\\",
    "\\u",
    '"',
    "/",
    "\n",
    "\x01",
    "\x7f",
    "\u00e9",
    "\u20ac",
    "\u2028",
    "\U0001f600",
]


def quoted(text: str, rng: random.Random) -> str:
    """A text as JSON, with each character in one of the forms that it can have."""
    return f'"{"".join(_written(character, rng) for character in text)}"'


def _written(character: str, rng: random.Random) -> str:
    form = rng.randrange(3)
    if form == 2:  # escaped, even where it need not be, and in upper or lower case
        units = character.encode("utf-16-be")
        pairs = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
        return "".join("\\u" + (pair.upper() if rng.random() < 0.5 else pair) for pair in pairs)
    return json.dumps(character, ensure_ascii=form == 1)[1:-1]


@pytest.mark.parametrize("seed", range(40))
def test_a_json_string_in_pieces_is_the_same_text(seed: int) -> None:
    rng = random.Random(seed)
    few = rng.sample(ATOMS, 3)
    text = "".join(rng.choices(few, k=PIECE_BYTES)) + "x" * rng.randrange(5)
    encoded = quoted(text, rng).encode()
    pieces = list(string_pieces(Raw(encoded)))
    assert "".join(pieces) == text == wire.decode(encoded)
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert "".join(string_pieces(text)) == text
    assert opened(Raw(encoded)) == text


@pytest.mark.parametrize("shift", range(14))
@pytest.mark.parametrize("unit", ["\\\\", "\\n", "\\u00e9", "\\ud83d\\ude00", "\\\\ud83d", "\U0001f600", "\u00e9"])
def test_no_character_is_cut(unit: str, shift: int) -> None:
    encoded = f'"{"x" * shift}{unit * PIECE_BYTES}"'.encode()
    assert "".join(string_pieces(Raw(encoded))) == wire.decode(encoded)


def generated(rng: random.Random, depth: int) -> str:
    """A value as JSON, with white space, repeated keys and numbers in several forms."""
    space = rng.choice(["", " ", "\n\t "])
    kind = rng.randrange(6) if depth else rng.randrange(2)
    if kind == 0:
        return quoted("".join(rng.choices(ATOMS, k=rng.choice((0, 3, 40, 20_000 if depth > 2 else 5)))), rng)
    if kind == 1:
        return rng.choice(["1", "-0", "1.5", "1E5", "2e-7", "true", "null", str(2**70), "[]", "{ }", "[ \n]"])
    members = [generated(rng, depth - 1) for _ in range(rng.choice((1, 3, 12)))]
    if kind < 4:
        return f"[{space}{f'{space},{space}'.join(members)}{space}]"
    named = [f"{quoted(rng.choice(ATOMS), rng)}{space}:{space}{member}" for member in members]
    return f"{{{space}{f'{space},{space}'.join(named)}{space}}}"


@pytest.mark.parametrize("seed", range(60))
def test_json_in_pieces_is_the_same_as_decoded_and_encoded(seed: int) -> None:
    rng = random.Random(seed)
    value = f"[{','.join(generated(rng, rng.randrange(6)) for _ in range(200))}]".encode()
    for data in (value, b'{"a":%b, "a":%b, "b":1}' % (value, value)):
        text = LargeText(json_pieces(Raw(data)))
        expected = wire.encode(wire.decode(data))
        assert text.data == expected
        assert text.chars == len(expected.decode())


@pytest.mark.parametrize(
    "value",
    [
        b"[" + b" " * 2 * PIECE_BYTES + b"]",
        b"{" + b" " * 2 * PIECE_BYTES + b"}",
        b"1" * 4_000,
        b"[" * 500 + b'"%b"' % (b"x" * 2 * PIECE_BYTES) + b"]" * 500,
        b'{"%b":1}' % (b"k" * 2 * PIECE_BYTES),
    ],
)
def test_json_of_unusual_shape(value: bytes) -> None:
    assert "".join(json_pieces(Raw(value))).encode() == wire.encode(wire.decode(value))


def test_a_decoded_value_is_encoded() -> None:
    value: Any = {"a": ["\u00e9", 1]}
    assert "".join(json_pieces(value)).encode() == wire.encode(value)


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(wire.InvalidJsonError):
        list(json_pieces(Raw(b"[%b1e999]" % (b"1," * PIECE_BYTES))))


@pytest.mark.parametrize("place", [0, 1, PIECE_BYTES - 2, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES])
def test_bytes_are_found_and_counted_across_pieces(place: int) -> None:
    text = LargeText(["x" * place, "\n#", "x" * PIECE_BYTES])
    assert text.find(b"\n#", 0) == text.find(b"\n#", place) == place
    assert text.find(b"\n#", place + 1) == -1
    assert text.count(b"#") == 1
