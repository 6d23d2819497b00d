"""Creates the first configuration: a commented sample with the hash of a new token."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from pointsman.config.files import write_new
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
        OSError: it cannot be written.
    """
    secret = secret or new_secret()
    write_new(path, render_sample(digest(secret), kind).encode())
    return secret
