"""Real texts."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def pages() -> list[str]:
    """Our own documentation."""
    return [path.read_text("utf-8") for path in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")))]
