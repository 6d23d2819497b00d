"""What callers executed soon after a discovery, as the audit recorded it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pointsman.router.audit.query import Filter, Source, read_calls

WITHIN_MS = 5 * 60 * 1000  # after the discovery
WITHIN_ROWS = 20  # of the same caller
MOST_OPEN = 20  # discoveries of one caller; older ones have had their rows

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


def read_choices(source: Source, since_ms: int | None, most: int) -> list[Choice]:
    """The latest discoveries that were followed by a call, oldest first, and each request of a project once.

    Raises as `read_rows`.
    """
    chosen: dict[tuple[str | None, tuple[str, ...]], Choice] = {}
    open_: dict[_Caller, deque[Choice]] = {}
    for intent, outcome in read_calls(source, Filter(since_ms=since_ms)):
        if intent.kind not in ("discovery", "execute") or outcome is None or outcome.outcome != "ok":
            continue
        waiting = open_.setdefault((intent.token, intent.project), deque(maxlen=MOST_OPEN))
        for choice in list(waiting):
            choice.rows += 1
            if choice.rows > WITHIN_ROWS or intent.time_ms - choice.time_ms > WITHIN_MS:
                waiting.remove(choice)
            elif intent.kind == "execute" and intent.tool_key is not None:
                if intent.tool_key not in choice.tool_keys:
                    choice.tool_keys.append(intent.tool_key)
                request = (choice.project, choice.queries)
                chosen.pop(request, None)  # the latest counts, and comes last
                chosen[request] = choice
        if intent.kind == "discovery" and intent.queries:
            waiting.append(Choice(intent.time_ms, intent.token, intent.project, tuple(intent.queries)))
    return list(chosen.values())[-most:]
