"""Seals bytes as URL-safe tokens: AES-256-GCM with a ring of keys. Clients keep such tokens for us.

The format is the mcp SDK's `AESGCMRequestStateCodec` to the letter: key derivation, key id, nonce, associated data,
encoding. Either opens what the other sealed, and a test holds them together. The SDK's own is not imported because its
module belongs to the SDK's server, which takes 20 MB and 0.3 s to import. All cryptography is that of `cryptography`,
which is loaded with the first token: many clients never get one.

What is large and stays here is sealed with the same keys, in pieces and as bytes: prefix, key id, nonce, ciphertext,
tag.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY_INFO = b"mcp/request-state/v1/aes-256-gcm"
_KEY_ID_INFO = b"mcp/request-state/v1/kid:"
_PREFIX = "v1."
_BYTES_PREFIX = b"bytes.v1."
_KEY_ID_BYTES = 4
_NONCE_BYTES = 12
_TAG_BYTES = 16
_MIN_SECRET_BYTES = 32

SEALED_BYTES = (
    len(_BYTES_PREFIX) + _KEY_ID_BYTES + _NONCE_BYTES + _TAG_BYTES
)  # beside a payload that is sealed in pieces


class SealError(Exception):
    """Not sealed by us, or modified since."""


class Sealing:
    """A ring of keys: the first one seals, all of them unseal.

    The associated data are the format and the key id, so that nothing sealed can be moved to another of either.
    """

    def __init__(self, keys: Sequence[bytes | str]) -> None:
        """Raises ValueError: no key, a key of fewer than 32 bytes, or the same key twice."""
        if not keys:
            raise ValueError("Sealing needs at least one key")
        self._secrets = [secret.encode() if isinstance(secret, str) else secret for secret in keys]
        for number, secret in enumerate(self._secrets):
            _check_length(secret, number)
            if secret in self._secrets[:number]:
                raise ValueError(f"keys[{number}] repeats an earlier key")

    @cached_property
    def _keys(self) -> dict[bytes, bytes]:
        """The keys by their ids."""
        keys = [_derived(secret) for secret in self._secrets]
        return {hashlib.sha256(_KEY_ID_INFO + key).digest()[:_KEY_ID_BYTES]: key for key in keys}

    @cached_property
    def _ring(self) -> dict[bytes, AESGCM]:
        """The ciphers by the ids of their keys."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return {key_id: AESGCM(key) for key_id, key in self._keys.items()}

    def seal(self, payload: bytes) -> str:
        key_id, nonce = next(iter(self._ring)), os.urandom(_NONCE_BYTES)
        sealed = self._ring[key_id].encrypt(nonce, payload, _PREFIX.encode() + key_id)
        return _PREFIX + _encoded(key_id + nonce + sealed)

    def unseal(self, token: str) -> bytes:
        """Raises SealError."""
        if not token.startswith(_PREFIX):
            raise SealError
        return self._opened(_PREFIX.encode(), _decoded(token[len(_PREFIX) :]))

    def seal_pieces(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Seal a large payload as bytes, which are `SEALED_BYTES` more."""
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import AES
        from cryptography.hazmat.primitives.ciphers.modes import GCM

        key_id, nonce = next(iter(self._keys)), os.urandom(_NONCE_BYTES)
        cipher = Cipher(AES(self._keys[key_id]), GCM(nonce)).encryptor()
        cipher.authenticate_additional_data(_BYTES_PREFIX + key_id)
        yield _BYTES_PREFIX + key_id + nonce
        for piece in pieces:
            yield cipher.update(piece)
        yield cipher.finalize() + cipher.tag

    def unseal_bytes(self, sealed: bytes) -> bytes:
        """Open what `seal_pieces` or `seal` made. Raises SealError."""
        if sealed.startswith(_BYTES_PREFIX):
            return self._opened(_BYTES_PREFIX, memoryview(sealed)[len(_BYTES_PREFIX) :])
        if not sealed.isascii():
            raise SealError
        return self.unseal(sealed.decode("ascii"))

    def _opened(self, prefix: bytes, raw: bytes | memoryview) -> bytes:
        """Raises SealError."""
        from cryptography.exceptions import InvalidTag

        nonce_end = _KEY_ID_BYTES + _NONCE_BYTES
        key_id, nonce, sealed = bytes(raw[:_KEY_ID_BYTES]), bytes(raw[_KEY_ID_BYTES:nonce_end]), raw[nonce_end:]
        key = self._ring.get(key_id)
        if key is None or len(sealed) < _TAG_BYTES:
            raise SealError
        try:
            return key.decrypt(nonce, sealed, prefix + key_id)
        except InvalidTag:
            raise SealError from None


def _check_length(secret: bytes, number: int) -> None:
    if len(secret) < _MIN_SECRET_BYTES:
        raise ValueError(
            f"keys[{number}] has {len(secret)} bytes; a key has at least {_MIN_SECRET_BYTES}. "
            'Generate one with: python -c "import secrets; print(secrets.token_hex(32))"'
        )


def _derived(secret: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=32, salt=None, info=_KEY_INFO).derive(secret)


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    """Accept only what `_encoded` writes: other encodings of the same bytes would make two tokens out of one."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise SealError from None
    if _encoded(raw) != text:
        raise SealError
    return raw
