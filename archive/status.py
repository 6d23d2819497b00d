"""What the archive can do at present. Names of roots are told, places on the disk are not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import pointsman
from pointsman.archive.settings import ArchiveSettings

NO_SEARCH_YET = "This version of the archive has no search tools yet; it only reports its status."


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    version: str
    searchable: bool
    message: str
    database: Literal["not configured", "missing", "present"]
    roots: dict[str, Literal["missing", "present"]]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read_status(settings: ArchiveSettings) -> ArchiveStatus:
    """Look at the disk now: a folder may have been mounted since the last call."""
    if settings.database is None:
        database: Literal["not configured", "missing", "present"] = "not configured"
    else:
        database = "present" if settings.database.is_file() else "missing"
    return ArchiveStatus(
        version=pointsman.__version__,
        searchable=False,
        message=NO_SEARCH_YET,
        database=database,
        roots={name: "present" if path.is_dir() else "missing" for name, path in settings.roots.items()},
    )
