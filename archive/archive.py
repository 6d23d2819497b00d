"""The archive as its tools see it: one object that holds the parts they work with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.archive.indexes.indexes import Indexes, nothing_kept

if TYPE_CHECKING:
    from pointsman.archive.opening import Opening
    from pointsman.archive.search.searcher import Searcher
    from pointsman.archive.store.base import Storage


@dataclass(frozen=True, slots=True)
class Archive:
    """Ends with `close`.

    Raises:
        StoreError: from `storage` and `searcher`, while there is no store or it cannot be opened.
    """

    roots: Mapping[str, Path]  # the folders that the code tools may read, by name
    indexes: Indexes = field(default_factory=Indexes)  # those that callers make themselves
    opening: Opening | None = None

    @property
    def storage(self) -> Storage:
        return self._opening().storage()

    @property
    def searcher(self) -> Searcher:
        return self._opening().searcher()

    def prepare(self) -> None:
        """Open the store before somebody asks, and go on with what was left to do; nobody waits for it."""
        if self.opening is not None:
            self.opening.prepare()

    def close(self) -> None:
        if self.opening is not None:
            self.opening.close()

    def _opening(self) -> Opening:
        if self.opening is None:
            nothing_kept()
        assert self.opening is not None
        return self.opening
