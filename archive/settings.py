"""What the gateway tells its archive, by environment variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

DATABASE = "SEARCH_DB_PATH"
ROOTS = "POINTSMAN_ARCHIVE_ROOTS"
EMBEDDINGS = "POINTSMAN_ARCHIVE_EMBEDDINGS"
URL, MODEL, KEY, DIMENSIONS = (f"{EMBEDDINGS}_{name}" for name in ("URL", "MODEL", "KEY", "DIMENSIONS"))

Provider = Literal["static", "openai-compatible", "none"]


class BadSettings(ValueError):
    """A variable that cannot be understood; the message names it."""


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """Who turns texts into vectors. The rest is for `openai-compatible`."""

    provider: Provider = "static"
    url: str | None = None
    model: str | None = None
    key: str | None = field(default=None, repr=False)
    dimensions: int | None = None


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """One `bundled: archive` entry: its index and the folders it may read, by name."""

    database: Path | None
    roots: Mapping[str, Path]
    embeddings: EmbeddingSettings = EmbeddingSettings()


def read_settings(environment: Mapping[str, str]) -> ArchiveSettings:
    database = environment.get(DATABASE)
    return ArchiveSettings(
        Path(database) if database else None, _roots(environment.get(ROOTS) or "{}"), read_embeddings(environment)
    )


def read_embeddings(environment: Mapping[str, str]) -> EmbeddingSettings:
    """Raises BadSettings."""
    provider = environment.get(EMBEDDINGS) or "static"
    if provider not in get_args(Provider):
        raise BadSettings(f"{EMBEDDINGS} is `{provider}`; it must be one of {', '.join(get_args(Provider))}")
    if provider != "openai-compatible":
        return EmbeddingSettings(provider)  # type: ignore[arg-type]
    url, model = environment.get(URL), environment.get(MODEL)
    if not url or urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise BadSettings(f"{EMBEDDINGS}=openai-compatible needs {URL}, like http://127.0.0.1:8080/v1")
    if not model:
        raise BadSettings(f"{EMBEDDINGS}=openai-compatible needs {MODEL}, the name of the server's model")
    return EmbeddingSettings(
        "openai-compatible", url, model, environment.get(KEY) or None, _dimensions(environment.get(DIMENSIONS))
    )


def _dimensions(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= 16_384:
        raise BadSettings(f"{DIMENSIONS} is `{text[:40]}`; it must be a number from 1 to 16384")
    return int(text)


def _roots(text: str) -> dict[str, Path]:
    try:
        roots = json.loads(text)
    except ValueError:
        raise BadSettings(f'{ROOTS} is not JSON; it should read like {{"app": "/srv/app"}}') from None
    if not isinstance(roots, dict) or not all(isinstance(path, str) and path for path in roots.values()):
        raise BadSettings(f'{ROOTS} must map names to folders, like {{"app": "/srv/app"}}')
    return {name: Path(path) for name, path in roots.items()}
