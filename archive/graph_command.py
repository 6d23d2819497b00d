"""`pointsman archive graph`: the citations round what a query finds, as a picture."""

from __future__ import annotations

from pathlib import Path

from pointsman.archive.graph.drawing import drawn
from pointsman.archive.local_archives.search import search
from pointsman.archive.query.parsing import parse
from pointsman.archive.store.archives import Graph
from pointsman.archive.store.base import Storage

MOST_REACHED = 200
_DEFAULT_FOUND = 5


def draw(storage: Storage, query: str, output: Path, *, depth: int, limit: int, most: int) -> Graph | None:
    """Write the picture. None: nothing was found, and nothing is written.

    Raises:
        StoreError: the store cannot be read.
        OSError: the picture cannot be written.
    """
    with storage.archives.reading() as view:
        found = search(view, query, parse(query), fuzzy=True, limit=limit)
        if not found.hits:
            return None
        graph = view.graph([hit.number for hit in found.hits], depth, MOST_REACHED)
    output.write_text(drawn(graph, query, most), encoding="utf-8")
    return graph
