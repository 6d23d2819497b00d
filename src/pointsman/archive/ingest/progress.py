"""How far runs over folders are, kept in the store, so that the archive can tell what another process reads into it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pointsman.archive.store.base import KeyValueStore
from pointsman.archive.store.errors import StoreError

WRITE_EVERY_S = 1.0
_NAME = "ingest/"

Item = TypeVar("Item")
logger = logging.getLogger(__name__)


class IngestProgress:
    """Writes the progress of one run: at most once a second, and when it ends."""

    def __init__(
        self, store: KeyValueStore, collection: str, folder: Path, wall: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._wall = wall
        self._state: dict[str, Any] = {"collection": collection, "folder": str(folder), "done": 0, "total": 0}
        self._written = self._state["started"] = wall()

    def over(self, items: Iterable[Item], total: int) -> Iterator[Item]:
        self._state["total"] = total
        for done, item in enumerate(items):
            self._state["done"] = done
            if self._wall() - self._written >= WRITE_EVERY_S:
                self._write()
            yield item
        self._state["done"] = total

    def end(self, skipped: int) -> None:
        self._state |= {"ended": True, "skipped": skipped}
        self._write()

    def _write(self) -> None:
        self._written = self._state["updated"] = self._wall()
        try:
            self._store.write(_NAME + self._state["collection"], json.dumps(self._state))
        except StoreError as error:  # the documents matter, not the figures; a lasting error ends the run by itself
            logger.debug("progress was not written: %s", error)


def read_progress(store: KeyValueStore, collection: str) -> dict[str, Any] | None:
    """The last run into a collection: `done` of `total` files, `started` and `updated`, and whether it has `ended`.

    None: there was none that this version has made. Raises StoreError.
    """
    text = store.read(_NAME + collection)
    if text is None:
        return None
    state: dict[str, Any] = json.loads(text)
    return state
