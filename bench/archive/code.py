"""`python -m bench.archive.code [FOLDER]`: the code tools on a real tree, grep beside plain ripgrep in the same run.

The tree is the libraries of our own environment, unless a folder is named. Prints figures and asserts none.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pointsman.archive.archive import Archive
from pointsman.archive.code.imports.syntax import grammar_of
from pointsman.archive.tools.base import Call, ToolError
from pointsman.archive.tools.codebase import GREP_CODEBASE, READ_FILE

ROUNDS = 15
FILES = 300
SEARCHES: tuple[tuple[str, str | None], ...] = (
    ("jwt\\.sign", None),
    ("def __enter__", None),
    ("class \\w+Error", "**/*.py"),
    ("import", None),
    ("TODO|FIXME", None),
    ("no such text anywhere", None),
    ("interface.*Context", "**/*.pyi"),
)


def main(tree: Path) -> None:
    archive = Archive({"tree": tree})
    try:
        _grep(archive, tree)
        _read(archive, tree)
    finally:
        archive.imports.close()


def _grep(archive: Archive, tree: Path) -> None:
    print(f"grep_codebase in ms, beside plain `rg` that prints to a pipe, {ROUNDS} rounds each")
    head = f"{'files':>8}{'matches':>9}{'p50':>7}{'p95':>7}{'cpu':>7}{'rg p50':>9}{'p95':>7}{'cpu':>7}{'cpu ratio':>11}"
    print(f"  {'pattern':24}{head}")
    rg = str(Path(sys.executable).parent / "rg")
    everything: list[float] = []
    for pattern, glob in SEARCHES:
        asked: dict[str, Any] = {"pattern": pattern} | ({"filePattern": glob} if glob else {})
        command = [rg, "--no-config", "-i", "-n", *(["-g", glob] if glob else []), "-e", pattern, "."]
        answer = GREP_CODEBASE.run(archive, asked, Call())
        mine, plain = [], []
        for _ in range(ROUNDS):  # in turns, so that both see the same machine
            mine.append(_timed(partial(GREP_CODEBASE.run, archive, asked, Call())))
            plain.append(_timed(partial(_plain, command, tree)))
        everything += [wall for wall, _ in mine]
        found = f"{answer['totalMatches']}{'+' if answer.get('totalCapped') else ''}"
        ratio = min(cpu for _, cpu in mine) / min(cpu for _, cpu in plain)
        print(
            f"  {pattern:24}{answer['filesSearched']:8,}{found:>9}{_row(mine)}  {_row(plain)}{ratio:11.2f}", flush=True
        )
    print(f"  all: p50 {_part(everything, 0.5):.0f}, p95 {_part(everything, 0.95):.0f}")


def _row(times: list[tuple[float, float]]) -> str:
    walls = [wall for wall, _ in times]
    return f"{_part(walls, 0.5):7.0f}{_part(walls, 0.95):7.0f}{min(cpu for _, cpu in times):7.0f}"


def _read(archive: Archive, tree: Path) -> None:
    paths = [
        path
        for folder, _, names in os.walk(tree)
        for path in (os.path.relpath(os.path.join(folder, name), tree) for name in names)
        if grammar_of(path)
    ]
    chosen = random.Random(7).sample(sorted(paths), min(FILES, len(paths)))
    print(f"read_file in ms, {len(chosen)} source files of {len(paths):,}; the second time what they import is known")
    for name, deps in (("alone", False), ("with dependencies, first", True), ("with dependencies, again", True)):
        times, found, refused = [], 0, 0
        for path in chosen:
            began = time.perf_counter()
            try:
                answer = READ_FILE.run(archive, {"path": path, "includeDeps": deps}, Call())
                found += len(answer["dependencies"])
            except ToolError:
                refused += 1
            times.append((time.perf_counter() - began) * 1000)
        figures = "".join(f"  p{part * 100:.0f} {_part(times, part):.1f}" for part in (0.5, 0.95, 0.99))
        print(f"  {name:26}{figures}  worst {max(times):.1f}   {found} dependencies, {refused} errors", flush=True)


def _plain(command: list[str], tree: Path) -> None:
    subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, check=False)


def _timed(do: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds on the wall, and of CPU: ours and that of children."""
    began, spent = time.perf_counter(), _cpu()
    do()
    return (time.perf_counter() - began) * 1000, (_cpu() - spent) * 1000


def _cpu() -> float:
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _part(times: list[float], part: float) -> float:
    return sorted(times)[int(len(times) * part)]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(sysconfig.get_path("purelib")))
