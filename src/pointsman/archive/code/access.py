"""Where a read is noted."""

from __future__ import annotations

from typing import Protocol


class AccessLog(Protocol):
    def accessed(self, root: str, path: str) -> None:
        """Note that a file was read. Never waits and never raises: a read does not fail over its note."""
        ...


class Unnoted:
    """The log of an archive that has nothing to keep it in."""

    def accessed(self, root: str, path: str) -> None:
        pass
