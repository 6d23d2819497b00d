"""JSON on the wire: what is too deep to be handled is not decoded, on every Python."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.wire import MAX_DEPTH, InvalidJsonError, decode, is_too_deep


@pytest.mark.parametrize("levels", [3_000, 20_000, 200_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_json_is_refused(opening: str, closing: str, levels: int) -> None:
    with pytest.raises(InvalidJsonError):
        decode((opening * levels + "1" + closing * levels).encode())


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_only_nesting_counts(kind: type) -> None:
    many = json.dumps([{"a": []}] * 5_000).encode()
    in_strings = json.dumps(["[{" * 5_000, "\\", '"[[', "\\\\[", {"[": "{"}]).encode()
    assert not is_too_deep(kind(many))
    assert not is_too_deep(kind(in_strings))
    assert decode(kind(many)) == json.loads(many)
    assert decode(kind(in_strings)) == json.loads(in_strings)


def test_the_limit_is_exact() -> None:
    def nested(levels: int) -> bytes:
        return b'["\\"[",' * levels + b"0" + b"]" * levels

    assert not is_too_deep(nested(MAX_DEPTH))
    assert is_too_deep(nested(MAX_DEPTH + 1))


@given(
    st.recursive(
        st.text('[]{}"\\a', max_size=9), lambda inner: st.lists(inner) | st.dictionaries(st.text('"\\['), inner)
    )
)
def test_strings_do_not_count(value: object) -> None:
    wrapped = [value, ["["] * 2_000]
    text = ("[" * (MAX_DEPTH - 500) + json.dumps(wrapped) + "]" * (MAX_DEPTH - 500)).encode()
    assert not is_too_deep(text)


@given(st.binary(max_size=5_000))
def test_any_bytes_have_an_answer(data: bytes) -> None:
    is_too_deep(b"[" * MAX_DEPTH + data)
