"""A writer that is killed at any moment leaves a consistent store."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

from tests.archive.engines import Place
from tests.archive.sample_documents import fill, prepared
from tests.archive.store.agreement import assert_agrees

PROJECT = Path(__file__).parents[3]
DEATHS = 6
LONGEST_LIFE_S = 0.4


def test_a_store_agrees_with_itself_after_its_writer_was_killed(place: Place) -> None:
    chance = random.Random(11)
    for turn in range(DEATHS):
        _write_and_die(place, turn, chance.uniform(0, LONGEST_LIFE_S))
        storage = place.open()
        assert_agrees(storage)
        storage.housekeeper.tidy()
        assert_agrees(storage)
        fill(storage, prepared("after.md", "still writable"))
        storage.close()


def _write_and_die(place: Place, seed: int, life_s: float) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.archive.store.writer", str(seed)],
        cwd=PROJECT,
        env={**os.environ, **place.environment},
        stdout=subprocess.PIPE,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"writing\n"
    threading.Event().wait(life_s)  # the moment is the point
    assert writer.poll() is None
    writer.kill()
    writer.wait()
    writer.stdout.close()
