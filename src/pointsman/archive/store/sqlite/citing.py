"""Who cites whom: the citations of one document, and the graph round several, level by level."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pointsman.archive.citations.addresses import written
from pointsman.archive.store.archives import Edge, Graph, Node, Reference, References

MOST_EDGES = 1_000
_OF_ONE = 400  # citations of one document, in each direction, that are followed
_LABEL = 80
_SHOWN_ID = (
    "(SELECT collections.name || '/' || documents.name FROM documents JOIN collections "
    "ON collections.id = documents.collection WHERE documents.id = {})"
)

Place = int | str
"""A document by its row, or what is outside by its address."""


def references(connection: sqlite3.Connection, document: int, most: int) -> References:
    citing = _listed(connection, "source", document, most)
    cited = _listed(connection, "target", document, most)
    more = sum(
        max(0, connection.execute(f"SELECT count(*) FROM citations WHERE {end} = ?", (document,)).fetchone()[0] - most)
        for end, found in (("source", citing), ("target", cited))
        if len(found) == most
    )
    return References(citing, cited, more)


def _listed(connection: sqlite3.Connection, end: str, document: int, most: int) -> tuple[Reference, ...]:
    rows = connection.execute(
        f"SELECT {_SHOWN_ID.format('citations.source')}, {_SHOWN_ID.format('target')}, kind, written, context, sure "
        f"FROM citations WHERE {end} = ? AND source IS NOT target ORDER BY sure DESC, source, line LIMIT ?",
        (document, most),
    )
    return tuple(
        Reference(source, target, written(kind, as_written), context, _round(sure))
        for source, target, kind, as_written, context, sure in rows
    )


def graph(connection: sqlite3.Connection, documents: Sequence[int], depth: int, most: int) -> Graph:
    reached = _Reached(connection, dict.fromkeys(documents[:most], 1.0), len(documents) > most)
    frontier: list[Place] = list(reached.sure)
    for _ in range(depth):
        frontier = reached.grow([place for place in frontier if isinstance(place, int)], most)
    nodes = _nodes(connection, reached, frozenset(documents))
    return Graph(tuple(nodes.values()), *_edges(reached, nodes))


@dataclass(slots=True)
class _Reached:
    """How surely each place is connected with the documents that were asked for, and all edges seen on the way."""

    connection: sqlite3.Connection
    sure: dict[Place, float]
    truncated: bool
    edges: dict[tuple[int, Place], float] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    followed: set[int] = field(default_factory=set)

    def grow(self, frontier: Iterable[int], most: int) -> list[Place]:
        """One level more: its surest places, documents before what is outside, then the best connected."""
        room = max(0, most - len(self.sure))
        if self.truncated and not room:
            return []
        candidates: dict[Place, float] = {}
        degree: Counter[Place] = Counter()
        for row in frontier:
            for place, sure in self._neighbours(row):
                if place not in self.sure:
                    candidates[place] = max(candidates.get(place, 0.0), sure * self.sure[row])
                    degree[place] += 1
        ranked = sorted(
            candidates,
            key=lambda place: (-round(candidates[place], 6), isinstance(place, str), -degree[place], str(place)),
        )
        self.truncated |= len(ranked) > room
        chosen = ranked[:room]
        self.sure.update((place, candidates[place]) for place in chosen)
        return chosen

    def _neighbours(self, row: int) -> list[tuple[Place, float]]:
        return [*self._out_of(row), *self._into(row)]

    def _out_of(self, row: int) -> list[tuple[Place, float]]:
        self.followed.add(row)
        rows = self.connection.execute(
            "SELECT target, CASE WHEN target IS NULL THEN address END, kind, written, sure FROM citations "
            "WHERE source = ? ORDER BY sure DESC LIMIT ?",
            (row, _OF_ONE),
        ).fetchall()
        self.truncated |= len(rows) == _OF_ONE
        found: list[tuple[Place, float]] = []
        for target, address, kind, as_written, sure in rows:
            if target == row:
                continue
            place: Place = address if target is None else target
            if target is None:
                self.urls.setdefault(address, written(kind, as_written))
            self._see((row, place), sure)
            found.append((place, sure))
        return found

    def _into(self, row: int) -> list[tuple[Place, float]]:
        rows = self.connection.execute(
            "SELECT source, sure FROM citations WHERE target = ? ORDER BY sure DESC LIMIT ?", (row, _OF_ONE)
        ).fetchall()
        self.truncated |= len(rows) == _OF_ONE
        for source, sure in rows:
            self._see((source, row), sure)
        return [(source, sure) for source, sure in rows if source != row]

    def _see(self, edge: tuple[int, Place], sure: float) -> None:
        if edge[0] != edge[1]:
            self.edges[edge] = max(self.edges.get(edge, 0.0), sure)

    def all_edges(self) -> dict[tuple[int, Place], float]:
        """Also those between places of the last level, which nobody has looked at from there."""
        for place in list(self.sure):
            if isinstance(place, int) and place not in self.followed:
                self._out_of(place)
        return self.edges


def _nodes(connection: sqlite3.Connection, reached: _Reached, asked: frozenset[int]) -> dict[Place, Node]:
    rows = [place for place in reached.sure if isinstance(place, int)]
    described = {
        row: (shown, title)
        for row, shown, title in connection.execute(
            f"SELECT id, {_SHOWN_ID.format('d.id')}, title FROM documents d WHERE id IN ({', '.join('?' * len(rows))})",
            rows,
        )
    }
    nodes: dict[Place, Node] = {}
    for place in reached.sure:
        if isinstance(place, str):
            url = reached.urls[place]
            nodes[place] = Node(place, _label(url), "external", url)
        elif place in described:
            shown, title = described[place]
            nodes[place] = Node(shown, _label(title), "source" if place in asked else "target")
    return nodes


def _edges(reached: _Reached, nodes: dict[Place, Node]) -> tuple[tuple[Edge, ...], bool]:
    known = [
        Edge(nodes[source].id, nodes[target].id, _round(sure))
        for (source, target), sure in reached.all_edges().items()
        if source in nodes and target in nodes
    ]
    known.sort(key=lambda edge: -edge.confidence)
    return tuple(known[:MOST_EDGES]), reached.truncated or len(known) > MOST_EDGES


def _label(text: str) -> str:
    label = " ".join(text.split())
    return label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…"


def _round(confidence: float) -> float:
    return round(confidence, 4)
