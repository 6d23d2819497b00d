"""What documents cite, which document each citation resolves to, and the graph of citations.

Citations are written in the same transaction as their document. Every citation has the names it may mean, every
document the names it is known by; a citation resolves to a document that shares a name with it. When names are added
or removed, only the citations with these names are resolved again. A document whose links and names stay the same
costs one lookup.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import LiteralString

from pointsman.archive.citations.addresses import Name, address, names_of_citation, names_of_document, resolver_url
from pointsman.archive.model.documents import Citation, Document
from pointsman.archive.store.archives import Edge, Graph, Node, Reference, References
from pointsman.archive.store.sql.database import Connection, placeholders

TABLES: LiteralString = """
CREATE TABLE citations (
    id {integer} PRIMARY KEY,
    source {integer} NOT NULL,
    target {integer},
    sure {real} NOT NULL,
    confidence {real} NOT NULL,
    line {integer} NOT NULL,
    kind {text} NOT NULL,
    written {text} NOT NULL,
    address {text} NOT NULL,
    context {text} NOT NULL
);
CREATE INDEX citations_by_source ON citations (source, sure DESC, target);
CREATE INDEX citations_by_target ON citations (target, sure DESC, source) WHERE target IS NOT NULL;
CREATE TABLE citation_wishes (
    citation {integer} NOT NULL,
    preference {integer} NOT NULL,
    name {integer} NOT NULL,
    alias {integer} NOT NULL,
    PRIMARY KEY (citation, preference)
){keyed};
CREATE INDEX citation_wishes_by_name ON citation_wishes (name, citation);
CREATE TABLE citation_names (
    name {integer} NOT NULL,
    document {integer} NOT NULL,
    alias {integer} NOT NULL,
    PRIMARY KEY (name, document)
){keyed};
CREATE INDEX citation_names_by_document ON citation_names (document, name, alias);
CREATE TABLE citation_prints (
    document {integer} PRIMARY KEY,
    cited {bytes} NOT NULL,
    named {bytes} NOT NULL
);
"""
"""In the types of an engine; `keyed`: how it keeps a table in the order of its key."""

SCHEMA = TABLES.format(integer="INTEGER", real="REAL", text="TEXT", bytes="BLOB", keyed=" WITHOUT ROWID")

_ALIAS_FACTOR = 0.9  # on the confidence of a citation that resolves through an alias
_VALUES_PER_STATEMENT = 500

MOST_EDGES = 1_000
_MOST_FOLLOWED = 400  # citations of one document, in each direction
_LABEL_CHARS = 80
_DOCUMENT_ID = (
    "(SELECT collections.name || '/' || documents.name FROM documents JOIN collections "
    "ON collections.id = documents.collection WHERE documents.id = {})"
)

Place = int | str
"""A document by its row, or something outside the archive by its address."""


def write(connection: Connection, row: int, document: Document, citations: Sequence[Citation]) -> None:
    """Replace what the document cites, and resolve the citations that name it. `row` is its row in `documents`."""
    names = names_of_document(document)
    cited, named = _digest(document.url, *citations), _digest(*sorted((name.key, name.alias) for name in names))
    before = connection.execute("SELECT cited, named FROM citation_prints WHERE document = ?", (row,)).fetchone()
    if before == (cited, named):
        return
    old_cited, old_named = before or (None, None)
    if old_named != named:
        _replace_names(connection, row, names)
    if old_cited != cited:
        if old_cited is not None:
            _delete_citations(connection, row)
        _insert_citations(connection, row, document, citations)
    connection.execute(
        "INSERT INTO citation_prints VALUES (?, ?, ?) "
        "ON CONFLICT (document) DO UPDATE SET cited = excluded.cited, named = excluded.named",
        (row, cited, named),
    )


def forget(connection: Connection, row: int) -> None:
    """Delete the citations of a document that is about to be removed; those that resolved to it become unresolved."""
    _delete_citations(connection, row)
    _replace_names(connection, row, ())
    connection.execute("DELETE FROM citation_prints WHERE document = ?", (row,))


def written_by(connection: Connection, row: int) -> tuple[Citation, ...]:
    """The citations of a document, as they were given to `write`."""
    rows = connection.execute(
        "SELECT kind, written, context, confidence, line FROM citations WHERE source = ? ORDER BY id", (row,)
    )
    return tuple(Citation(*each) for each in rows)


def _insert_citations(connection: Connection, row: int, document: Document, citations: Sequence[Citation]) -> None:
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM citations").fetchone()
    numbered = list(enumerate(citations, start=last + 1))
    connection.executemany(
        "INSERT INTO citations (id, source, sure, confidence, line, kind, written, address, context) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (number, row, each.confidence, each.confidence, each.line, each.kind, each.target, known, each.context)
            for number, each in numbered
            for known in (address(document, each),)
        ],
    )
    connection.executemany(
        "INSERT INTO citation_wishes VALUES (?, ?, ?, ?)",
        [
            (number, preference, name.key, int(name.alias))
            for number, each in numbered
            for preference, name in enumerate(names_of_citation(document, each))
        ],
    )
    _resolve(connection, [number for number, _ in numbered])


def _delete_citations(connection: Connection, row: int) -> None:
    connection.execute(
        "DELETE FROM citation_wishes WHERE citation IN (SELECT id FROM citations WHERE source = ?)", (row,)
    )
    connection.execute("DELETE FROM citations WHERE source = ?", (row,))


def _replace_names(connection: Connection, row: int, names: Sequence[Name]) -> None:
    """Set the names of a document, and resolve again the citations that have a name which was added or removed."""
    old = set(connection.execute("SELECT name, alias FROM citation_names WHERE document = ?", (row,)))
    new = {(name.key, int(name.alias)) for name in names}
    connection.executemany(
        "DELETE FROM citation_names WHERE name = ? AND document = ?", [(name, row) for name, _ in old - new]
    )
    connection.executemany("INSERT INTO citation_names VALUES (?, ?, ?)", [(name, row, a) for name, a in new - old])
    changed = {name for name, _ in old ^ new}
    _resolve(connection, _citations_naming(connection, sorted(changed)))


def _citations_naming(connection: Connection, names: Sequence[int]) -> list[int]:
    citations: set[int] = set()
    for start in range(0, len(names), _VALUES_PER_STATEMENT):
        some = names[start : start + _VALUES_PER_STATEMENT]
        found = connection.execute(f"SELECT citation FROM citation_wishes WHERE name IN ({placeholders(some)})", some)
        citations.update(number for (number,) in found)
    return sorted(citations)


def _resolve(connection: Connection, citations: Iterable[int]) -> None:
    """Point each to its best document: by its likeliest name, then by a name that is no alias, then the oldest."""
    resolved = []
    for citation in citations:
        best = connection.execute(
            "SELECT n.document, w.alias + n.alias FROM citation_wishes w JOIN citation_names n ON n.name = w.name "
            "WHERE w.citation = ? ORDER BY w.preference, n.alias, n.document LIMIT 1",
            (citation,),
        ).fetchone()
        target, alias = best or (None, False)
        factor = _ALIAS_FACTOR if alias else 1.0
        resolved.append((target, factor, citation, target or 0, factor))
    connection.executemany(
        "UPDATE citations SET target = ?, sure = confidence * ? "
        "WHERE id = ? AND (coalesce(target, 0) <> ? OR sure <> confidence * ?)",
        resolved,
    )


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode(errors="replace"), digest_size=16).digest()


def references(connection: Connection, document: int, most: int) -> References:
    citing = _read_references(connection, "source", document, most)
    cited = _read_references(connection, "target", document, most)
    more = sum(
        max(0, connection.execute(f"SELECT count(*) FROM citations WHERE {end} = ?", (document,)).fetchone()[0] - most)
        for end, found in (("source", citing), ("target", cited))
        if len(found) == most
    )
    return References(citing, cited, more)


def _read_references(connection: Connection, end: str, document: int, most: int) -> tuple[Reference, ...]:
    rows = connection.execute(
        f"SELECT {_DOCUMENT_ID.format('citations.source')}, {_DOCUMENT_ID.format('target')}, "
        "kind, written, context, sure "
        f"FROM citations WHERE {end} = ? AND (target IS NULL OR source <> target) "
        "ORDER BY sure DESC, source, line, id LIMIT ?",
        (document, most),
    )
    return tuple(
        Reference(source, target, resolver_url(kind, written), context, _round(sure))
        for source, target, kind, written, context, sure in rows
    )


def graph(connection: Connection, documents: Sequence[int], depth: int, most: int) -> Graph:
    subgraph = _Subgraph(connection, dict.fromkeys(documents[:most], 1.0), len(documents) > most)
    frontier: list[Place] = list(subgraph.confidence)
    for _ in range(depth):
        frontier = subgraph.grow([place for place in frontier if isinstance(place, int)], most)
    nodes = _nodes(connection, subgraph, frozenset(documents))
    return Graph(tuple(nodes.values()), *_edges(subgraph, nodes))


@dataclass(slots=True)
class _Subgraph:
    """The places reached from some documents, with the confidence of the best path, and all edges met on the way."""

    connection: Connection
    confidence: dict[Place, float]
    truncated: bool
    edges: dict[tuple[int, Place], float] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    followed: set[int] = field(default_factory=set)

    def grow(self, frontier: Iterable[int], most: int) -> list[Place]:
        """Add one level: most confident first, documents before outside addresses, then the best connected."""
        room = max(0, most - len(self.confidence))
        if self.truncated and not room:
            return []
        candidates: dict[Place, float] = {}
        degree: Counter[Place] = Counter()
        for row in frontier:
            for place, sure in self._neighbours(row):
                if place not in self.confidence:
                    candidates[place] = max(candidates.get(place, 0.0), sure * self.confidence[row])
                    degree[place] += 1
        ranked = sorted(
            candidates,
            key=lambda place: (-round(candidates[place], 6), isinstance(place, str), -degree[place], str(place)),
        )
        self.truncated |= len(ranked) > room
        chosen = ranked[:room]
        self.confidence.update((place, candidates[place]) for place in chosen)
        return chosen

    def _neighbours(self, row: int) -> list[tuple[Place, float]]:
        return [*self._outgoing(row), *self._incoming(row)]

    def _outgoing(self, row: int) -> list[tuple[Place, float]]:
        self.followed.add(row)
        rows = self.connection.execute(
            "SELECT target, CASE WHEN target IS NULL THEN address END, kind, written, sure FROM citations "
            "WHERE source = ? ORDER BY sure DESC, coalesce(target, 0), id LIMIT ?",
            (row, _MOST_FOLLOWED),
        ).fetchall()
        self.truncated |= len(rows) == _MOST_FOLLOWED
        found: list[tuple[Place, float]] = []
        for target, outside, kind, written, sure in rows:
            if target == row:
                continue
            place: Place = outside if target is None else target
            if target is None:
                self.urls.setdefault(outside, resolver_url(kind, written))
            self._add_edge((row, place), sure)
            found.append((place, sure))
        return found

    def _incoming(self, row: int) -> list[tuple[Place, float]]:
        rows = self.connection.execute(
            "SELECT source, sure FROM citations WHERE target = ? ORDER BY sure DESC, source, id LIMIT ?",
            (row, _MOST_FOLLOWED),
        ).fetchall()
        self.truncated |= len(rows) == _MOST_FOLLOWED
        for source, sure in rows:
            self._add_edge((source, row), sure)
        return [(source, sure) for source, sure in rows if source != row]

    def _add_edge(self, edge: tuple[int, Place], sure: float) -> None:
        if edge[0] != edge[1]:
            self.edges[edge] = max(self.edges.get(edge, 0.0), sure)

    def all_edges(self) -> dict[tuple[int, Place], float]:
        """Include the edges between places of the last level, which `grow` has not read."""
        for place in list(self.confidence):
            if isinstance(place, int) and place not in self.followed:
                self._outgoing(place)
        return self.edges


def _nodes(connection: Connection, subgraph: _Subgraph, start: frozenset[int]) -> dict[Place, Node]:
    rows = [place for place in subgraph.confidence if isinstance(place, int)]
    described = {
        row: (shown, title)
        for row, shown, title in connection.execute(
            f"SELECT id, {_DOCUMENT_ID.format('d.id')}, title FROM documents d WHERE id IN ({placeholders(rows)})",
            rows,
        )
    }
    nodes: dict[Place, Node] = {}
    for place in subgraph.confidence:
        if isinstance(place, str):
            url = subgraph.urls[place]
            nodes[place] = Node(place, _label(url), "external", url)
        elif place in described:
            shown, title = described[place]
            nodes[place] = Node(shown, _label(title), "source" if place in start else "target")
    return nodes


def _edges(subgraph: _Subgraph, nodes: dict[Place, Node]) -> tuple[tuple[Edge, ...], bool]:
    known = [
        Edge(nodes[source].id, nodes[target].id, _round(sure))
        for (source, target), sure in subgraph.all_edges().items()
        if source in nodes and target in nodes
    ]
    known.sort(key=lambda edge: -edge.confidence)
    return tuple(known[:MOST_EDGES]), subgraph.truncated or len(known) > MOST_EDGES


def _label(text: str) -> str:
    label = " ".join(text.split())
    return label if len(label) <= _LABEL_CHARS else f"{label[: _LABEL_CHARS - 1]}…"


def _round(confidence: float) -> float:
    return round(confidence, 4)
