"""A citation graph as SVG: a box for each document, an arrow for each citation, a legend."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape

from pointsman.archive.graph.layout import Numbers, place_boxes
from pointsman.archive.store.archives import Edge, Graph, Node

MAX_NODES = 60
_CHAR_WIDTH = 7.1  # of an average letter
_WIDE_LETTERS = frozenset("mwMWABCDEFGHKLNOPQRSTUVXYZ@%—…")
_WIDE_FROM = 0x2E7F  # CJK characters take twice the width
_MAX_LABEL_CHARS = {"source": 34, "target": 28, "external": 26}
_HEIGHT = {"source": 34.0, "target": 28.0, "external": 24.0}
_FILL = {"source": "#1f5fa8", "target": "#d9ead9", "external": "#ffffff"}
_STROKE = {"source": "#16477e", "target": "#4d8a57", "external": "#8a8f98"}
_INK = {"source": "#ffffff", "target": "#17361d", "external": "#4a4f57"}
_LEGEND = (("source", "found by the query"), ("target", "another document"), ("external", "not in the archive"))
_HEADER, _EDGE = 84.0, 28.0
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # invalid in XML even when escaped
_FONT = "font-family=\"'DejaVu Sans', Verdana, sans-serif\""


def render_svg(graph: Graph, query: str, most: int = MAX_NODES) -> str:
    """Draw the first `most` nodes; the store orders them by connection."""
    nodes = graph.nodes[:most]
    place = {node.id: number for number, node in enumerate(nodes)}
    edges = [edge for edge in graph.edges if edge.source in place and edge.target in place]
    cited = {(edge.source, edge.target) for edge in edges}
    labels = [_label(node) for node in nodes]
    sizes = [(_width(node, label), _HEIGHT[node.kind]) for node, label in zip(nodes, labels, strict=True)]
    points = place_boxes(sizes, [(place[edge.source], place[edge.target]) for edge in edges])
    width, height = _fit_page(points, sizes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" {_FONT} font-size="12">',
        f"<title>Citations around {_xml(query)}</title>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto" markerUnits="userSpaceOnUse"><path d="M0,0.8 L8,4 L0,7.2 z" fill="#6b7280"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fbfbfa"/>',
        *_header(query, len(nodes), len(graph.nodes), graph.truncated),
        *(_arrow(edge, place, points, sizes, (edge.target, edge.source) in cited) for edge in edges),
        *(_box(*each) for each in zip(nodes, labels, points.tolist(), sizes, strict=True)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _label(node: Node) -> str:
    text = node.label
    if node.kind == "external":
        text = text.partition("://")[2] or text
    limit = _MAX_LABEL_CHARS[node.kind]
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def _width(node: Node, label: str) -> float:
    letters = sum(2.0 if ord(letter) > _WIDE_FROM else 1.3 if letter in _WIDE_LETTERS else 1.0 for letter in label)
    return max(46.0, letters * _CHAR_WIDTH * (1.12 if node.kind == "source" else 1.0) + 20)


def _fit_page(points: Numbers, sizes: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Move the points onto a page that fits them and the legend; its width and height."""
    if not sizes:
        return 640.0, _HEADER + 2 * _EDGE
    left = min(x - width / 2 for (x, _), (width, _) in zip(points, sizes, strict=True))
    right = max(x + width / 2 for (x, _), (width, _) in zip(points, sizes, strict=True))
    top = min(y - height / 2 for (_, y), (_, height) in zip(points, sizes, strict=True))
    bottom = max(y + height / 2 for (_, y), (_, height) in zip(points, sizes, strict=True))
    width = max(640.0, right - left + 2 * _EDGE)
    points += (width / 2 - (left + right) / 2, _HEADER + _EDGE / 2 - top)
    return float(width), float(_HEADER + bottom - top + 1.5 * _EDGE)


def _header(query: str, shown: int, total: int, truncated: bool) -> list[str]:
    asked = query if len(query) <= 60 else f"{query[:59]}…"
    word = f"{shown} of {'more than ' if truncated else ''}{total} nodes, the most certain"
    if shown == total:
        word = f"{total} nodes" + (", the most certain; there are more" if truncated else "")
    parts = [
        f'<text x="{_EDGE}" y="30" font-size="17" font-weight="bold" fill="#1c2330">Citations around '
        f"“{_xml(asked)}”</text>",
    ]
    x = _EDGE
    for kind, meaning in _LEGEND:
        parts += (
            f'<rect x="{x:.0f}" y="46" width="22" height="14" rx="7" {_style(kind)}/>',
            f'<text x="{x + 28:.0f}" y="57" fill="#3b4250">{meaning}</text>',
        )
        x += 44 + len(meaning) * _CHAR_WIDTH
    parts.append(f'<text x="{x:.0f}" y="57" fill="#6b7280">{word}</text>')
    return parts


def _xml(text: str) -> str:
    """Escape, and replace characters that would make the file invalid XML."""
    return escape(_NOT_XML.sub("\ufffd", text))


def _style(kind: str) -> str:
    dashes = ' stroke-dasharray="4 3"' if kind == "external" else ""
    return f'fill="{_FILL[kind]}" stroke="{_STROKE[kind]}"{dashes}'


def _box(node: Node, label: str, point: Sequence[float], size: tuple[float, float]) -> str:
    (x, y), (width, height) = point, size
    weight = ' font-weight="bold"' if node.kind == "source" else ""
    return (
        f"<g><title>{_xml(node.label)}\n{_xml(node.url or node.id)}</title>"
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{height / 2:.1f}" {_style(node.kind)}/>'
        f'<text x="{x:.1f}" y="{y + 4.2:.1f}" text-anchor="middle" fill="{_INK[node.kind]}"{weight}>'
        f"{_xml(label)}</text></g>"
    )


def _arrow(
    edge: Edge, place: dict[str, int], points: Numbers, sizes: Sequence[tuple[float, float]], both_ways: bool
) -> str:
    """From border to border. Two documents that cite each other get two curved arrows."""
    one, other = place[edge.source], place[edge.target]
    (x1, y1), (x2, y2) = points[one], points[other]
    distance = math.hypot(x2 - x1, y2 - y1) or 1.0
    bow = min(14.0, distance / 6) if both_ways else 0.0
    middle = ((x1 + x2) / 2 + bow * (y2 - y1) / distance, (y1 + y2) / 2 - bow * (x2 - x1) / distance)
    start = _border(points[one], sizes[one], middle if both_ways else (x2, y2))
    end = _border(points[other], sizes[other], middle if both_ways else (x1, y1))
    opacity = 0.35 + 0.5 * edge.confidence**3
    return (
        f'<path d="M{start[0]:.1f},{start[1]:.1f} Q{middle[0]:.1f},{middle[1]:.1f} {end[0]:.1f},{end[1]:.1f}" '
        f'fill="none" stroke="#6b7280" stroke-width="{0.6 + 0.9 * edge.confidence:.2f}" '
        f'stroke-opacity="{opacity:.2f}" marker-end="url(#arrow)"/>'
    )


def _border(point: Sequence[float], size: tuple[float, float], towards: Sequence[float]) -> tuple[float, float]:
    """The point where a line from the middle of a box crosses its border."""
    dx, dy = towards[0] - point[0], towards[1] - point[1]
    reach = max(abs(dx) / (size[0] / 2 + 2), abs(dy) / (size[1] / 2 + 2)) or 1.0
    return point[0] + dx / reach, point[1] + dy / reach
