"""What is needed to take a change back: copies of the files from before it, for this user alone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pointsman.config.files import ReplaceError, create, open_regular, rewrite

FOLDER = "undo"
_KEPT = 20  # records; older ones are removed
_MANIFEST = "change.json"


@dataclass(slots=True)
class Change:
    """One change of one or more files, and what it needs besides to be taken back."""

    folder: Path
    kind: str  # "client" or "import"
    name: str
    files: dict[str, str | None]  # path: the digest before the change; None: there was no file
    detail: dict[str, Any] = field(default_factory=dict)
    after: dict[str, str | None] = field(default_factory=dict)

    def restore(self, path: Path) -> bool:
        """Put the file back as it was; False: it has been changed since, and was left alone. Raises ReplaceError."""
        if digest(path) != self.after.get(str(path), ""):
            return False
        if self.files[str(path)] is None:
            path.unlink(missing_ok=True)
            return True
        old = _copy(self.folder, list(self.files).index(str(path))).read_bytes().decode("utf-8-sig")
        rewrite(path, lambda _: old)
        return True

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def recorded(state: Path, kind: str, name: str, paths: Sequence[Path], detail: Mapping[str, Any]) -> Iterator[Change]:
    """Copy the files, run the block that changes them, and remember how it left them. A failed block leaves no record.

    Raises:
        ReplaceError: the copies cannot be written; the block has not run.
    """
    folder = state / FOLDER / f"{time.time_ns():020}-{kind}-{name or 'all'}"
    change = Change(folder, kind, name, {str(path): digest(path) for path in paths}, dict(detail))
    try:
        _private(folder)
        for index, path in enumerate(paths):
            if path.exists():
                create(_copy(folder, index), path.read_bytes())
        yield change
        change.after = {str(path): digest(path) for path in paths}
        create(folder / _MANIFEST, json.dumps(_manifest(change)).encode())
    except BaseException:
        change.discard()
        raise
    for old in sorted((state / FOLDER).iterdir())[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def latest(state: Path, kind: str, name: str) -> Change | None:
    """The newest change of this kind that can be taken back."""
    folders = sorted((state / FOLDER).glob(f"*-{kind}-{name or 'all'}"), reverse=True)
    return next((change for folder in folders if (change := _read(folder, kind, name)) is not None), None)


def digest(path: Path) -> str | None:
    """None: there is no such file."""
    try:
        with open_regular(path) as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def _private(folder: Path) -> None:
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.parent.mkdir(exist_ok=True, mode=0o700)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise ReplaceError(
            f"Nothing was changed: no copy could be kept in {folder.parent}: {os.strerror(error.errno or 0)}."
        ) from error


def _copy(folder: Path, index: int) -> Path:
    return folder / f"{index}.before"


def _manifest(change: Change) -> dict[str, Any]:
    return {"files": change.files, "after": change.after, "detail": change.detail}


def _read(folder: Path, kind: str, name: str) -> Change | None:
    try:
        stored = json.loads((folder / _MANIFEST).read_bytes())
        return Change(folder, kind, name, stored["files"], stored["detail"], stored["after"])
    except (OSError, ValueError, KeyError):
        return None
