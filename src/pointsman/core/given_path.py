"""The type of an option that names a file or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


class GivenPath(click.Path):
    """Rejects an empty path, as of a variable that is not set: it would stand for the current folder."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(path_type=Path, file_okay=file_okay)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty. Name a path, or leave the option away.", param, ctx)
        return super().convert(value, param, ctx)
