"""`pointsman archive graph`: the citations round what a query finds, as a picture."""

from __future__ import annotations

from pathlib import Path

import click

from pointsman.archive.commands.commands import CommandError, note, opened, place_options
from pointsman.archive.settings import ArchiveSettings

_MOST_DRAWN = 60
_MOST_REACHED = 200


@click.command()
@click.argument("query")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The SVG file to write."
)
@click.option("--depth", type=click.IntRange(1, 3), default=1, show_default=True, help="Levels of citations.")
@click.option("--limit", type=click.IntRange(1, 50), default=10, show_default=True, help="Documents to begin with.")
@click.option(
    "--nodes",
    type=click.IntRange(1, _MOST_REACHED),
    default=_MOST_DRAWN,
    show_default=True,
    help="Draw at most so many, the surest first.",
)
@place_options
def graph(settings: ArchiveSettings, query: str, output: Path, depth: int, limit: int, nodes: int) -> None:
    """Draw who cites whom round the documents that QUERY finds."""
    from pointsman.archive.graph.drawing import drawn  # brings numpy, which a wrong option need not wait for
    from pointsman.archive.local_archives.search import search
    from pointsman.archive.search.query_parsing import parse
    from pointsman.archive.shipped import without_pages

    with opened(settings) as storage, storage.archives.reading() as view:
        found = search(view, query, without_pages(storage, parse(query)), fuzzy=True, limit=limit)
        if not found.hits:
            raise CommandError(
                f"Nothing in the archive matches `{query}`, so there is nothing to draw. Try other words."
            )
        reached = view.graph([hit.number for hit in found.hits], depth, _MOST_REACHED)
    try:
        output.write_text(drawn(reached, query, nodes), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{output} cannot be written: {error.strerror}.") from error
    if found.did_you_mean:
        note(f"Read as: {found.did_you_mean}")
    if len(reached.nodes) > nodes:
        more = "more than " if reached.truncated else ""
        note(f"{nodes} of {more}{len(reached.nodes)} nodes are drawn, the surest; --nodes shows more.")
    click.echo(f"{output}: {min(nodes, len(reached.nodes))} nodes")
