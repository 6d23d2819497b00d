"""Reads `collection.yaml`, the description of a collection at the top of its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from pointsman.archive.model.documents import Manifest
from pointsman.archive.text.front_matter import FrontMatterError, read_yaml

FILE_NAMES = ("collection.yaml", "collection.yml")
_MAX_BYTES = 65_536

Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]


class ManifestError(ValueError):
    """`collection.yaml` or an option that overrides it is invalid; the message says which, and why."""


class ManifestFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    name: Name | None = None
    alias: Name | None = None
    version: Annotated[str, Field(max_length=100)] | None = None
    description: Annotated[str, Field(max_length=2_000)] | None = None

    @field_validator("name", "alias")
    @classmethod
    def _one_line(cls, value: str | None) -> str | None:
        if value is not None and not value.isprintable():
            raise ValueError("may contain printable characters only")
        return value


def read_manifest(folder: Path) -> ManifestFile:
    """The content of the file; empty if there is none. Raises ManifestError."""
    for name in FILE_NAMES:
        path = folder / name
        try:
            with path.open("rb") as file:
                raw = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ManifestError(f"{path} cannot be read: {error.strerror}.") from None
        if len(raw) > _MAX_BYTES:
            raise ManifestError(f"{path} is larger than {_MAX_BYTES} bytes.")
        try:
            return validate(read_yaml(raw.decode("utf-8")), str(path))
        except UnicodeDecodeError:
            raise ManifestError(f"{path} is not UTF-8.") from None
        except FrontMatterError as error:
            raise ManifestError(f"{path}: {error}.") from None
    return ManifestFile()


def validate(values: dict[str, Any], where: str) -> ManifestFile:
    """Raises ManifestError."""
    try:
        return ManifestFile.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        known = "" if first["type"] != "extra_forbidden" else f" Known keys: {', '.join(ManifestFile.model_fields)}."
        raise ManifestError(f"{where}: `{key}`: {first['msg']}.{known}") from None


def merge_manifests(options: ManifestFile, written: ManifestFile, stored: Manifest | None, name: str) -> Manifest:
    """Options override the file, and the file overrides what is stored."""
    return Manifest(
        name=name,
        alias=options.alias or written.alias or (stored.alias if stored else None),
        version=options.version or written.version or (stored.version if stored else None),
        description=options.description or written.description or (stored.description if stored else None),
    )
