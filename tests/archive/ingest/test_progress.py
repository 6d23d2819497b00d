"""The progress of a run, as another process reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.archive.ingest.progress import IngestProgress, read_progress
from tests.archive.engines import AnyStorage, Place


@pytest.fixture
def storage(place: Place) -> Iterator[AnyStorage]:
    opened = place.open()
    yield opened
    opened.close()


def test_progress_is_written_while_files_are_read_and_at_the_end(storage: AnyStorage, tmp_path: Path) -> None:
    now = [100.0]
    progress = IngestProgress(storage.key_values, "notes", tmp_path, wall=lambda: now[0])
    assert read_progress(storage.key_values, "notes") is None
    seen = []
    for _ in progress.over(range(4), 4):
        state = read_progress(storage.key_values, "notes")
        seen.append(state["done"] if state else None)
        now[0] += 0.75
    assert seen == [None, None, 2, 2]  # at most once a second
    progress.end(skipped=1)
    assert read_progress(storage.key_values, "notes") == {
        "collection": "notes",
        "folder": str(tmp_path),
        "done": 4,
        "total": 4,
        "started": 100.0,
        "updated": 103.0,
        "ended": True,
        "skipped": 1,
    }
