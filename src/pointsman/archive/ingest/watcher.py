"""Folders that are read again when something in them changes; one that vanishes is waited for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from watchfiles import watch

from pointsman.archive.ingest.folders import Folder
from pointsman.archive.ingest.run import EmptyFolderError
from pointsman.archive.store.errors import StoreError

DEBOUNCE_MS = 500
LOOK_MS = 1_000  # how often to look whether all folders are still what they were


class WatchError(Exception):
    """The system does not let us watch."""


class Watch:
    """`read` is called for a folder after changes in it, and again while it fails."""

    def __init__(self, folders: Sequence[Folder], read: Callable[[Folder], None], note: Callable[[str], None]) -> None:
        self._folders = folders
        self._read = read
        self._note = note
        self._due: set[Path] = set()
        self._problems: dict[Path, str] = {}
        self.stopping = threading.Event()

    def run(self) -> None:
        """Until `stopping` is set. Raises WatchError."""
        while not self.stopping.is_set():
            seen = {folder.order.root: _identity(folder.order.root) for folder in self._folders}
            there = [root for root, identity in seen.items() if identity is not None]
            self._tell_what_is_gone()
            if there:
                self._follow(there, seen)
            else:
                self.stopping.wait(LOOK_MS / 1000)

    def _follow(self, there: Sequence[Path], seen: dict[Path, tuple[int, int] | None]) -> None:
        """Until a folder goes, comes or is replaced by another."""
        self._due.update(there)  # read after the watch has begun: nothing that changed meanwhile is missed
        try:
            for changes in watch(
                *there,
                debounce=DEBOUNCE_MS,
                stop_event=self.stopping,
                rust_timeout=LOOK_MS,
                yield_on_timeout=True,
                raise_interrupt=True,
            ):
                paths = [path for _, path in changes]
                self._due.update(root for root in there if any(_is_below(path, root) for path in paths))
                if any(_identity(root) != identity for root, identity in seen.items()):
                    return
                self._catch_up()
        except FileNotFoundError:
            return  # gone before it could be watched
        except OSError as error:
            raise WatchError(
                f"Changes cannot be watched: {error}. Set WATCHFILES_FORCE_POLLING=1 to look at the files instead."
            ) from None

    def _catch_up(self) -> None:
        for folder in self._folders:
            root = folder.order.root
            if root not in self._due:
                continue
            problem = self._problem(folder)
            if problem and self._problems.get(root) != problem:
                self._note(problem)
            if problem:
                self._problems[root] = problem
            else:
                self._problems.pop(root, None)
                self._due.discard(root)

    def _tell_what_is_gone(self) -> None:
        for folder in self._folders:
            if not folder.order.root.is_dir():
                self._due.add(folder.order.root)
        self._catch_up()

    def _problem(self, folder: Folder) -> str | None:
        if not folder.order.root.is_dir():
            return f"{folder.order.root} is gone. Its documents stay, and it is read again when it is back."
        try:
            self._read(folder)
        except (EmptyFolderError, StoreError) as error:
            return str(error)
        return None


def _identity(root: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(root)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_below(path: str, root: Path) -> bool:
    return path == str(root) or path.startswith(f"{root}{os.sep}")
