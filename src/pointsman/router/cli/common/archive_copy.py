"""Copies archives with the state: between files of the state folder and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.router.downstream.bundled import file_of, schema_of

if TYPE_CHECKING:
    from pointsman.archive.settings import PostgresStore
    from pointsman.archive.store.copying import Copied

SCHEMES = ("postgresql://", "postgres://")


class ArchiveCopyError(Exception):
    """One of the stores cannot be used."""


def copy_archives(target: str, folder: Path, database: str | None, ids: Iterable[str]) -> dict[str, Copied]:
    """Copy the archives with these ids to a URL from files, or to a folder from `database`.

    One that has no file yet is left out. Raises ArchiveCopyError.
    """
    copied = {}
    for id_ in ids:
        stores = _stores(id_, target, folder, database)
        if stores is not None:
            copied[id_] = _copy(id_, *stores)
    return copied


def _stores(
    id_: str, target: str, folder: Path, database: str | None
) -> tuple[Path, PostgresStore] | tuple[PostgresStore, Path] | None:
    from pointsman.archive.settings import PostgresStore

    if target.startswith(SCHEMES):
        file = file_of(id_, folder)
        return (file, PostgresStore(target, schema_of(id_))) if file.exists() else None
    assert database is not None
    into = folder if target == "sqlite" else Path(target).expanduser()
    return PostgresStore(database, schema_of(id_)), file_of(id_, into)


def _copy(id_: str, source: Path | PostgresStore, target: Path | PostgresStore) -> Copied:
    """Raises ArchiveCopyError."""
    from pointsman.archive.archive import open_storage
    from pointsman.archive.store.copying import copy_storage
    from pointsman.archive.store.errors import StoreError

    try:
        opened = open_storage(source)
        try:
            into = open_storage(target)
            try:
                return copy_storage(opened, into)
            finally:
                into.close()
        finally:
            opened.close()
    except StoreError as error:
        raise ArchiveCopyError(f"the archive {id_}: {error}") from error
