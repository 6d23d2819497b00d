"""The archive as its tools see it: one object that holds the parts they work with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Archive:
    roots: Mapping[str, Path]  # the folders that the code tools may read, by name
