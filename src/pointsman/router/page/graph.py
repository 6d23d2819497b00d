"""A citation graph as SVG in three columns: what cites, what the search found, what is cited. Deterministic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from markupsafe import Markup, escape

MAX_NODES = 60
WIDTH, BOX_W, BOX_H, GAP, TOP = 960, 270, 30, 12, 30
_LEFT = {0: 1, 1: (WIDTH - BOX_W) // 2, 2: WIDTH - BOX_W - 1}
_HEADINGS = ("cite them", "found", "are cited")
_MAX_LABEL = 33
_SWEEPS = 3  # that bring connected boxes near each other


def draw_graph(graph: Mapping[str, Any], label: str, address: Callable[[str], str | None]) -> Markup:
    """Draw nodes (`id`, `label`, `type`, `url`) and edges (`from`, `to`, `confidence`), the first `MAX_NODES` of them.

    `address`: where a click on the document of this id leads; None: nowhere. Texts may be hostile.
    """
    nodes: list[Mapping[str, Any]] = list(graph["nodes"])[:MAX_NODES]
    known = {node["id"] for node in nodes}
    edges = [(one["from"], one["to"]) for one in graph["edges"] if one["from"] in known and one["to"] in known]
    columns = _columns(nodes, edges)
    height = TOP + max((len(column) for column in columns), default=0) * (BOX_H + GAP)
    places = _places(columns, height)
    parts = [
        f'<text class="axis" x="{_LEFT[number] + BOX_W // 2}" y="14" text-anchor="middle">{text}</text>'
        for number, text in enumerate(_HEADINGS)
        if columns[number]
    ]
    found = set(columns[1])
    parts += [_arrow(places[one], places[other], found & {one, other}) for one, other in edges if one != other]
    parts += [_box(node, places[node["id"]], address) for node in nodes]
    return Markup(  # noqa: S704 - numbers, and texts that are escaped here
        f'<svg class="graph" viewBox="0 0 {WIDTH} {height}" role="group" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _columns(nodes: Iterable[Mapping[str, Any]], edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Sort the nodes into columns, each ordered by the places of its neighbours in the others."""
    kinds = {node["id"]: node["type"] for node in nodes}
    found = {node for node, kind in kinds.items() if kind == "source"}
    citing = {one for one, other in edges if other in found}
    columns = [
        [node for node in kinds if node not in found and node in citing],
        [node for node in kinds if node in found],
        [node for node in kinds if node not in found and node not in citing],
    ]
    near: dict[str, list[str]] = {node: [] for node in kinds}
    for one, other in edges:
        near[one].append(other)
        near[other].append(one)
    for _ in range(_SWEEPS):
        for number in (0, 2, 1):
            rank = {node: at / len(column) for column in columns for at, node in enumerate(column)}
            columns[number].sort(key=lambda node: fmean([rank[one] for one in near[node]] or [rank[node]]))
    return columns


def _places(columns: Sequence[Sequence[str]], height: int) -> dict[str, tuple[float, float]]:
    """The left upper corner of each box; shorter columns are in the middle."""
    places = {}
    for number, column in enumerate(columns):
        first = TOP + (height - TOP - len(column) * (BOX_H + GAP)) / 2
        for at, node in enumerate(column):
            places[node] = (float(_LEFT[number]), first + at * (BOX_H + GAP))
    return places


def _arrow(start: tuple[float, float], end: tuple[float, float], found: Collection[str]) -> str:
    """A curve with a tip; a faint one without a tip between two documents that the search has not found."""
    y1, y2 = start[1] + BOX_H / 2, end[1] + BOX_H / 2
    right = start[0] < end[0]
    x1 = start[0] + BOX_W if start[0] <= end[0] else start[0]
    x2 = end[0] - 4 if right else end[0] + BOX_W + 4
    turn = (x1 + x2) / 2
    if start[0] == end[0]:  # in one column: around the boxes
        turn = x1 + min(30 + abs(y2 - y1) / 8, (WIDTH - 3 * BOX_W) / 2)
    curve = f"M{x1:.0f},{y1:.1f} C{turn:.0f},{y1:.1f} {turn:.0f},{y2:.1f} {x2:.0f},{y2:.1f}"
    if not found:
        return f'<path class="edge far" d="{curve}"/>'
    tip = f"M{x2:.0f},{y2:.1f} l{-6 if right else 6},-4 v8 z"
    return f'<path class="edge" d="{curve}"/><path class="tip" d="{tip}"/>'


def _box(node: Mapping[str, Any], place: tuple[float, float], address: Callable[[str], str | None]) -> str:
    x, y = place
    text = str(node["label"] or node["id"])
    if node["type"] == "external":
        text = text.partition("://")[2] or text
    shown = text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1].rstrip()}…"
    kind = node["type"] if node["type"] in ("source", "target") else "external"
    full = escape(f"{node['label']}\n{node.get('url') or node['id']}")
    box = (
        f'<g class="node {kind}"><title>{full}</title>'
        f'<rect x="{x:.0f}" y="{y:.1f}" width="{BOX_W}" height="{BOX_H}" rx="7"/>'
        f'<text x="{x + 12:.0f}" y="{y + BOX_H / 2 + 4.5:.1f}">{escape(shown)}</text></g>'
    )
    link = address(str(node["id"])) if kind != "external" else None
    return f'<a href="{escape(link)}">{box}</a>' if link is not None else box
