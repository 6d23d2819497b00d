"""Imports files into the context: a file, a folder, or a project's `.context/`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.archive.code.guard import AccessDeniedError, PathNotFoundError
from pointsman.archive.code.guard import read as read_guarded
from pointsman.archive.context.items import Defaults, Problem, is_readable, read_items
from pointsman.archive.model.context import ContextItem
from pointsman.archive.store.context import ContextStore

CONTEXT_FOLDER = ".context"
MAX_FILES = 20_000  # of one folder


@dataclass(slots=True)
class Imported:
    """What an import did."""

    files: int = 0  # read because they were new or changed
    items: int = 0
    removed: int = 0  # files that no longer exist, with their items
    problems: list[str] = field(default_factory=list)

    def plus(self, other: Imported) -> Imported:
        return Imported(
            self.files + other.files,
            self.items + other.items,
            self.removed + other.removed,
            [*self.problems, *other.problems],
        )


def import_folder(store: ContextStore, folder: Path, prefix: str, defaults: Defaults, within: str = "") -> Imported:
    """Synchronize the store with the folder. The names of its origins begin with `prefix`.

    `within`: the only subfolder to read, like `.context`. Symlinks that lead out of the folder are not followed.
    """
    outcome = Imported()
    known = store.digests(prefix)
    seen: set[str] = set()
    for name in _names(folder, within, outcome):
        origin = f"{prefix}{name}"
        seen.add(origin)
        _import_file(store, folder, name, origin, known.get(origin), defaults, outcome)
    gone = [origin for origin in known if origin not in seen]
    if gone:
        store.forget(gone)
    outcome.removed = len(gone)
    return outcome


def import_file(store: ContextStore, file: Path, defaults: Defaults) -> Imported:
    """Import one file."""
    outcome = Imported()
    origin = f"file:{file.resolve()}"
    if not is_readable(file.name):
        outcome.problems.append(f"{file.name}: not Markdown or JSON lines (.md, .txt, .jsonl)")
        return outcome
    known = store.digests(origin).get(origin)
    _import_file(store, file.parent, file.name, origin, known, defaults, outcome)
    return outcome


def _import_file(
    store: ContextStore,
    folder: Path,
    name: str,
    origin: str,
    known: str | None,
    defaults: Defaults,
    outcome: Imported,
) -> None:
    try:
        file = read_guarded(folder, name)
        text = file.content.decode("utf-8-sig")
    except (AccessDeniedError, PathNotFoundError) as error:
        outcome.problems.append(f"{name}: {error}")
        return
    except UnicodeDecodeError:
        outcome.problems.append(f"{name}: not UTF-8 text")
        return
    digest = hashlib.sha256(repr(defaults).encode() + file.content).hexdigest()
    if digest == known:
        return
    items: list[ContextItem] = []
    for read in read_items(name, text, file.modified, defaults):
        if isinstance(read, Problem):
            outcome.problems.append(f"{name}: {read}")
        else:
            items.append(read)
    store.replace(origin, digest, items)
    outcome.files += 1
    outcome.items += len(items)


def _names(folder: Path, within: str, outcome: Imported) -> Iterator[str]:
    """Paths relative to the folder, sorted; hidden files and subfolders are skipped."""
    count = 0
    for path, folders, files in os.walk(folder / within):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for file in sorted(files):
            name = Path(path, file).relative_to(folder).as_posix()
            if file.startswith(".") or not is_readable(name):
                continue
            if count == MAX_FILES:
                outcome.problems.append(f"a folder may have at most {MAX_FILES} files; skipped the rest")
                return
            count += 1
            yield name
