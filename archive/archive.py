"""The archive as its tools see it: one object that holds the parts they work with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.archive.code.access import AccessLog, Unnoted
from pointsman.archive.code.parser import ImportParser


@dataclass(frozen=True, slots=True)
class Archive:
    roots: Mapping[str, Path]  # the folders that the code tools may read, by name
    accesses: AccessLog = field(default_factory=Unnoted)
    imports: ImportParser = field(default_factory=ImportParser)  # starts with the first file; to be closed at the end
