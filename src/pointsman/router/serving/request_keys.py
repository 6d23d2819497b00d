"""The keys that seal state held by clients: configured, or generated once and stored in the state folder."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from pydantic import SecretStr

from pointsman.router.serving.state_folder import NO_SPACE, REPLICAS, StateFolderError, exclusive, unwritable

FILE = "request.key"
_BYTES = 32


def request_keys(configured: Sequence[SecretStr], state_dir: Path) -> tuple[str, ...]:
    """Return the keys: the first seals, all of them open. Requires the lock of the state folder, or a share of it.

    Raises:
        StateFolderError: could not read or write the stored key.
    """
    if configured:
        return tuple(dict.fromkeys(key.get_secret_value() for key in configured))
    path = state_dir / FILE
    try:
        return (_read(path) or _generate_once(path, state_dir / REPLICAS),)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise unwritable(state_dir, error) from error
        raise StateFolderError(
            f"Could not use the key in {path}: {error.strerror}. Make it accessible, or set `state.request_keys`."
        ) from error


def _read(path: Path) -> str | None:
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(key) < 2 * _BYTES or not key.isalnum():
        raise StateFolderError(f"{path} is corrupt. Delete it to get a new key; clients have to open new sessions.")
    return key.decode("ascii")


def _generate_once(path: Path, replicas: Path) -> str:
    """Of replicas that start together, one generates the key."""
    with exclusive(replicas / "key.lock") if replicas.is_dir() else nullcontext():
        return _read(path) or _generate(path)


def _generate(path: Path) -> str:
    key = secrets.token_hex(_BYTES)
    fresh = path.with_name(f".{path.name}")
    fresh.unlink(missing_ok=True)  # left half-written by another run, with an unknown mode
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    return key
