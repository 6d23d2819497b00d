"""What is wrong with a configuration: every problem with its place, its key, the reason and the near right word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing to mend. `str(problem)` is the line that a person reads."""

    file: str
    line: int | None  # from 1; None where the file as a whole is meant
    column: int | None
    key: str  # as in `servers.time.args[0]`; empty where no key is concerned
    reason: str
    hint: str | None = None  # the spelling that was probably meant

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return f"{place}: {self.complaint}"

    @property
    def complaint(self) -> str:
        """Without the place."""
        subject = f"{self.key}: " if self.key else ""
        near = f" (did you mean `{self.hint}`?)" if self.hint else ""
        return f"{subject}{self.reason}{near}"


class ConfigError(Exception):
    """A configuration that cannot be used. Carries all its problems, in the order of the file."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def near(word: str, choices: Iterable[str]) -> str | None:
    """The choice that `word` was probably meant to be: `tool-permissions` and `toolPermissions` find theirs too."""
    by_shape = {_shape(choice): choice for choice in choices}
    matches = difflib.get_close_matches(_shape(word), by_shape, n=1)
    return by_shape[matches[0]] if matches else None


def _shape(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")
