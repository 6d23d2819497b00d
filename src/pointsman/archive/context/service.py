"""The context of an archive's projects: searched by a tool, kept up to date by background threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pointsman.archive.code.classification import module
from pointsman.archive.context.accesses import StoredAccesses
from pointsman.archive.context.importer import CONTEXT_FOLDER, Imported, import_folder
from pointsman.archive.context.items import Defaults
from pointsman.archive.context.search import ContextSearch, Found
from pointsman.archive.context.vectors import ContextVectors
from pointsman.archive.embedding.base import EmbeddingError, Embeddings
from pointsman.archive.model.context import ItemFilter
from pointsman.archive.store.context import ContextStore
from pointsman.archive.store.errors import StoreError

logger = logging.getLogger(__name__)

POLL_S = 2.0  # how often to check for a new `.context/`, and for items that another process added
RETRY_S = 30.0  # after embedding failed, or while another archive on the same store does it
_MAX_LOGGED = 10  # problems of one import


class ProjectContext:
    """Search over what projects have learned. Starts its threads at once and ends them with `close`."""

    def __init__(
        self,
        store: ContextStore,
        embeddings: Embeddings | None,
        roots: Mapping[str, Path],
        turn: Callable[[str], AbstractContextManager[bool]] = lambda _task: nullcontext(True),
    ) -> None:
        """`turn`: as `Storage.turn`."""
        vectors = ContextVectors(store, embeddings)
        self._watcher = ContextWatcher(store, vectors, roots, turn)
        self._search = ContextSearch(store, vectors, _module_of, self._watcher.wake)
        self.accesses = StoredAccesses(store)
        self._watcher.start()

    def search(self, query: str, wanted: ItemFilter, limit: int) -> Found:
        """Raises NoContextError, NoProviderError, NoVectorsYetError, QueryNotEmbeddedError, StoreError."""
        return self._search.search(query, wanted, limit)

    def close(self) -> None:
        self._watcher.close()
        self.accesses.close()


def _module_of(path: str) -> str | None:
    return module(path, "") or None


class ContextWatcher:
    """Imports `.context/` of each root when it changes, one thread each, and embeds new items in another thread."""

    def __init__(
        self,
        store: ContextStore,
        vectors: ContextVectors,
        roots: Mapping[str, Path],
        turn: Callable[[str], AbstractContextManager[bool]],
    ) -> None:
        self._store = store
        self._turn = turn
        self._vectors = vectors
        self._roots = roots
        self._ended = threading.Event()
        self._work = threading.Event()
        self._logged: dict[str, set[str]] = {}  # by root: problems already logged
        self._threads = [
            threading.Thread(target=self._watch, args=(name, root), name=f"context-{name}", daemon=True)
            for name, root in roots.items()
        ]
        if vectors.embeddings is not None:
            self._threads.append(threading.Thread(target=self._embed, name="context-vectors", daemon=True))

    def start(self) -> None:
        """Import what exists before returning, so that the first search finds it."""
        for name, root in self._roots.items():
            self._import(name, root)
        self._work.set()
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Embed items without a vector now."""
        self._work.set()

    def close(self) -> None:
        self._ended.set()
        self._work.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _watch(self, name: str, root: Path) -> None:
        """Also notices a folder that is created or removed later."""
        from watchfiles import watch  # only if there is a root

        while not self._ended.is_set():
            self._import(name, root)
            folder = root / CONTEXT_FOLDER
            if not folder.is_dir():
                self._ended.wait(POLL_S)
                continue
            try:
                for _ in watch(
                    folder, stop_event=self._ended, rust_timeout=5_000, yield_on_timeout=True, raise_interrupt=False
                ):
                    if not folder.is_dir():
                        break
                    self._import(name, root)
            except OSError as error:  # removed while it was being opened, or out of inotify watches
                logger.warning("cannot watch %s/ of root %s: %s", CONTEXT_FOLDER, name, error.strerror)
                self._ended.wait(POLL_S)

    def _import(self, name: str, root: Path) -> None:
        if not root.is_dir():
            return  # perhaps not mounted: keep its items
        try:
            with self._turn(f"context {name}") as mine:
                if not mine:
                    return  # another archive does; the next look at the folder tries again
                outcome = import_folder(self._store, root, f"root:{name}/", Defaults(), within=CONTEXT_FOLDER)
        except StoreError as error:
            logger.warning("could not import the context of root %s: %s", name, error)
            return
        self._log(name, outcome)
        if outcome.items:
            self._work.set()

    def _embed(self) -> None:
        seen: int | None = None
        while not self._ended.is_set():
            asked = self._work.wait(POLL_S)
            self._work.clear()
            known, seen = seen, self._generation(seen)
            if not asked and seen == known:
                continue
            try:
                with self._turn("context vectors") as mine:
                    if mine:
                        self._vectors.embed_missing(self._ended)
                    else:
                        self._ended.wait(RETRY_S)
                        seen = None  # look again, whatever the other archive did
            except (EmbeddingError, StoreError) as error:
                logger.warning("could not embed the context: %s", error)
                self._ended.wait(RETRY_S)

    def _generation(self, known: int | None) -> int | None:
        """The store's generation, which the command line changes too. A search reports why it cannot be read."""
        try:
            return self._store.generation()
        except StoreError:
            return known

    def _log(self, name: str, outcome: Imported) -> None:
        if outcome.files or outcome.removed:
            logger.info("context of %s: read %d files, removed %d", name, outcome.files, outcome.removed)
        known = self._logged.get(name, set())
        self._logged[name] = set(outcome.problems) | (known if not outcome.files else set())
        for problem in [problem for problem in outcome.problems if problem not in known][:_MAX_LOGGED]:
            logger.warning("context of %s: %s", name, problem)
