"""Creates the first configuration: a commented sample with the hash of a new token."""

from __future__ import annotations

import errno
import os
import tempfile
from importlib.resources import files
from pathlib import Path

from pointsman.config.secrets import digest, new_secret

GATEWAY = "sample.yaml"
SEARCH_API = "sample_search_api.yaml"
_PLACEHOLDER = '"@sha256@"'


def render_sample(sha256: str, kind: str = GATEWAY) -> str:
    """The text of the sample with this token's hash."""
    text = files("pointsman.config").joinpath(kind).read_text(encoding="utf-8")
    return text.replace(_PLACEHOLDER, f'"{sha256}"')


def write_sample(path: Path, kind: str = GATEWAY, secret: str | None = None) -> str:
    """Create the configuration with one token that may use everything; return the token's secret.

    `secret` is that of the token; None: a new one.

    Raises:
        FileExistsError: the file exists, perhaps because another process was faster; it is not changed.
        OSError: the folder is not writable.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret = secret or new_secret()
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(render_sample(digest(secret), kind))
            file.flush()
            os.fsync(file.fileno())
        _publish(Path(name), path)
    finally:
        os.unlink(name)
    return secret


def _publish(finished: Path, path: Path) -> None:
    """Give the finished file its name unless that is taken: of two processes, exactly one succeeds."""
    try:
        os.link(finished, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:  # a file system without hard links
            file.write(finished.read_bytes())
