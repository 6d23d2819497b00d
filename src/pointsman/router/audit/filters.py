"""Which rows somebody wants to see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pointsman.router.audit.rows import Intent, Outcome

_BY_VALUE = ("token", "project", "tool_key", "server_id", "kind")


@dataclass(frozen=True, slots=True)
class Filter:
    """None wants all. The empty string wants none: no token, no project, no outcome yet."""

    since_ms: int | None = None
    until_ms: int | None = None
    token: str | None = None
    project: str | None = None
    tool_key: str | None = None
    server_id: str | None = None
    kind: str | None = None
    outcome: str | None = None
    code: str | None = None
    after_seq: int = 0
    also: frozenset[int] = frozenset()  # these, though they are not after `after_seq`

    def wants_intent(self, intent: Intent) -> bool:
        if intent.seq <= self.after_seq and intent.seq not in self.also:
            return False
        if self.since_ms is not None and intent.time_ms < self.since_ms:
            return False
        if self.until_ms is not None and intent.time_ms >= self.until_ms:
            return False
        return all(getattr(intent, name) == value for name, value in self._values())

    def wants_ending(self, outcome: Outcome | None) -> bool:
        if self.outcome is not None and self.outcome != (outcome.outcome if outcome else ""):
            return False
        return self.code is None or (outcome is not None and outcome.code == self.code)

    def conditions(self) -> tuple[str, list[Any]]:
        """For the database. An outcome that is not there may be in the journal, or be that of a run that is over."""
        also = sorted(self.also)
        listed = f" OR seq IN ({', '.join('?' * len(also))})" if also else ""
        clauses, arguments = [f"(seq > ?{listed})"], [self.after_seq, *also]
        for clause, value in self._clauses():
            clauses.append(clause)
            arguments.append(value)
        if self.outcome == "":
            clauses.append("outcome IS NULL")
        return " AND ".join(clauses), arguments

    def _clauses(self) -> list[tuple[str, Any]]:
        clauses: list[tuple[str, Any]] = [(f"{name} IS ?", value) for name, value in self._values()]
        if self.since_ms is not None:
            clauses.append(("time_ms >= ?", self.since_ms))
        if self.until_ms is not None:
            clauses.append(("time_ms < ?", self.until_ms))
        if self.outcome:
            clauses.append(("(outcome = ? OR outcome IS NULL)", self.outcome))
        if self.code is not None:
            clauses.append(("(code = ? OR outcome IS NULL)", self.code))
        return clauses

    def _values(self) -> list[tuple[str, str | None]]:
        given = ((name, getattr(self, name)) for name in _BY_VALUE)
        return [(name, value or None) for name, value in given if value is not None]
