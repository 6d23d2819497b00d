"""A progress bar on terminals; silent elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

import click

Item = TypeVar("Item")


class Bar:
    """Context manager that shows a progress bar on stderr."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: Any = None  # click's, which has no public name

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.render_finish()

    def update(self, done: int, total: int) -> None:
        if not sys.stderr.isatty():
            return
        if self._bar is None:
            self._bar = click.progressbar(length=total, label=self._label, file=sys.stderr, show_pos=True)
        self._bar.length = max(total, 1)
        self._bar.update(done - self._bar.pos)

    def over(self, items: Iterable[Item], total: int) -> Iterator[Item]:
        for done, item in enumerate(items):
            self.update(done, total)
            yield item
        self.update(total, total)
