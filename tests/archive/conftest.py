"""An empty store, closed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.archive.store.sqlite.storage import SqliteStorage


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    storage = SqliteStorage(tmp_path / "archive.db")
    yield storage
    storage.close()
