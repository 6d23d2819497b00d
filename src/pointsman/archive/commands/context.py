"""`pointsman archive context`: enter, bring in, list and remove what a project has learned."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click

from pointsman.archive.commands.commands import (
    BadRequestError,
    CommandError,
    json_option,
    note,
    opened,
    place_options,
    print_json,
)
from pointsman.archive.context.importing import Imported, import_file, import_folder
from pointsman.archive.context.parsing import Defaults, InvalidItemError, make_item, moment
from pointsman.archive.model.context import TYPES, ContextItem, ItemFilter
from pointsman.archive.settings import ArchiveSettings
from pointsman.archive.store.context import ContextStore

_SHOWN_CHARS = 100

type_option = click.option("--type", "kind", type=click.Choice(TYPES), help="What kind of discovery it is.")
module_option = click.option("--module", help="The part of the project that it concerns.")
session_option = click.option("--session", help="The session that it comes from.")


@click.group()
def context() -> None:
    """Keep what a project has learned: patterns, rules, decisions and issues, for context_search."""


@context.command()
@click.argument("text")
@click.option("--title", default="", help="A few words above it.")
@type_option
@module_option
@session_option
@json_option
@place_options
def add(
    settings: ArchiveSettings,
    text: str,
    title: str,
    kind: str | None,
    module: str | None,
    session: str | None,
    as_json: bool,
) -> None:
    """Enter one discovery. TEXT is the discovery itself; - reads it from standard input."""
    written = sys.stdin.read() if text == "-" else text
    defaults = Defaults(type=kind, module=module, session=session, date=moment(time.time()), title=title)
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
@place_options
def import_(
    settings: ArchiveSettings,
    paths: tuple[Path, ...],
    kind: str | None,
    module: str | None,
    session: str | None,
    as_json: bool,
) -> None:
    """Bring in Markdown, JSON lines, and folders of them. Again after an edit: only what changed is read."""
    defaults = Defaults(type=kind, module=module, session=session)
    outcome = Imported()
    with opened(settings) as storage:
        for path in paths:
            outcome = outcome.with_(_import(storage.context, path, defaults))
    if as_json:
        print_json(asdict(outcome))
    for problem in outcome.problems:
        note(f"left out: {problem}")
    note(f"{outcome.items} items from {outcome.files} new or changed files; {outcome.removed} files are gone.")
    if outcome.problems:
        raise CommandError(f"{len(outcome.problems)} could not be taken.")


def _import(store: ContextStore, path: Path, defaults: Defaults) -> Imported:
    if path.is_dir():
        return import_folder(store, path, f"folder:{path.resolve()}/", defaults)
    return import_file(store, path, defaults)


@context.command("list")
@type_option
@module_option
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="The newest so many.")
@json_option
@place_options
def list_(settings: ArchiveSettings, kind: str | None, module: str | None, limit: int, as_json: bool) -> None:
    """Show what is kept, the newest first."""
    with opened(settings) as storage:
        items = storage.context.newest(ItemFilter(kind, module), limit)
    for item in items:
        click.echo(json.dumps(asdict(item), ensure_ascii=False) if as_json else _line(item))
    if not items:
        note("Nothing is kept yet. `pointsman archive context add` enters something.")


@context.command()
@click.argument("ids", nargs=-1, required=True)
@place_options
def remove(settings: ArchiveSettings, ids: tuple[str, ...]) -> None:
    """Forget items by their IDS. What a watched file still says comes back with its next change."""
    with opened(settings) as storage:
        unknown = [item_id for item_id in ids if not storage.context.remove(item_id)]
    if unknown:
        raise CommandError(f"Not there: {', '.join(unknown)}. `pointsman archive context list` shows what is.")


def _line(item: ContextItem) -> str:
    text = " ".join(item.content.split())
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
    return f"{item.id}  {item.date[:10]}  {item.type:8}  {item.module or '-'}  {shown}"
