"""`pointsman archive ingest`: read folders into collections, once or continuously."""

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
    print_json,
    shown,
    store_options,
)
from pointsman.archive.settings import ArchiveSettings

if TYPE_CHECKING:  # heavy, and not needed to reject an option
    from pointsman.archive.ingest.folders import Folder
    from pointsman.archive.ingest.run import Report
    from pointsman.archive.store.base import Storage

MOST_SHOWN = 50  # skipped files; --json lists them all


@click.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--collection",
    "--name",
    "name",
    help="Name of the collection. Default: the one in collection.yaml, or the folder's name.",
)
@click.option("--alias", help="Short name for the collection.")
@click.option("--version", help="Version of the content.")
@click.option("--description", help="Description shown when collections are listed.")
@click.option("--include", multiple=True, metavar="GLOB", help="Read only matching files, of any type. Repeatable.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Skip matching files; .gitignore syntax. Repeatable.")
@click.option(
    "--source",
    type=click.Choice(["research", "url"]),
    help="Source of the documents. Default: the one in front matter, or research.",
)
@click.option("--again", is_flag=True, help="Read unchanged files again, too.")
@click.option("--allow-empty", is_flag=True, help="Allow an empty folder to empty its collection.")
@click.option("--watch", is_flag=True, help="Keep running and read files when they change.")
@json_option
@store_options
def ingest(
    settings: ArchiveSettings,
    folders: tuple[Path, ...],
    as_json: bool,
    watch: bool,
    allow_empty: bool,
    **options: Any,
) -> None:
    """Read the files below DIR into a collection: Markdown, text, HTML, PDF.

    Reads only new and changed files, and removes documents whose files are gone. An interrupted run resumes when
    repeated. Skips hidden files, symbolic links and files that .gitignore excludes.
    """
    from pointsman.archive.ingest.folders import InvalidOptionsError, resolve_folders
    from pointsman.archive.ingest.run import EmptyFolderError

    try:
        with opened(settings) as storage:
            chosen = resolve_folders(storage, folders, allow_empty=allow_empty, **options)
            reports = [_run(storage, folder) for folder in chosen]
            nothing = [] if watch or allow_empty else _remove_empty(storage, chosen)
            problem = _embed(storage, settings)
            _print_reports(chosen, reports, problem, as_json)
            if watch:
                _watch(storage, settings, chosen)
    except InvalidOptionsError as error:
        raise BadRequestError(str(error)) from None
    except EmptyFolderError as error:
        raise CommandError(str(error)) from None
    except KeyboardInterrupt:
        note("Interrupted. The store has what was read so far; repeat the command to resume.")
        sys.exit(130)
    for folder in nothing:
        note(f"No collection `{shown(folder.job.collection)}` was created, because nothing was found.")
    if problem or nothing or any(report.broken for report in reports):
        sys.exit(1)


def _remove_empty(storage: Storage, folders: Iterable[Folder]) -> list[Folder]:
    """Remove the collections that this run has created and not filled; return their folders."""
    empty = [each for each in folders if each.created and not storage.documents.origins(each.job.collection)]
    for folder in empty:
        storage.documents.remove_collection(folder.job.collection)
    return empty


def _run(storage: Storage, folder: Folder) -> Report:
    from pointsman.archive.commands.commands import Bar
    from pointsman.archive.ingest.progress import IngestProgress
    from pointsman.archive.ingest.run import ingest as run

    progress = IngestProgress(storage.key_values, folder.job.collection, folder.job.root)
    with Bar(shown(folder.job.collection)) as bar:
        report = run(storage.documents, folder.job, lambda files, total: progress.over(bar.over(files, total), total))
    progress.end(len(report.broken))
    return report


def _embed(storage: Storage, settings: ArchiveSettings) -> str | None:
    """Compute missing vectors; return why that failed, if it did. The text is stored in any case."""
    from pointsman.archive.embedding.base import EmbeddingError
    from pointsman.archive.embedding.passage_vectors import MixedSpacesError

    try:
        embedded(storage, settings)
    except MixedSpacesError as error:
        return str(error)
    except EmbeddingError as error:
        return f"{error} The text is in the store; compute the vectors later with `pointsman archive embed`."
    return None


def _print_reports(folders: Iterable[Folder], reports: Iterable[Report], problem: str | None, as_json: bool) -> None:
    if as_json:
        rows = [
            {"collection": folder.job.collection, "folder": str(folder.job.root), **dataclasses.asdict(report)}
            for folder, report in zip(folders, reports, strict=True)
        ]
        print_json({"folders": rows, "problem": problem})
        return
    for folder, report in zip(folders, reports, strict=True):
        _print_report(folder, report)
    if problem:
        note(problem)


def _print_report(folder: Folder, report: Report) -> None:
    note(
        f"{folder.job.collection}: {report.added} added, {report.changed} changed, {report.unchanged} unchanged, "
        f"{report.removed} removed, {len(report.broken)} skipped."
    )
    if not report.documents and not report.broken:
        note(f"  No readable files in {folder.job.root}. Add other file types with --include.")
    for path, why in list(report.broken.items())[:MOST_SHOWN]:
        note(f"  {shown(path)}: {shown(why)}.")
    if len(report.broken) > MOST_SHOWN:
        note(f"  and {len(report.broken) - MOST_SHOWN} more; --json lists them all.")


def _watch(storage: Storage, settings: ArchiveSettings, folders: Iterable[Folder]) -> None:
    from pointsman.archive.ingest.watcher import Watcher, WatchError

    def read(folder: Folder) -> None:
        report = _run(storage, folder)
        problem = _embed(storage, settings)
        if report.added or report.changed or report.removed or report.broken:
            _print_report(folder, report)
        if problem:
            note(problem)

    note("Watching for changes. Press Ctrl-C to stop.")
    try:
        Watcher([_from_now_on(folder) for folder in folders], read, note).run()
    except WatchError as error:
        raise CommandError(str(error)) from None


def _from_now_on(folder: Folder) -> Folder:
    """Drop the options that apply to the first run only."""
    return dataclasses.replace(folder, job=dataclasses.replace(folder.job, again=False, allow_empty=False))
