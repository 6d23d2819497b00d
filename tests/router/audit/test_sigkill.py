"""A gateway that is killed under load loses nothing that it acknowledged."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.router.audit.compaction.compaction import auditing
from pointsman.router.audit.segments import FOLDER, Runs, list_segments
from tests.router.audit.busy import IN_FLIGHT
from tests.router.audit.samples import rows

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60


@contextmanager
def busy(state_dir: Path, every_s: float = 0.005) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.router.audit.busy", str(state_dir), str(every_s)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said_before_it_was_killed(state_dir: Path, after: int, every_s: float = 0.005) -> tuple[set[str], set[str]]:
    """Lets a run say `after` lines, kills it, and returns the calls it began and those it finished."""
    begun: set[str] = set()
    finished: set[str] = set()
    with busy(state_dir, every_s) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout):
            what, _, call = line.strip().partition(" ")
            (begun if what == "i" else finished).add(call)
            if number == after:
                process.kill()  # what is in the pipe is still read
    until_all_runs_have_ended(state_dir)
    return begun, finished


def until_all_runs_have_ended(state_dir: Path) -> None:
    """A run that is killed while it starts its mover: between fork and exec, that process has its lock, too."""
    deadline = time.monotonic() + PATIENCE_S
    while not all(map(Runs(state_dir / FOLDER).has_ended, Runs(state_dir / FOLDER))):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("seed", range(2))
async def test_sigkill_under_load_loses_no_row_and_doubles_none(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    begun: set[str] = set()
    finished: set[str] = set()
    for _ in range(3):
        more_begun, more_finished = said_before_it_was_killed(tmp_path, chance.randrange(1, 3000))
        begun |= more_begun
        finished |= more_finished

    found = rows(tmp_path)
    assert [row.seq for row in found] == list(range(1, len(found) + 1))
    endings = {row.request_id: row.outcome for row in found}
    assert Counter(row.request_id for row in found).most_common(1)[0][1] == 1
    assert begun <= endings.keys()
    assert {endings[call] for call in finished} == {"ok"}
    assert set(endings.values()) <= {"ok", "interrupted"}
    assert len(endings.keys() - finished) <= 3 * IN_FLIGHT

    async with auditing(tmp_path, CurrentConfig(GatewayConfig())):  # the next run takes over what they left
        pass
    assert rows(tmp_path) == found
    assert len(list_segments(tmp_path / FOLDER)) == 1  # its own, which says where seq goes on


async def test_sigkill_while_a_process_moves_a_long_journal_loses_no_row_and_doubles_none(tmp_path: Path) -> None:
    chance = random.Random(1)
    begun: set[str] = set()
    finished: set[str] = set()
    for _ in range(3):  # the process of one run may still be at work when the next one starts
        after = chance.randrange(20_000, 40_000)
        more_begun, more_finished = said_before_it_was_killed(tmp_path, after, every_s=0.2)
        begun |= more_begun
        finished |= more_finished
    found = rows(tmp_path)
    endings = {row.request_id: row.outcome for row in found}
    assert [row.seq for row in found] == list(range(1, len(found) + 1))
    assert len(endings) == len(found)
    assert begun <= endings.keys()
    assert {endings[call] for call in finished} == {"ok"}
    async with auditing(tmp_path, CurrentConfig(GatewayConfig())):
        pass
    assert rows(tmp_path) == found


def test_rows_can_be_read_while_they_are_written_and_moved(tmp_path: Path) -> None:
    with busy(tmp_path) as process:
        assert process.stdout is not None
        for _ in range(8):
            for _ in range(200):
                process.stdout.readline()
            found = rows(tmp_path)
            assert [row.seq for row in found] == list(range(1, len(found) + 1))
            assert {row.outcome for row in found[: -2 * IN_FLIGHT]} <= {"ok"}
            assert "interrupted" not in {row.outcome for row in found}
