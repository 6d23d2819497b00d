"""The archive's settings, which the gateway passes in environment variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from pointsman.archive.embedding.settings import EmbeddingSettings, read_embeddings
from pointsman.archive.indexes.indexes import IndexLimits
from pointsman.core.extras import install_command, postgres_is_installed

DATABASE = "SEARCH_DB_PATH"
SCHEMA = "SEARCH_DB_SCHEMA"
DEFAULT_SCHEMA = "pointsman_archive"
ROOTS = "POINTSMAN_ARCHIVE_ROOTS"
RATE_LIMITS = "POINTSMAN_ARCHIVE_RATE_LIMITS"
INDEX_LIMITS = "POINTSMAN_ARCHIVE_INDEX_LIMITS"

DEFAULT_RATE_LIMITS: Mapping[str, int] = MappingProxyType({"context_search": 30, "read_file": 100, "grep_codebase": 60})


@dataclass(frozen=True, slots=True)
class PostgresStore:
    """A store in PostgreSQL: `schema` is the namespace of its tables."""

    url: str = field(repr=False)  # may have a password
    schema: str

    def __str__(self) -> str:
        """Without the password and the options."""
        address = urlsplit(self.url)
        user = f"{address.username}@" if address.username else ""
        return f"{address.scheme}://{user}{address.netloc.rpartition('@')[2]}{address.path}, schema {self.schema}"


class SettingsError(ValueError):
    """An invalid environment variable; the message names it."""


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """The settings of one `bundled: archive` entry."""

    database: Path | PostgresStore | None
    roots: Mapping[str, Path]
    # Calls a minute for each caller, by tool; 0: unlimited.
    rate_limits: Mapping[str, int] = field(default_factory=lambda: DEFAULT_RATE_LIMITS)
    index_limits: IndexLimits = field(default_factory=IndexLimits)
    embeddings: EmbeddingSettings = field(default_factory=EmbeddingSettings)


def read_settings(environment: Mapping[str, str]) -> ArchiveSettings:
    return ArchiveSettings(
        _database(environment),
        _roots(_object(environment, ROOTS, '{"app": "/srv/app"}')),
        _rate_limits(environment),
        _index_limits(environment),
        _embeddings(environment),
    )


def _database(environment: Mapping[str, str]) -> Path | PostgresStore | None:
    named = environment.get(DATABASE)
    if not named:
        return None
    if not is_postgres(named):
        return Path(named)
    if not postgres_is_installed():
        raise SettingsError(
            f"{DATABASE} is an address of PostgreSQL, whose driver is not installed; "
            f"install it with `{install_command('postgres')}`"
        )
    from pointsman.core.postgres import check_address

    try:
        return PostgresStore(check_address(named), environment.get(SCHEMA) or DEFAULT_SCHEMA)
    except ValueError as error:
        raise SettingsError(f"{DATABASE} {error}") from None


def is_postgres(named: str) -> bool:
    return named.startswith(("postgresql://", "postgres://"))


def _embeddings(environment: Mapping[str, str]) -> EmbeddingSettings:
    try:
        return read_embeddings(environment)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _roots(roots: Mapping[str, Any]) -> dict[str, Path]:
    if not all(isinstance(path, str) and path for path in roots.values()):
        raise SettingsError(f'{ROOTS} must map names to folders, like {{"app": "/srv/app"}}')
    return {name: Path(path) for name, path in roots.items()}


def _rate_limits(environment: Mapping[str, str]) -> dict[str, int]:
    example = '{"context_search": 30, "grep_codebase": 0}'
    given = _object(environment, RATE_LIMITS, example)
    for tool, limit in given.items():
        if not _is_count(limit):
            raise SettingsError(
                f"{RATE_LIMITS}: `{tool}` must be a number of calls a minute (0: unlimited), like {example}"
            )
    return {**DEFAULT_RATE_LIMITS, **given}


def _index_limits(environment: Mapping[str, str]) -> IndexLimits:
    known = asdict(IndexLimits())
    given = _object(environment, INDEX_LIMITS, json.dumps(known))
    for name, limit in given.items():
        if name not in known or not _is_count(limit):
            raise SettingsError(f"{INDEX_LIMITS} must have integers, like {json.dumps(known)}; got `{name}`: {limit!r}")
    return IndexLimits(**{**known, **given})


def _object(environment: Mapping[str, str], name: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(environment.get(name) or "{}")
    except ValueError:
        raise SettingsError(f"{name} is not JSON; expected a value like {example}") from None
    if not isinstance(value, dict):
        raise SettingsError(f"{name} must be a JSON object, like {example}")
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
