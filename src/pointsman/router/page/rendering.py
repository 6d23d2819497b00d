"""Renders the templates. All text is escaped, wherever it comes from; a name that a template lacks is an error."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pointsman import __version__
from pointsman.core.escape import escaped, escaped_lines
from pointsman.router.page.registry import Screen
from pointsman.router.page.static import StaticFiles


class Renderer:
    def __init__(self, static: StaticFiles, screens: Sequence[Screen]) -> None:
        self._environment = Environment(
            loader=PackageLoader("pointsman.router.page", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals.update(static=static.url, screens=screens, version=__version__, plural=plural)
        self._environment.filters.update(
            number=number,
            short=short,
            moment=moment,
            ms=milliseconds,
            ago=ago,
            prose=prose,
            line=escaped,
            lines=escaped_lines,
            cut=cut,
            size=size,
        )

    def render(self, template: str, **context: Any) -> str:
        return self._environment.get_template(template).render(context)


def cut(text: str, most: int) -> str:
    """The beginning of a foreign text as one line, with control characters escaped."""
    line = escaped(" ".join(text[: 4 * most].split()))
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1]}…"


def size(count: float) -> str:
    """Bytes in a unit that a person reads: 812 bytes, 12.3 KB, 4.5 MB."""
    for limit, unit in ((1e6, "MB"), (1e3, "KB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count:.0f} bytes"


def number(value: float) -> str:
    return f"{value:,.0f}"


def short(value: float) -> str:
    """A large number in few characters: 1,234, 12.3k, 4.5M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.1f}{unit}"
    return f"{value:,.0f}"


def milliseconds(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:.0f} s"
    if value >= 1000:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def moment(time_ms: float) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(seconds: float) -> str:
    """A duration in its largest unit."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def prose(text: str) -> Markup:
    """A sentence in which `words` between backticks are code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # one of them stands alone
        return escape(text)
    marked = [
        Markup("<code>{}</code>").format(piece) if index % 2 else escape(piece) for index, piece in enumerate(pieces)
    ]
    return Markup("").join(marked)


def plural(count: int, word: str, several: str = "") -> str:
    return f"{count:,} {word if count == 1 else several or word + 's'}"
