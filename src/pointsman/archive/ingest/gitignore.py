"""Patterns with the syntax of .gitignore, and the rules of .gitignore files, with or without a repository."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

FILE_NAME = ".gitignore"
_MAX_BYTES = 1_000_000


class FilePatternError(ValueError):
    """A pattern is invalid."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The .gitignore of one folder. `prefix` is the folder's path below the ingested one: "", "a/b/"."""

    spec: GitIgnoreSpec
    prefix: str
    above: str = ""  # for a .gitignore above the ingested folder: the path from it down to that folder

    def verdict(self, path: str) -> bool | None:
        """True: ignored. False: included again by a `!` pattern. None: no pattern matches."""
        return self.spec.check_file(self.above + path.removeprefix(self.prefix)).include


def is_ignored(rules: Sequence[Rules], path: str) -> bool:
    """`path` is below the ingested folder; a folder ends with a slash. The nearest .gitignore that matches decides."""
    for each in reversed(rules):
        verdict = each.verdict(path)
        if verdict is not None:
            return verdict
    return False


def rules_in(folder: Path, prefix: str) -> Rules | None:
    spec = _read_spec(folder)
    return Rules(spec, prefix) if spec else None


def rules_above(root: Path) -> list[Rules]:
    """The rules of the folders above, up to the top of the repository; none outside of a repository.

    A .gitignore that ignores `root` itself does not apply: `root` was named explicitly.
    """
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    if top is None or top == root:
        return []
    found = []
    for folder in root.parents:
        spec = _read_spec(folder)
        path = f"{root.relative_to(folder).as_posix()}/"
        if spec and not spec.check_file(path).include:
            found.append(Rules(spec, "", path))
        if folder == top:
            break
    return found[::-1]


def _read_spec(folder: Path) -> GitIgnoreSpec | None:
    try:
        with (folder / FILE_NAME).open("rb") as file:
            text = file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return GitIgnoreSpec.from_lines(line for line in lines if _is_valid(line)) if lines else None


def _is_valid(line: str) -> bool:
    """Like git, skip an invalid pattern."""
    try:
        compile_patterns([line])
    except FilePatternError:
        return False
    return True


def compile_patterns(patterns: Sequence[str]) -> GitIgnoreSpec:
    """Raises FilePatternError."""
    try:
        return GitIgnoreSpec.from_lines(patterns)
    except ValueError:
        raise FilePatternError(
            f"Not a pattern: {', '.join(patterns)}. Write it as in .gitignore, like '*.md'."
        ) from None
