"""Charts as SVG, drawn by the server. Colours are classes of the stylesheet, so that they follow the theme."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log10

from markupsafe import Markup, escape

WIDTH, HEIGHT = 440, 150
LEFT, BOTTOM, TOP = 46, 20, 8
_AREA_W, _AREA_H = WIDTH - LEFT, HEIGHT - BOTTOM - TOP


def bars(values: Sequence[tuple[int, int]], *, label: str, first: str, last: str) -> Markup:
    """Bars of `(all, bad)`; the bad part is drawn at the foot of its bar. `first` and `last` name the ends."""
    top = nice_top(max((total for total, _ in values), default=0))
    step = _AREA_W / max(len(values), 1)
    drawn = []
    for index, (total, bad) in enumerate(values):
        x, width = LEFT + index * step + step * 0.12, step * 0.76
        for amount, name in ((total, "bar"), (bad, "bar-bad")):
            if amount:
                height = max(amount / top * _AREA_H, 1.5)
                y = TOP + _AREA_H - height
                drawn.append(
                    f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
                )
    return _chart(label, top, "", first, last, "".join(drawn))


def lines(
    series: Sequence[tuple[str, Sequence[float | None]]], *, label: str, unit: str, first: str, last: str
) -> Markup:
    """One line for each `(class, values)`; None is a gap."""
    top = nice_top(max((value for _, values in series for value in values if value is not None), default=0))
    drawn = []
    for name, values in series:
        step = _AREA_W / max(len(values), 1)
        run: list[str] = []
        for index, value in enumerate([*values, None]):
            if value is not None:
                run.append(f"{LEFT + (index + 0.5) * step:.1f},{TOP + _AREA_H - value / top * _AREA_H:.1f}")
            elif run:
                drawn.append(_run(name, run))
                run = []
    return _chart(label, top, unit, first, last, "".join(drawn))


def nice_top(most: float) -> float:
    """The end of the axis: 1, 2 or 5 times a power of ten, and at least 1."""
    if most <= 1:
        return 1.0
    power = 10 ** int(log10(most))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= most))


def _run(name: str, points: Sequence[str]) -> str:
    if len(points) == 1:
        x, y = points[0].split(",")
        return f'<circle class="dot {escape(name)}" cx="{x}" cy="{y}" r="2.5"/>'
    return f'<polyline class="line {escape(name)}" points="{" ".join(points)}"/>'


def _chart(label: str, top: float, unit: str, first: str, last: str, drawn: str) -> Markup:
    grid = []
    for share in (0.0, 0.5, 1.0):
        y = TOP + _AREA_H * (1 - share)
        value = top * share
        text = f"{value:,.0f}" if value == ceil(value) else f"{value:.1f}"
        grid.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        grid.append(f'<text class="axis" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}{escape(unit)}</text>')
    foot = HEIGHT - 4
    if not drawn:
        x, y = LEFT + _AREA_W / 2, TOP + _AREA_H / 2
        drawn = (
            f'<text class="nothing" x="{x:.0f}" y="{y - 6:.0f}" text-anchor="middle">Nothing in the last hour</text>'
        )
    return Markup(  # noqa: S704 - numbers, and texts that are escaped here
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{''.join(grid)}{drawn}"
        f'<text class="axis" x="{LEFT}" y="{foot}">{escape(first)}</text>'
        f'<text class="axis" x="{WIDTH}" y="{foot}" text-anchor="end">{escape(last)}</text></svg>'
    )
