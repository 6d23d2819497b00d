"""The address of a unix socket at a path of any length. Imports nothing that makes a command slow."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MAX_PATH_BYTES = 107 if sys.platform == "linux" else 103  # of an address, without the final NUL
_DESCRIPTORS = "/proc/self/fd"


class SocketPathError(Exception):
    """The path is too long for a socket. `str(error)` is shown to the operator."""


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Yield an address for the path. One that is too long is reached through a handle of its folder."""
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield str(path)
        return
    if not Path(_DESCRIPTORS).is_dir():
        raise SocketPathError(
            f"The path {path} is longer than the {MAX_PATH_BYTES} bytes that a socket may have. "
            "Choose a shorter folder with --state-dir."
        )
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"{_DESCRIPTORS}/{handle}/{path.name}"
    finally:
        with suppress(OSError):
            os.close(handle)
