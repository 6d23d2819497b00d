"""Force-directed layout of a graph's boxes, without overlaps. Deterministic."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

_STEPS = 400
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
_ASPECT = 1.7  # boxes and pages are wide
_MARGIN = np.array([26.0, 30.0])  # between two boxes
_MAX_PASSES = 400
_ROW_HEIGHT, _MIN_ROW_WIDTH = 66.0, 600.0  # higher than any box


def place_boxes(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Numbers:
    """The centre of each box, given their widths and heights. The first boxes start in the middle."""
    boxes = np.array(sizes, dtype=float).reshape(-1, 2) + _MARGIN
    joined = sorted({end for edge in edges for end in edge})
    place = {number: at for at, number in enumerate(joined)}
    points: Numbers = np.zeros_like(boxes)
    points[joined] = _place_connected(boxes[joined], [(place[one], place[other]) for one, other in edges])
    _place_in_rows_below(points, boxes, joined, [number for number in range(len(boxes)) if number not in place])
    return points


def _place_connected(boxes: Numbers, edges: Sequence[tuple[int, int]]) -> Numbers:
    points: Numbers = _relax(_spiral(len(boxes)), edges) * np.array([_ASPECT, 1.0])
    if len(points):
        points *= 1.1 * math.sqrt(float(boxes.prod(axis=1).sum())) / float(np.abs(points).max())
    while not _push_apart(points, boxes):
        points *= 1.1
    return points


def _place_in_rows_below(points: Numbers, boxes: Numbers, joined: Sequence[int], alone: Sequence[int]) -> None:
    """Boxes without edges would drift away, so they go into rows."""
    others = points[joined] if joined else np.zeros((1, 2))
    left, bottom = float(others[:, 0].min()), float(others[:, 1].max())
    right = max(float(others[:, 0].max()), left + _MIN_ROW_WIDTH)
    x, y = left, bottom + _ROW_HEIGHT
    for number in alone:
        width = float(boxes[number, 0])
        if x > left and x + width > right:
            x, y = left, y + _ROW_HEIGHT
        points[number] = (x + width / 2, y)
        x += width


def _spiral(count: int) -> Numbers:
    turns = np.arange(count) * _GOLDEN_ANGLE
    points: Numbers = np.sqrt(np.arange(count) + 0.5)[:, None] * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    return points


def _relax(points: Numbers, edges: Sequence[tuple[int, int]]) -> Numbers:
    """Edges attract like springs, all nodes repel each other, and weak gravity keeps them together."""
    count = len(points)
    joined = np.zeros((count, count))
    for one, other in edges:
        joined[one, other] = joined[other, one] = 1.0
    ideal = 1.6
    for step in range(_STEPS):
        apart = points[:, None, :] - points[None, :, :]
        distance = np.sqrt((apart**2).sum(axis=2)) + 1e-6
        push = ideal**2 / distance**2 - joined * distance / ideal
        move = (apart * push[:, :, None]).sum(axis=1) - 0.12 * points
        length = np.sqrt((move**2).sum(axis=1, keepdims=True)) + 1e-9
        heat = 0.5 * (1 - step / _STEPS) + 0.01
        points = points + move / length * np.minimum(length, heat)
    return points


def _push_apart(points: Numbers, boxes: Numbers) -> bool:
    """Move overlapping boxes apart in place, each by half along the shorter axis. False: some still overlap."""
    for _ in range(_MAX_PASSES):
        moved = False
        for one in range(len(points)):
            apart = points - points[one]
            overlap = (boxes + boxes[one]) / 2 - np.abs(apart)
            for other in np.flatnonzero((overlap > 1e-6).all(axis=1)):
                if other > one:
                    axis = int(overlap[other, 0] > overlap[other, 1])
                    shift = (overlap[other, axis] / 2 + 0.01) * (1 if apart[other, axis] >= 0 else -1)
                    points[other, axis] += shift
                    points[one, axis] -= shift
                    moved = True
        if not moved:
            return True
    return False
