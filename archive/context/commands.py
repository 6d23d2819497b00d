"""`pointsman archive context`: enter, bring in, list and remove what a project has learned."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click

from pointsman.archive.context.importing import Imported, import_file, import_folder
from pointsman.archive.context.making import BadItem, Defaults, make_item, moment
from pointsman.archive.context.model import TYPES, ContextItem, Wanted
from pointsman.archive.store.context import ContextStore

_SHOWN_CHARS = 100


def add_item(store: ContextStore, text: str, defaults: Defaults) -> ContextItem:
    """Raises click.ClickException for what cannot be kept."""
    defaults = _at(defaults, moment(time.time()))
    try:
        item = make_item({}, text, defaults, "added")
    except BadItem as error:
        raise click.ClickException(f"Nothing was added: {error}.") from None
    store.add(item)
    return item


def import_paths(store: ContextStore, paths: tuple[Path, ...], defaults: Defaults) -> Imported:
    """Files and folders, one after another; what is wrong with one does not keep the others out."""
    outcome = Imported()
    for path in paths:
        if path.is_dir():
            part = import_folder(store, path, f"folder:{path.resolve()}/", defaults)
        else:
            part = import_file(store, path, defaults)
        outcome.files += part.files
        outcome.items += part.items
        outcome.removed += part.removed
        outcome.problems += part.problems
    return outcome


def report(outcome: Imported, as_json: bool) -> int:
    """Say what came of it; the exit code."""
    if as_json:
        click.echo(json.dumps(asdict(outcome), ensure_ascii=False))
    else:
        for problem in outcome.problems:
            click.echo(f"left out: {problem}", err=True)
        click.echo(
            f"{outcome.items} items from {outcome.files} new or changed files, "
            f"{outcome.removed} removed, {len(outcome.problems)} problems",
            err=True,
        )
    return 1 if outcome.problems else 0


def show(store: ContextStore, wanted: Wanted, limit: int, as_json: bool) -> None:
    for item in store.newest(wanted, limit):
        if as_json:
            click.echo(json.dumps(asdict(item), ensure_ascii=False))
            continue
        text = " ".join(item.content.split())
        shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
        click.echo(f"{item.id}  {item.date[:10]}  {item.type:8}  {item.module or '-'}  {shown}")


def typed_text(argument: str | None) -> str:
    return sys.stdin.read() if argument in (None, "-") else str(argument)


def _at(defaults: Defaults, date: str) -> Defaults:
    from dataclasses import replace

    return replace(defaults, date=date)


TYPE = click.option("--type", "kind", type=click.Choice(TYPES), help="What kind of discovery it is.")
