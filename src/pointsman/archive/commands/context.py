"""`pointsman archive context`: add, import, list and remove what a project has learned."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path

import click

from pointsman.archive.commands.commands import (
    MOST_ROWS,
    BadRequestError,
    CommandError,
    json_option,
    note,
    opened,
    print_json,
    shown,
    store_options,
)
from pointsman.archive.context.importer import Imported, import_file, import_folder
from pointsman.archive.context.items import Defaults, InvalidItemError, format_time, make_item
from pointsman.archive.model.context import TYPES, ContextItem, ItemFilter
from pointsman.archive.settings import ArchiveSettings
from pointsman.archive.store.context import ContextStore

_SHOWN_CHARS = 100

type_option = click.option("--type", "kind", type=click.Choice(TYPES), help="Kind of discovery.")
module_option = click.option("--module", help="Part of the project that it is about.")
session_option = click.option("--session", help="Session that it comes from.")


@click.group()
def context() -> None:
    """Manage the patterns, rules, decisions and issues that context_search finds."""


@context.command()
@click.argument("text")
@click.option("--title", default="", help="Short title.")
@type_option
@module_option
@session_option
@json_option
@store_options
def add(
    settings: ArchiveSettings,
    text: str,
    title: str,
    kind: str | None,
    module: str | None,
    session: str | None,
    as_json: bool,
) -> None:
    """Add one discovery. TEXT is its content; - reads it from stdin."""
    written = sys.stdin.read() if text == "-" else text
    defaults = Defaults(type=kind, module=module, session=session, date=format_time(time.time()), title=title)
    try:
        item = make_item({}, written, defaults, "added")
    except InvalidItemError as error:
        hint = " (--type)" if kind is None and written.strip() else ""
        raise BadRequestError(f"Nothing was added: {error}{hint}.") from None
    with opened(settings) as storage:
        storage.context.add(item)
    if as_json:
        print_json(asdict(item))
    else:
        click.echo(item.id)


@context.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@type_option
@module_option
@session_option
@json_option
@store_options
def import_(
    settings: ArchiveSettings,
    paths: tuple[Path, ...],
    kind: str | None,
    module: str | None,
    session: str | None,
    as_json: bool,
) -> None:
    """Import Markdown files, JSON Lines files and folders of them. A repeated import reads only what changed."""
    defaults = Defaults(type=kind, module=module, session=session)
    outcome = Imported()
    with opened(settings) as storage:
        for path in paths:
            outcome = outcome.plus(_import(storage.context, path, defaults))
    if as_json:
        print_json(asdict(outcome))
    for problem in outcome.problems:
        note(f"skipped: {problem}")
    note(f"{outcome.items} items from {outcome.files} new or changed files; {outcome.removed} files removed.")
    if outcome.problems:
        raise CommandError(f"{len(outcome.problems)} could not be imported.")


def _import(store: ContextStore, path: Path, defaults: Defaults) -> Imported:
    if path.is_dir():
        return import_folder(store, path, f"folder:{path.resolve()}/", defaults)
    return import_file(store, path, defaults)


@context.command("list")
@type_option
@module_option
@click.option(
    "--limit", type=click.IntRange(1, MOST_ROWS), default=50, show_default=True, help="Maximum number of items."
)
@json_option
@store_options
def list_(settings: ArchiveSettings, kind: str | None, module: str | None, limit: int, as_json: bool) -> None:
    """List items, newest first."""
    with opened(settings) as storage:
        items = storage.context.newest(ItemFilter(kind, module), limit)
    for item in items:
        if as_json:
            print_json(asdict(item), indent=None)
        else:
            click.echo(shown(_line(item)))
    if not items:
        note("No items yet. Add one with `pointsman archive context add`.")


@context.command()
@click.argument("ids", nargs=-1, required=True)
@json_option
@store_options
def remove(settings: ArchiveSettings, ids: tuple[str, ...], as_json: bool) -> None:
    """Remove items by their IDS. An item from a watched file returns when that file changes."""
    with opened(settings) as storage:
        unknown = [item_id for item_id in ids if not storage.context.remove(item_id)]
    if as_json:
        print_json({"removed": [item_id for item_id in ids if item_id not in unknown], "unknown": unknown}, indent=None)
    if unknown:
        raise CommandError(f"No such items: {', '.join(unknown)}. List them with `pointsman archive context list`.")


def _line(item: ContextItem) -> str:
    text = " ".join(item.content.split())
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
    return f"{item.id}  {item.date[:10]}  {item.type:8}  {item.module or '-'}  {shown}"
