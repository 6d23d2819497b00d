"""Globs match what ripgrep's own match, but never bring back what was excluded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pointsman.archive.code.globs import Glob, GlobError
from tests.archive.code.trees import named, write

PATHS = (
    "a.ts",
    "a.tsx",
    "b.js",
    "src/a.ts",
    "src/server/auth/a.ts",
    "src/server/x.ts",
    "src/server.ts",
    "lib/src/a.ts",
    "src/A.TS",
    "src/[x].ts",
    "docs/a b.md",
)
PATTERNS = (
    *("**/*.ts", "*.ts", "src/**/*.ts", "src/*.ts", "src/server/**", "**/server/**", "**/a.*", "?.ts", "src/?.ts"),
    *("*.{ts,tsx}", "{src,lib}/**/*.ts", "**/{a,b}.{js,ts}", "[ab].*", "[!a].*", "**", "*", "src/**/a.ts", "**/auth/*"),
    *("src", "nothing/*.ts", "s*c/s*/*", "docs/a b.md", "./src/*.ts", "*a*", "**/src/**/a.ts"),
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("globs"), named(*PATHS))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_glob_fits_what_ripgrep_finds_with_it(tree: Path, pattern: str) -> None:
    rg = str(Path(sys.executable).parent / "rg")
    command = [rg, "--no-config", "--files", "--no-ignore", "--glob", pattern.removeprefix("./")]
    listed = subprocess.run(command, cwd=tree, capture_output=True, text=True).stdout.splitlines()
    glob = Glob(pattern)
    expected = set(listed) if pattern != "src" else set()  # to ripgrep a folder's name alone is all files in it
    assert {path for path in PATHS if glob.matches(path)} == expected


@pytest.mark.parametrize(
    "pattern",
    ["", "  ", "/etc/*", "../*", "src/../../*", "!*.ts", "a\\b", "[a", "{a,b", "a}", "x" * 1001, "a\nb", "{a,b}" * 7],
)
def test_a_glob_that_means_nothing_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(GlobError) as refused:
        Glob(pattern)
    assert str(refused.value)


@pytest.mark.parametrize(
    ("pattern", "hidden"), [("**/*.ts", False), (".github/**", True), ("**/.eslintrc*", True), ("*.{ts,.x}", False)]
)
def test_only_a_part_that_begins_with_a_dot_asks_for_hidden_files(pattern: str, hidden: bool) -> None:
    assert Glob(pattern).wants_hidden is hidden


def test_a_glob_full_of_stars_is_matched_all_the_same() -> None:
    assert not Glob("*a" * 200 + "b").matches("a" * 250)
    assert not Glob("**/a/" * 150 + "b").matches("a/" * 500 + "c")
