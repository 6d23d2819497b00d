"""What is wrong with a configuration: every problem with its position, key and reason, and the likely spelling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pointsman.core.escape import escaped


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing to fix. `str(problem)` is the line that a person reads."""

    file: str
    line: int | None  # from 1; None: the file as a whole
    column: int | None
    key: str  # such as `servers.time.args[0]`; empty: no key is concerned
    reason: str
    hint: str | None = None  # the spelling that was probably meant

    def __str__(self) -> str:
        position = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return escaped(f"{position}: {self.message}")

    @property
    def message(self) -> str:
        """Without the position."""
        subject = f"{self.key}: " if self.key else ""
        hint = f" (did you mean `{self.hint}`?)" if self.hint else ""
        return f"{subject}{self.reason}{hint}"


class ConfigError(Exception):
    """An invalid configuration, with all its problems in the order of the file."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def closest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that `word` probably stands for; `tool-permissions` and `toolPermissions` match, too."""
    by_spelling = {_normalized(choice): choice for choice in choices}
    import difflib  # only for a wrong word

    matches = difflib.get_close_matches(_normalized(word), by_spelling, n=1)
    return by_spelling[matches[0]] if matches else None


def _normalized(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")
