"""What may fail, and why: read from `expected-failures.yml`."""

from __future__ import annotations

from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from ruamel.yaml import YAML

FILE = Path(__file__).parent / "expected-failures.yml"


@cache
def sections() -> dict[str, dict[str, str]]:
    """Patterns over the names of runs; in each, `scenario` or `scenario:check` with the reason."""
    found: dict[str, dict[str, str]] = YAML(typ="safe").load(FILE)
    return found


def expected(run: str) -> dict[str, str]:
    """All that may fail in a run such as `flat legacy sdk 2026-07-28`."""
    return {name: why for pattern, known in sections().items() if fnmatch(run, pattern) for name, why in known.items()}
