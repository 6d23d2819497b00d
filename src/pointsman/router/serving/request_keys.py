"""The keys that seal what clients carry for us: configured, or made once and kept in the state folder."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from pointsman.router.serving.state_folder import NO_SPACE, StateFolderError, unwritable

FILE = "request.key"
_BYTES = 32


def request_keys(configured: Sequence[SecretStr], state_dir: Path) -> tuple[str, ...]:
    """The first one seals, all of them open. Only the holder of the state folder may call this.

    Raises:
        StateFolderError: the kept key cannot be read or written.
    """
    if configured:
        return tuple(dict.fromkeys(key.get_secret_value() for key in configured))
    path = state_dir / FILE
    try:
        return (_kept(path) or _made(path),)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise unwritable(state_dir, error) from error
        raise StateFolderError(
            f"The key in {path} cannot be used: {error.strerror}. Make it accessible, or set `state.request_keys`."
        ) from error


def _kept(path: Path) -> str | None:
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(key) < 2 * _BYTES or not key.isalnum():
        raise StateFolderError(f"{path} is damaged. Delete it: a new key is made, and clients sign in anew.")
    return key.decode("ascii")


def _made(path: Path) -> str:
    key = secrets.token_hex(_BYTES)
    fresh = path.with_name(f".{path.name}")
    fresh.unlink(missing_ok=True)  # a copy that another run left half written, with who knows what mode
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    return key
