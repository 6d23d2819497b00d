"""Resolves which folder goes into which collection: from options, `collection.yaml` and the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pointsman.archive.ingest.gitignore import FilePatternError
from pointsman.archive.ingest.manifest import ManifestError, ManifestFile, merge_manifests, read_manifest, validate
from pointsman.archive.ingest.run import IngestJob
from pointsman.archive.ingest.walk import Selection, Walk
from pointsman.archive.model.documents import Manifest, Source
from pointsman.archive.shipped import COLLECTION as SHIPPED
from pointsman.archive.store.base import Storage


class InvalidOptionsError(ValueError):
    """The folders and options of a run contradict each other or are invalid."""


@dataclass(frozen=True, slots=True)
class Folder:
    job: IngestJob
    manifest: Manifest
    created: bool = False  # the collection did not exist before


def resolve_folders(
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
    """Create the missing collections. If one folder or option is invalid, nothing is created.

    Raises:
        InvalidOptionsError
        StoreError
    """
    given = {"name": name, "alias": alias, "version": version, "description": description}
    options = _validate({key: value for key, value in given.items() if value is not None})
    if alias and not name and len(folders) > 1:
        raise InvalidOptionsError("--alias with several folders needs --collection: an alias names one collection.")
    selection = Selection(tuple(include), tuple(exclude))
    chosen = []
    for root in dict.fromkeys(map(_folder, folders)):
        manifest = _manifest(storage, root, options)
        job = IngestJob(root, manifest.name, source, selection, again, allow_empty)
        chosen.append(Folder(job, manifest, storage.documents.collection(manifest.name) is None))
    _check_patterns(selection)
    _check_nesting([folder.job for folder in chosen])
    for folder in chosen:
        storage.documents.put_collection(folder.manifest)
    return chosen


def _folder(path: Path) -> Path:
    """Resolve links, so that one folder under two names is the same folder."""
    try:
        root = path.expanduser().resolve()
        str(root).encode()
    except (OSError, RuntimeError, UnicodeEncodeError):
        raise InvalidOptionsError(
            f"The folder {path!r} cannot be used: it does not resolve, or its name is not UTF-8."
        ) from None
    if root.is_dir():
        return root
    if root.exists():
        raise InvalidOptionsError(f"{path} is a file. Name its folder, and the file with --include.")
    raise InvalidOptionsError(f"There is no folder {path}.")


def _validate(values: dict[str, str]) -> ManifestFile:
    try:
        return validate(values, "The options")
    except ManifestError as error:
        raise InvalidOptionsError(str(error)) from None


def _manifest(storage: Storage, root: Path, options: ManifestFile) -> Manifest:
    try:
        written = read_manifest(root)
    except ManifestError as error:
        raise InvalidOptionsError(str(error)) from None
    name = options.name or written.name or root.name[:100] or "files"
    existing = storage.documents.collection(name)
    if (existing.name if existing else name) == SHIPPED:
        raise InvalidOptionsError(
            f"`{name}` is reserved for the documentation that ships with Pointsman. "
            "Choose another name with --collection."
        )
    manifest = existing.manifest if existing else None
    return merge_manifests(options, written, manifest, existing.name if existing else name)


def _check_patterns(selection: Selection) -> None:
    try:
        Walk(Path(), selection)
    except FilePatternError as error:
        raise InvalidOptionsError(str(error)) from None


def _check_nesting(jobs: Sequence[IngestJob]) -> None:
    """A folder and one inside it, in one collection, would ingest the same files twice."""
    for outer in jobs:
        for inner in jobs:
            if outer.collection == inner.collection and outer.root in inner.root.parents:
                raise InvalidOptionsError(
                    f"{inner.root} is inside {outer.root}. Name only one of them, or use two collections."
                )
