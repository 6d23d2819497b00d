"""Sealing against the SDK's own codec: the same tokens, and the same refusals."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

from pointsman.core.sealing import SEALED_BYTES, SealError, Sealing

KEY, OTHER_KEY = b"k" * 32, "o" * 40
OURS, THEIRS = Sealing([KEY]), AESGCMRequestStateCodec([KEY])
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def opened_by_both(token: str) -> bytes | None:
    """What a token holds, or None if it is refused; both must agree."""
    try:
        ours = OURS.unseal(token)
    except SealError:
        ours = None
    try:
        theirs = THEIRS.unseal(token)
    except InvalidRequestState:
        theirs = None
    assert ours == theirs
    return ours


@given(st.binary(max_size=2_000))
def test_either_opens_what_the_other_sealed(payload: bytes) -> None:
    assert opened_by_both(OURS.seal(payload)) == payload
    assert opened_by_both(THEIRS.seal(payload)) == payload


@given(st.binary(max_size=100), st.integers(min_value=0), st.sampled_from(ALPHABET + "=+/ \n\0é"))
def test_a_changed_character_is_refused(payload: bytes, place: int, character: str) -> None:
    token = OURS.seal(payload)
    place %= len(token)
    changed = token[:place] + character + token[place + 1 :]
    assert opened_by_both(changed) == (payload if changed == token else None)


@given(st.binary(max_size=100), st.integers(min_value=0), st.text(max_size=3))
def test_a_token_that_is_cut_or_extended_is_refused(payload: bytes, place: int, more: str) -> None:
    token = OURS.seal(payload)
    assert opened_by_both(token[: place % len(token)]) is None
    assert opened_by_both(token + more) == (payload if not more else None)


@given(st.binary(max_size=100), st.integers(min_value=0), st.integers(0, 7))
def test_a_changed_bit_under_the_encoding_is_refused(payload: bytes, place: int, bit: int) -> None:
    raw = bytearray(base64.urlsafe_b64decode(OURS.seal(payload)[3:] + "=="))
    raw[place % len(raw)] ^= 1 << bit
    assert opened_by_both("v1." + base64.urlsafe_b64encode(raw).decode().rstrip("=")) is None


@given(st.binary(max_size=100))
def test_only_the_canonical_encoding_is_accepted(payload: bytes) -> None:
    """The last character of most encodings has unused bits, which a lax decoder ignores; so it does foreign ones."""
    token = OURS.seal(payload)
    others = [token[:-1] + ALPHABET[(ALPHABET.index(token[-1]) ^ low)] for low in range(1, 16)]
    encodings = [*others, token + "=", token + "==", token[:9] + "\n" + token[9:], token[:9] + "*" + token[9:]]
    if "-" in token or "_" in token:
        encodings.append(token.replace("-", "+").replace("_", "/"))
    assert [opened_by_both(each) for each in encodings] == [None] * len(encodings)


@given(st.text(max_size=200))
def test_what_is_no_token_is_refused(text: str) -> None:
    assert opened_by_both(text) is None
    assert opened_by_both("v1." + text) is None


def test_a_token_of_another_key_or_version_is_refused() -> None:
    assert opened_by_both(Sealing([OTHER_KEY]).seal(b"state")) is None
    assert opened_by_both("v2." + OURS.seal(b"state")[3:]) is None


def test_a_token_moved_to_another_key_of_the_ring_is_refused() -> None:
    first, second = Sealing([KEY]), Sealing([OTHER_KEY])
    raw = {which: base64.urlsafe_b64decode(which.seal(b"state")[3:] + "==") for which in (first, second)}
    moved = "v1." + base64.urlsafe_b64encode(raw[second][:4] + raw[first][4:]).decode().rstrip("=")
    with pytest.raises(SealError):
        Sealing([KEY, OTHER_KEY]).unseal(moved)


def test_the_first_key_seals_and_all_keys_unseal() -> None:
    before, during, after = Sealing([KEY]), Sealing([OTHER_KEY, KEY]), Sealing([OTHER_KEY])
    assert during.unseal(before.seal(b"old")) == b"old"
    assert after.unseal(during.seal(b"new")) == b"new"
    assert AESGCMRequestStateCodec([KEY, OTHER_KEY]).unseal(during.seal(b"new")) == b"new"
    with pytest.raises(SealError):
        after.unseal(before.seal(b"old"))


@pytest.mark.parametrize("keys", [[], [b"k" * 31], ["k" * 31], [KEY, b"x" * 5], [KEY, OTHER_KEY, KEY]])
def test_keys_that_the_sdk_refuses_are_refused(keys: list[bytes | str]) -> None:
    with pytest.raises(ValueError):
        AESGCMRequestStateCodec(keys)
    with pytest.raises(ValueError):
        Sealing(keys)


def test_no_two_tokens_of_one_payload_are_equal() -> None:
    assert len({OURS.seal(b"state") for _ in range(100)}) == 100


def test_sealing_needs_nothing_of_the_sdk() -> None:
    code = (
        "import sys; from pointsman.core.sealing import Sealing; one = Sealing(['k' * 32]); one.unseal(one.seal(b'x'));"
        "print([name for name in sys.modules if name.partition('.')[0] in ('mcp', 'mcp_types', 'pydantic')])"
    )
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@given(st.lists(st.binary(max_size=100), max_size=5), st.integers(min_value=0), st.integers(0, 7))
def test_pieces_are_opened_as_one_and_a_changed_bit_is_refused(pieces: list[bytes], place: int, bit: int) -> None:
    sealed = b"".join(OURS.seal_pieces(pieces))
    assert len(sealed) == sum(map(len, pieces)) + SEALED_BYTES
    assert Sealing([OTHER_KEY, KEY]).unseal_bytes(sealed) == b"".join(pieces)
    changed = bytearray(sealed)
    changed[place % len(sealed)] ^= 1 << bit
    for refused in (bytes(changed), sealed[: place % len(sealed)], sealed + b"x"):
        with pytest.raises(SealError):
            OURS.unseal_bytes(refused)


def test_a_token_does_not_pass_for_pieces_nor_pieces_for_a_token() -> None:
    token, sealed = OURS.seal(b"state"), b"".join(OURS.seal_pieces([b"state"]))
    raw = base64.urlsafe_b64decode(token[3:] + "==")
    prefix = sealed[: SEALED_BYTES - 32]
    assert OURS.unseal_bytes(token.encode()) == b"state"
    with pytest.raises(SealError):
        OURS.unseal_bytes(prefix + raw)
    moved = base64.urlsafe_b64encode(sealed[len(prefix) :]).decode().rstrip("=")
    assert opened_by_both("v1." + moved) is None
