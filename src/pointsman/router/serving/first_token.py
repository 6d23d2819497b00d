"""The first token, until a client uses it: a file in the state folder keeps its hash.

Only the hash of a token is stored, so its secret cannot be shown twice: a start that finds this file replaces it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

GATEWAY_MARKER = "first-token.json"
SEARCH_API_MARKER = "search-api-first-token.json"

logger = logging.getLogger(__name__)


class _Marker(msgspec.Struct, forbid_unknown_fields=True):
    config: str  # the file with the token
    sha256: list[str]  # the last one is in effect, or is about to be


class FirstToken:
    """The token that a first start has written into `config_path`, and whether it is still unused."""

    def __init__(self, marker: Path, config_path: Path) -> None:
        self._marker = marker
        self._config = str(config_path.absolute())
        self.unused: str | None = None  # the hash of the token; None: there is none, or a client has used it

    def find(self, hashes: Iterable[str]) -> str | None:
        """Return the hash of the unused token if it is among those of the configuration, and forget it otherwise."""
        marker = self._read()
        if marker is None or marker.config != self._config:
            return None
        self.unused = next((sha256 for sha256 in hashes if sha256 in marker.sha256), None)
        if self.unused is None:  # its owner removed it
            self._remove()
        return self.unused

    def announce(self, sha256: str) -> None:
        """Write the marker before the hash enters the configuration, so that no crash can lose it."""
        self._write([self.unused, sha256] if self.unused else [sha256])

    def issued(self, sha256: str) -> None:
        """The hash is in the configuration."""
        self._write([sha256])
        self.unused = sha256

    def used(self, sha256: str) -> bool:
        """A client has sent the token with this hash. Return whether it was the first one, which is thereby used."""
        if sha256 != self.unused:
            return False
        self.unused = None
        self._remove()
        return True

    def withdraw(self) -> None:
        """What was announced did not enter the configuration."""
        self._remove()

    def _read(self) -> _Marker | None:
        try:
            return msgspec.json.decode(self._marker.read_bytes(), type=_Marker)
        except (OSError, msgspec.MsgspecError):
            return None

    def _write(self, hashes: list[str]) -> None:
        try:
            self._replace(_Marker(self._config, hashes))
        except OSError as error:  # the token is shown all the same
            logger.warning(
                "could not write %s (%s): later starts will not replace the first token if it is never used",
                self._marker,
                error.strerror,
            )

    def _replace(self, marker: _Marker) -> None:
        self._marker.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self._marker.with_name(f".{self._marker.name}")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(marker))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._marker)

    def _remove(self) -> None:
        try:
            self._marker.unlink(missing_ok=True)
        except OSError as error:
            logger.warning(
                "could not delete %s (%s): the next start will replace the first token; delete it yourself",
                self._marker,
                error.strerror,
            )
