"""Files and folders are replaced by links while the guard reads: nothing from outside is ever returned."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pointsman.archive.code.guard import AccessDeniedError, PathNotFoundError, read
from tests.archive.code.trees import write

READS = 1_000
SWAPS = 100
INSIDE = b"inside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "outside", {"file.txt": "outside", "deeper/file.txt": "outside"})
    return write(
        tmp_path / "root",
        {"file.txt": "inside", "folder/file.txt": "inside", "folder/deeper/file.txt": "inside", ".env": "secret"},
    )


def exchange(name: str, *targets: str) -> Callable[[Path], Iterator[None]]:
    """Puts, in turn, links to the targets and the real thing in the place of a file or folder."""

    def turns(root: Path) -> Iterator[None]:
        real, spare = root / name, root / "spare"
        real.rename(spare)
        while True:
            for target in targets:
                real.symlink_to(target)
                yield
                real.unlink()
            spare.rename(real)
            yield
            real.rename(spare)

    return turns


def pipe_for_file(root: Path) -> Iterator[None]:
    real, spare = root / "file.txt", root / "spare"
    while True:
        real.rename(spare)
        os.mkfifo(real)
        yield
        real.unlink()
        spare.rename(real)
        yield


def moved_away(root: Path) -> Iterator[None]:
    """The folder that is being walked leaves the root, so that its `..` is another."""
    while True:
        (root / "folder").rename(root.parent / "outside" / "folder")
        yield
        (root.parent / "outside" / "folder").rename(root / "folder")
        yield


@contextmanager
def swapping(root: Path, turns: Callable[[Path], Iterator[None]]) -> Iterator[Callable[[], bool]]:
    """The guard may go on being tried while this is true."""
    stop = threading.Event()
    done = 0

    def work() -> None:
        nonlocal done
        for _ in turns(root):
            done += 1
            if stop.is_set():
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield lambda: done < SWAPS and thread.is_alive()
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("turns", "path"),
    [
        (exchange("file.txt", "../outside/file.txt", ".env", "folder/file.txt"), "file.txt"),
        (exchange("folder", "../outside"), "folder/file.txt"),
        (exchange("folder", "../outside"), "folder/deeper/../file.txt"),
        (exchange("folder/deeper", "../../outside", "../../outside/deeper"), "folder/deeper/file.txt"),
        (pipe_for_file, "file.txt"),
        (moved_away, "folder/deeper/../../file.txt"),
    ],
    ids=["file", "folder", "folder-and-back", "half-way", "pipe", "moved-away"],
)
def test_swapping_links_never_leads_out(root: Path, turns: Callable[[Path], Iterator[None]], path: str) -> None:
    seen: set[bytes | None] = set()
    with swapping(root, turns) as still_swapping:
        count = 0
        while count < READS or still_swapping():
            count += 1
            try:
                seen.add(read(root, path).content)
            except (AccessDeniedError, PathNotFoundError):
                seen.add(None)
    assert seen <= {INSIDE, None}
