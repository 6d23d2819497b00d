"""What callers executed soon after a discovery, as the audit recorded it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pointsman.router.audit.query import Filter, Source, read_calls
from pointsman.router.audit.redaction import is_cut

WITHIN_MS = 5 * 60 * 1000  # after the discovery
WITHIN_ROWS = 20  # of the same caller

_Caller = tuple[str | None, str | None]  # token and project


@dataclass(slots=True)
class Choice:
    """A discovery, and the tools that its caller executed with success after it."""

    time_ms: int
    token: str | None
    project: str | None
    queries: tuple[str, ...]
    tool_keys: list[str] = field(default_factory=list)
    rows: int = 0  # of the caller since then

    @property
    def cut(self) -> bool:
        """Whether the audit has only a part of the request."""
        return is_cut(self.queries)


def read_choices(source: Source, since_ms: int | None, most: int) -> list[Choice]:
    """The latest discoveries that were followed by a call, oldest first, and each request of a project once.

    A call counts for the latest discovery of its caller, if that listed any tools: the audit does not know which ones.

    Raises as `read_rows`.
    """
    chosen: dict[tuple[str | None, tuple[str, ...]], Choice] = {}
    latest: dict[_Caller, Choice] = {}
    for intent, outcome in read_calls(source, Filter(since_ms=since_ms)):
        caller = (intent.token, intent.project)
        if intent.kind == "discovery":
            latest.pop(caller, None)  # what follows is for this one, also if it listed nothing
        if intent.kind not in ("discovery", "execute") or outcome is None or outcome.outcome != "ok":
            continue
        if intent.kind == "discovery" and intent.queries and outcome.results != 0:
            latest[caller] = Choice(intent.time_ms, intent.token, intent.project, tuple(intent.queries))
            continue
        choice = latest.get(caller)
        if choice is None:
            continue
        choice.rows += 1
        if choice.rows > WITHIN_ROWS or intent.time_ms - choice.time_ms > WITHIN_MS:
            del latest[caller]
        elif intent.tool_key is not None:
            if intent.tool_key not in choice.tool_keys:
                choice.tool_keys.append(intent.tool_key)
            request = (choice.project, choice.queries)
            chosen.pop(request, None)  # the latest counts, and comes last
            chosen[request] = choice
    return list(chosen.values())[-most:]
