"""What may fail, and why: read from `expected-failures.yml`."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

from ruamel.yaml import YAML

FILE = Path(__file__).parent / "expected-failures.yml"


def expected(run: str) -> dict[str, str]:
    """`scenario` or `scenario:check` with its reason, for a run such as `flat legacy sdk 2026-07-28`."""
    sections: Mapping[str, Mapping[str, str]] = YAML(typ="safe").load(FILE) or {}
    found: dict[str, str] = {}
    for pattern, entries in sections.items():
        if not fnmatch(run, pattern):
            continue
        for name, why in entries.items():
            if not why or not why.strip():
                raise ValueError(f"{FILE.name}: `{name}` under `{pattern}` does not say why")
            found[name] = why
    return found
