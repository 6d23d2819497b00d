"""Which folder goes into which collection: from options, `collection.yaml` and what the store has already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pointsman.archive.ingest.manifest import ManifestError, ManifestFile, checked, put_together, read_manifest
from pointsman.archive.ingest.run import Order
from pointsman.archive.ingest.walk import GlobError, Selection, Walk
from pointsman.archive.model.documents import Manifest, Source
from pointsman.archive.shipped import COLLECTION as SHIPPED
from pointsman.archive.store.base import Storage


class InvalidOrderError(ValueError):
    """What was asked for cannot be done as it was said."""


@dataclass(frozen=True, slots=True)
class Folder:
    order: Order
    manifest: Manifest


def chosen_folders(
    storage: Storage,
    folders: Sequence[Path],
    *,
    name: str | None = None,
    alias: str | None = None,
    version: str | None = None,
    description: str | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    source: Source | None = None,
    again: bool = False,
    allow_empty: bool = False,
) -> list[Folder]:
    """Makes the collections that are not there yet. Nothing is read and nothing made where one of them is wrong.

    Raises:
        InvalidOrderError
        StoreError
    """
    told = {"name": name, "alias": alias, "version": version, "description": description}
    options = _checked({key: value for key, value in told.items() if value is not None})
    if alias and not name and len(folders) > 1:
        raise InvalidOrderError("--alias with several folders needs --collection: one alias leads to one collection.")
    selection = Selection(tuple(include), tuple(exclude))
    chosen = []
    for root in dict.fromkeys(map(_folder, folders)):
        manifest = _manifest(storage, root, options)
        order = Order(root, manifest.name, source, selection, again, allow_empty)
        chosen.append(Folder(order, manifest))
    _check_globs(selection)
    _check_nesting([folder.order for folder in chosen])
    for folder in chosen:
        storage.documents.put_collection(folder.manifest)
    return chosen


def _folder(path: Path) -> Path:
    """As it really is: the same folder by two names is one folder."""
    try:
        root = path.expanduser().resolve()
        str(root).encode()
    except (OSError, RuntimeError, UnicodeEncodeError):
        raise InvalidOrderError(
            f"The folder {path!r} cannot be used: its name leads nowhere or is not UTF-8."
        ) from None
    if root.is_dir():
        return root
    if root.exists():
        raise InvalidOrderError(f"{path} is a file. Name the folder that it lies in, and the file with --include.")
    raise InvalidOrderError(f"There is no folder {path}.")


def _checked(values: dict[str, str]) -> ManifestFile:
    try:
        return checked(values, "The options")
    except ManifestError as error:
        raise InvalidOrderError(str(error)) from None


def _manifest(storage: Storage, root: Path, options: ManifestFile) -> Manifest:
    try:
        written = read_manifest(root)
    except ManifestError as error:
        raise InvalidOrderError(str(error)) from None
    name = options.name or written.name or root.name[:100] or "files"
    kept = storage.documents.collection(name)
    if (kept.name if kept else name) == SHIPPED:
        raise InvalidOrderError(
            f"`{name}` is the documentation that comes with Pointsman and is kept by it. "
            "Choose another name with --collection."
        )
    manifest = kept.manifest if kept else None
    return put_together(options, written, manifest, kept.name if kept else name)


def _check_globs(selection: Selection) -> None:
    try:
        Walk(Path(), selection)
    except GlobError as error:
        raise InvalidOrderError(str(error)) from None


def _check_nesting(orders: Sequence[Order]) -> None:
    """A folder and one inside it, in one collection, would be the same files twice."""
    for outer in orders:
        for inner in orders:
            if outer.collection == inner.collection and outer.root in inner.root.parents:
                raise InvalidOrderError(
                    f"{inner.root} lies in {outer.root}: name only one of them, or two collections."
                )
