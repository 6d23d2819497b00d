"""The picture of a graph: whole, the same every time, and nothing over anything else."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from itertools import combinations

import pytest

from pointsman.archive.graph.layout import place_boxes
from pointsman.archive.graph.svg import render_svg
from pointsman.archive.store.archives import Edge, Graph, Node, NodeKind

SVG = "{http://www.w3.org/2000/svg}"
KINDS: tuple[NodeKind, ...] = ("source", "target", "external")


def made(nodes: int, edges: int, *, truncated: bool = False) -> Graph:
    chance = random.Random(nodes)
    named = tuple(Node(f"id-{n}", f"Document with a name {n} <&>", KINDS[n % 3], None) for n in range(nodes))
    ends = {tuple(chance.sample(range(nodes), 2)) for _ in range(edges)}
    return Graph(named, tuple(Edge(f"id-{a}", f"id-{b}", 0.9) for a, b in sorted(ends)), truncated)


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    rects = ET.fromstring(svg).findall(f"{SVG}g/{SVG}rect")
    return [tuple(float(rect.attrib[name]) for name in ("x", "y", "width", "height")) for rect in rects]  # type: ignore[misc]


@pytest.mark.parametrize(("nodes", "edges"), [(1, 0), (2, 1), (7, 0), (25, 20), (60, 110), (60, 400)])
def test_no_box_lies_over_another_or_outside_the_page(nodes: int, edges: int) -> None:
    svg = render_svg(made(nodes, edges), "q")
    placed_boxes = boxes(svg)
    assert len(placed_boxes) == nodes
    for (x1, y1, w1, h1), (x2, y2, w2, h2) in combinations(placed_boxes, 2):
        assert x1 + w1 <= x2 or x2 + w2 <= x1 or y1 + h1 <= y2 or y2 + h2 <= y1
    page = ET.fromstring(svg).attrib
    assert all(x >= 0 and y >= 0 for x, y, _, _ in placed_boxes)
    assert all(x + w <= float(page["width"]) and y + h <= float(page["height"]) for x, y, w, h in placed_boxes)


def test_the_same_graph_is_the_same_picture() -> None:
    assert render_svg(made(40, 60), "q") == render_svg(made(40, 60), "q")


def test_every_citation_is_an_arrow_and_every_kind_is_in_the_legend() -> None:
    graph = made(12, 20)
    svg = ET.fromstring(render_svg(graph, "<query> & more"))
    arrows = [path for path in svg.findall(f"{SVG}path") if path.get("marker-end")]
    assert len(arrows) == len(graph.edges)
    said = [text.text for text in svg.findall(f"{SVG}text")]
    assert said == [
        "Citations around “<query> & more”",
        "found by the query",
        "another document",
        "not in the archive",
        "12 nodes",
    ]


def test_a_large_graph_shows_the_first_sixty_and_says_so() -> None:
    svg = render_svg(made(130, 200), "q")
    assert len(boxes(svg)) == 60
    assert "60 of 130 nodes, the most certain" in svg
    assert "60 of more than 130 nodes" in render_svg(made(130, 200, truncated=True), "q")
    assert len(boxes(render_svg(made(130, 200), "q", most=100))) == 100


def test_nothing_has_no_place() -> None:
    assert place_boxes([], []).shape == (0, 2)


def test_a_title_with_control_characters_leaves_the_picture_readable() -> None:
    node = Node("id-\x01", "Bad \x08\x1b[31m \ufffe \ud800 title", "source", "https://example.com/\x07")
    svg = ET.fromstring(render_svg(Graph((node,), (), False), "bell \x07").encode())
    assert "Bad \ufffd\ufffd[31m \ufffd \ufffd title" in "".join(svg.itertext())
