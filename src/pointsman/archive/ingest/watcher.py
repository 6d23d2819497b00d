"""Watches folders and ingests them again after changes; a folder that disappears is picked up when it is back."""

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
CHECK_MS = 1_000  # how often to check that the folders are still the same


class WatchError(Exception):
    """The operating system denies watching."""


class Watcher:
    """Calls `read` for a folder after changes in it, and again while it fails."""

    def __init__(self, folders: Sequence[Folder], read: Callable[[Folder], None], note: Callable[[str], None]) -> None:
        self._folders = folders
        self._read = read
        self._note = note
        self._due: set[Path] = set()
        self._problems: dict[Path, str] = {}
        self.stopping = threading.Event()

    def run(self) -> None:
        """Run until `stopping` is set. Raises WatchError."""
        while not self.stopping.is_set():
            identities = {folder.job.root: _identity(folder.job.root) for folder in self._folders}
            existing = [root for root, identity in identities.items() if identity is not None]
            self._report_missing()
            if existing:
                self._watch(existing, identities)
            else:
                self.stopping.wait(CHECK_MS / 1000)

    def _watch(self, roots: Sequence[Path], identities: dict[Path, tuple[int, int] | None]) -> None:
        """Watch until a folder is removed, created or replaced."""
        self._due.update(roots)  # read after the watch has started, so that no change is missed
        try:
            for changes in watch(
                *roots,
                debounce=DEBOUNCE_MS,
                stop_event=self.stopping,
                rust_timeout=CHECK_MS,
                yield_on_timeout=True,
                raise_interrupt=True,
            ):
                paths = [path for _, path in changes]
                self._due.update(root for root in roots if any(_is_below(path, root) for path in paths))
                if any(_identity(root) != identity for root, identity in identities.items()):
                    return
                self._read_due()
        except FileNotFoundError:
            return  # removed before the watch started
        except OSError as error:
            raise WatchError(
                f"Watching for changes failed: {error}. Set WATCHFILES_FORCE_POLLING=1 to poll the files instead."
            ) from None

    def _read_due(self) -> None:
        for folder in self._folders:
            root = folder.job.root
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

    def _report_missing(self) -> None:
        for folder in self._folders:
            if not folder.job.root.is_dir():
                self._due.add(folder.job.root)
        self._read_due()

    def _problem(self, folder: Folder) -> str | None:
        if not folder.job.root.is_dir():
            return f"{folder.job.root} does not exist. Its documents stay; it is read again when it is back."
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
