"""Keeps the context up to date while the archive runs: `.context/` of each root is watched, what is new is embedded."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from pointsman.archive.context.importing import CONTEXT_FOLDER, Imported, import_folder
from pointsman.archive.context.parsing import Defaults
from pointsman.archive.context.vectors import REST_S, ContextVectors
from pointsman.archive.embedding.base import EmbeddingError
from pointsman.archive.store.context import ContextStore
from pointsman.archive.store.errors import StoreError

logger = logging.getLogger(__name__)

LOOK_S = 2.0  # how often to look for a `.context/` that was not there, and for what another process entered
_MOST_TOLD = 10  # problems of one look


class ContextWatcher:
    """One thread for each root that has a context, and one that embeds. All of them end with `close`."""

    def __init__(self, store: ContextStore, vectors: ContextVectors, roots: Mapping[str, Path]) -> None:
        self._store = store
        self._vectors = vectors
        self._roots = roots
        self._ended = threading.Event()
        self._work = threading.Event()
        self._told: dict[str, set[str]] = {}  # by root: problems that were logged already
        self._threads = [
            threading.Thread(target=self._watch, args=(name, root), name=f"context-{name}", daemon=True)
            for name, root in roots.items()
        ]
        if vectors.embeddings is not None:
            self._threads.append(threading.Thread(target=self._embed, name="context-vectors", daemon=True))

    def start(self) -> None:
        """What is there is taken in before this returns, so that the first search finds it."""
        for name, root in self._roots.items():
            self._look(name, root)
        self._work.set()
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Somebody saw items without a vector."""
        self._work.set()

    def close(self) -> None:
        self._ended.set()
        self._work.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _watch(self, name: str, root: Path) -> None:
        """A folder that comes later is noticed, and so is one that goes."""
        from watchfiles import watch  # only where there is a root

        while not self._ended.is_set():
            self._look(name, root)
            folder = root / CONTEXT_FOLDER
            if not folder.is_dir():
                self._ended.wait(LOOK_S)
                continue
            try:
                for _ in watch(
                    folder, stop_event=self._ended, rust_timeout=5_000, yield_on_timeout=True, raise_interrupt=False
                ):
                    if not folder.is_dir():
                        break
                    self._look(name, root)
            except OSError as error:  # it went while it was being opened, or there are no watches left
                logger.warning("%s/ of the root %s is not watched: %s", CONTEXT_FOLDER, name, error.strerror)
                self._ended.wait(LOOK_S)

    def _look(self, name: str, root: Path) -> None:
        if not root.is_dir():
            return  # not mounted, perhaps: nothing is forgotten for that
        try:
            outcome = import_folder(self._store, root, f"root:{name}/", Defaults(), within=CONTEXT_FOLDER)
        except StoreError as error:
            logger.warning("the context of the root %s was not read: %s", name, error)
            return
        self._tell(name, outcome)
        if outcome.items:
            self._work.set()

    def _embed(self) -> None:
        seen: int | None = None
        while not self._ended.is_set():
            asked = self._work.wait(LOOK_S)
            self._work.clear()
            known, seen = seen, self._generation(seen)
            if not asked and seen == known:
                continue
            try:
                self._vectors.make_missing(self._ended)
            except (EmbeddingError, StoreError) as error:
                logger.warning("the context was not embedded: %s", error)
                self._ended.wait(REST_S)

    def _generation(self, known: int | None) -> int | None:
        """The state of the store, which the command line changes too. If it cannot be read, the next search says so."""
        try:
            return self._store.generation()
        except StoreError:
            return known

    def _tell(self, name: str, outcome: Imported) -> None:
        if outcome.files or outcome.removed:
            logger.info("context of %s: %d files read, %d removed", name, outcome.files, outcome.removed)
        known = self._told.get(name, set())
        self._told[name] = set(outcome.problems) | (known if not outcome.files else set())
        for problem in [problem for problem in outcome.problems if problem not in known][:_MOST_TOLD]:
            logger.warning("context of %s: %s", name, problem)
