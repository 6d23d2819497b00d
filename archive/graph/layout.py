"""Where the boxes of a graph go: near to what they are joined with, and never one over another. The same every time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

_STEPS = 400
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
_WIDER = 1.7  # boxes are wide, and so is a page
_MARGIN = np.array([18.0, 16.0])  # between two boxes
_PUSHES = 400


def placed(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Numbers:
    """The middle of each box, given their widths and heights. Those that come first begin in the centre."""
    boxes = np.array(sizes, dtype=float).reshape(-1, 2)
    points: Numbers = _pulled(_spiral(len(boxes)), edges) * np.array([_WIDER, 1.0])
    spread = math.sqrt(float((boxes + _MARGIN).prod(axis=1).sum())) if len(boxes) else 0.0
    extent = float(np.abs(points).max()) if len(points) else 0.0
    points *= 1.1 * spread / extent if extent else 1.0
    while not _pushed_apart(points, boxes + _MARGIN):
        points *= 1.1
    return points


def _spiral(count: int) -> Numbers:
    turns = np.arange(count) * _GOLDEN_ANGLE
    points: Numbers = np.sqrt(np.arange(count) + 0.5)[:, None] * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    return points


def _pulled(points: Numbers, edges: Sequence[tuple[int, int]]) -> Numbers:
    """Springs along the edges, everything else repels, and a weak pull to the middle keeps it on the page."""
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


def _pushed_apart(points: Numbers, boxes: Numbers) -> bool:
    """Move boxes that overlap, each by half and the shorter way, in place. False: some still do."""
    for _ in range(_PUSHES):
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
