"""`pointsman archive ingest`: folders into collections, once or for as long as it is left running."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pointsman.archive.commands.commands import (
    BadRequestError,
    CommandError,
    embedded,
    json_option,
    note,
    opened,
    place_options,
    print_json,
    shown,
)
from pointsman.archive.settings import ArchiveSettings

if TYPE_CHECKING:  # heavy, and not needed to say what is wrong with an option
    from pointsman.archive.ingest.folders import Folder
    from pointsman.archive.ingest.run import Report
    from pointsman.archive.store.base import Storage

MOST_SHOWN = 50  # files that were left out; --json names them all


@click.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--collection", "--name", "name", help="Otherwise the name in collection.yaml, or that of the folder.")
@click.option("--alias", help="A short name for the collection.")
@click.option("--version", help="The version of what is in it.")
@click.option("--description", help="What is in it, for who looks for something.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only these files, of whatever kind (may be repeated).")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Not these, as in .gitignore (may be repeated).")
@click.option("--source", type=click.Choice(["research", "url"]), help="Otherwise as front matter says, or research.")
@click.option("--again", is_flag=True, help="Read all files, changed or not.")
@click.option("--allow-empty", is_flag=True, help="An empty folder empties its collection.")
@click.option("--watch", is_flag=True, help="Go on, and read files when they change.")
@json_option
@place_options
def ingest(
    settings: ArchiveSettings,
    folders: tuple[Path, ...],
    as_json: bool,
    watch: bool,
    allow_empty: bool,
    **options: Any,
) -> None:
    """Read the files below DIR into a collection: Markdown, text, HTML, PDF.

    Only what is new or has changed is read; documents whose files are gone are removed. It can be interrupted at any
    time and goes on when it is run again. Files that .gitignore names, hidden ones and links are left out.
    """
    from pointsman.archive.ingest.folders import InvalidOrderError, chosen_folders
    from pointsman.archive.ingest.run import EmptyFolderError

    try:
        with opened(settings) as storage:
            chosen = chosen_folders(storage, folders, allow_empty=allow_empty, **options)
            reports = [_run(storage, folder) for folder in chosen]
            problem = _embed(storage, settings)
            _tell(chosen, reports, problem, as_json)
            if watch:
                _watch(storage, settings, chosen)
    except InvalidOrderError as error:
        raise BadRequestError(str(error)) from None
    except EmptyFolderError as error:
        raise CommandError(str(error)) from None
    except KeyboardInterrupt:
        note("Stopped. What was read so far is in the store; the same command goes on from there.")
        sys.exit(130)
    if problem or any(report.broken for report in reports):
        sys.exit(1)


def _run(storage: Storage, folder: Folder) -> Report:
    from pointsman.archive.commands.progress import Bar
    from pointsman.archive.ingest.run import ingest as run

    with Bar(shown(folder.order.collection)) as bar:
        return run(storage.documents, folder.order, bar.over)


def _embed(storage: Storage, settings: ArchiveSettings) -> str | None:
    """What keeps passages from getting their vectors; their text is in the store all the same."""
    from pointsman.archive.embedding.base import EmbeddingError
    from pointsman.archive.embedding.passage_vectors import MixedSpacesError

    try:
        embedded(storage, settings)
    except MixedSpacesError as error:
        return str(error)
    except EmbeddingError as error:
        return f"{error} The text is in the store; `pointsman archive embed` makes the vectors later."
    return None


def _tell(folders: Iterable[Folder], reports: Iterable[Report], problem: str | None, as_json: bool) -> None:
    if as_json:
        rows = [
            {"collection": folder.order.collection, "folder": str(folder.order.root), **dataclasses.asdict(report)}
            for folder, report in zip(folders, reports, strict=True)
        ]
        print_json({"folders": rows, "problem": problem})
        return
    for folder, report in zip(folders, reports, strict=True):
        tell(folder, report)
    if problem:
        note(problem)


def tell(folder: Folder, report: Report) -> None:
    note(
        f"{folder.order.collection}: {report.added} added, {report.changed} changed, {report.unchanged} unchanged, "
        f"{report.removed} removed, {len(report.broken)} left out."
    )
    if not report.documents and not report.broken:
        note(f"  Nothing to read was found in {folder.order.root}. Other kinds of files are read with --include.")
    for path, why in list(report.broken.items())[:MOST_SHOWN]:
        note(f"  {shown(path)}: {shown(why)}.")
    if len(report.broken) > MOST_SHOWN:
        note(f"  and {len(report.broken) - MOST_SHOWN} more; --json names them all.")


def _watch(storage: Storage, settings: ArchiveSettings, folders: Iterable[Folder]) -> None:
    from pointsman.archive.ingest.watcher import Watch, WatchError

    def read(folder: Folder) -> None:
        report = _run(storage, folder)
        problem = _embed(storage, settings)
        if report.added or report.changed or report.removed or report.broken:
            tell(folder, report)
        if problem:
            note(problem)

    note("Watching for changes; Ctrl-C ends it.")
    try:
        Watch([_from_now_on(folder) for folder in folders], read, note).run()
    except WatchError as error:
        raise CommandError(str(error)) from None


def _from_now_on(folder: Folder) -> Folder:
    """What was ordered for the first run only does not hold for the next."""
    return dataclasses.replace(folder, order=dataclasses.replace(folder.order, again=False, allow_empty=False))
