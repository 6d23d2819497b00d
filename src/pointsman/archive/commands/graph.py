"""`pointsman archive graph`: draw the citations around the documents that match a query."""

from __future__ import annotations

from pathlib import Path

import click

from pointsman.archive.commands.commands import (
    CommandError,
    json_option,
    note,
    opened,
    print_json,
    shown,
    store_options,
)
from pointsman.archive.settings import ArchiveSettings

_MOST_DRAWN = 60
_MOST_REACHED = 200


@click.command()
@click.argument("query")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="SVG file to write."
)
@click.option("--depth", type=click.IntRange(1, 3), default=1, show_default=True, help="Levels of citations to follow.")
@click.option(
    "--limit",
    type=click.IntRange(1, 50),
    default=10,
    show_default=True,
    help="Maximum number of matching documents to start from.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, _MOST_REACHED),
    default=_MOST_DRAWN,
    show_default=True,
    help="Maximum number of nodes to draw, most certain first.",
)
@json_option
@store_options
def graph(
    settings: ArchiveSettings, query: str, output: Path, depth: int, limit: int, nodes: int, as_json: bool
) -> None:
    """Draw the citation graph around the documents that match QUERY."""
    from pointsman.archive.graph.svg import render_svg  # deferred: imports numpy
    from pointsman.archive.local_archives.search import search
    from pointsman.archive.search.query_parser import parse
    from pointsman.archive.shipped import without_pages

    with opened(settings) as storage, storage.archives.reading() as view:
        found = search(view, query, without_pages(storage, parse(query)), fuzzy=True, limit=limit)
        if not found.hits:
            raise CommandError(f"No document matches `{query}`, so there is nothing to draw. Try other words.")
        reached = view.graph([hit.number for hit in found.hits], depth, _MOST_REACHED)
    try:
        output.write_text(render_svg(reached, query, nodes), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"Could not write {output}: {error.strerror}.") from error
    if found.did_you_mean:
        note(f"Read as: {found.did_you_mean}")
    if len(reached.nodes) > nodes:
        more = "more than " if reached.truncated else ""
        note(f"Drew the {nodes} most certain of {more}{len(reached.nodes)} nodes; --nodes N draws more.")
    drawn = min(nodes, len(reached.nodes))
    if as_json:
        print_json({"file": str(output), "drawn": drawn, "reached": len(reached.nodes), "truncated": reached.truncated})
    else:
        click.echo(shown(f"{output}: {drawn} nodes"))
