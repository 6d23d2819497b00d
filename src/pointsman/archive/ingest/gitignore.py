"""What .gitignore files leave out, as git reads them; a repository is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

FILE_NAME = ".gitignore"
_MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Rules:
    """The .gitignore of one folder. `prefix` is where the folder lies, seen from the one that is read: "", "a/b/"."""

    spec: GitIgnoreSpec
    prefix: str
    above: str = ""  # the way from the .gitignore down to the folder that is read, where it lies above that one

    def verdict(self, path: str) -> bool | None:
        """True: ignored. False: taken back in. None: it does not say."""
        return self.spec.check_file(self.above + path.removeprefix(self.prefix)).include


def ignored(rules: Sequence[Rules], path: str) -> bool:
    """`path` below the folder that is read, a folder with a slash at its end. The nearest file that speaks decides."""
    for each in reversed(rules):
        verdict = each.verdict(path)
        if verdict is not None:
            return verdict
    return False


def rules_in(folder: Path, prefix: str) -> Rules | None:
    spec = _spec(folder)
    return Rules(spec, prefix) if spec else None


def rules_above(root: Path) -> list[Rules]:
    """Of the folders above, up to the top of the repository that `root` lies in; none outside of one.

    One that ignores `root` itself has no say: whoever names an ignored folder wants what is in it.
    """
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    if top is None or top == root:
        return []
    found = []
    for folder in root.parents:
        spec = _spec(folder)
        way = f"{root.relative_to(folder).as_posix()}/"
        if spec and not spec.check_file(way).include:
            found.append(Rules(spec, "", way))
        if folder == top:
            break
    return found[::-1]


def _spec(folder: Path) -> GitIgnoreSpec | None:
    try:
        with (folder / FILE_NAME).open("rb") as file:
            text = file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return GitIgnoreSpec.from_lines(line for line in lines if _understood(line)) if lines else None


def _understood(line: str) -> bool:
    """A pattern that is broken is passed over, as git does."""
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True
