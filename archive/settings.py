"""What the gateway tells its archive, by environment variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DATABASE = "SEARCH_DB_PATH"
ROOTS = "POINTSMAN_ARCHIVE_ROOTS"


class BadSettings(ValueError):
    """A variable that cannot be understood; the message names it."""


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """One `bundled: archive` entry: its index and the folders it may read, by name."""

    database: Path | None
    roots: Mapping[str, Path]


def read_settings(environment: Mapping[str, str]) -> ArchiveSettings:
    database = environment.get(DATABASE)
    return ArchiveSettings(Path(database) if database else None, _roots(environment.get(ROOTS) or "{}"))


def _roots(text: str) -> dict[str, Path]:
    try:
        roots = json.loads(text)
    except ValueError:
        raise BadSettings(f'{ROOTS} is not JSON; it should read like {{"app": "/srv/app"}}') from None
    if not isinstance(roots, dict) or not all(isinstance(path, str) and path for path in roots.values()):
        raise BadSettings(f'{ROOTS} must map names to folders, like {{"app": "/srv/app"}}')
    return {name: Path(path) for name, path in roots.items()}
