"""What a discovery says about the servers that it had to leave out: one sentence for each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

Gap = Literal["starting", "failed", "timeout", "cut", "unreadable"]

MAX_NAMED = 20  # servers in one sentence, for the model reads it with every answer

_SENTENCES: Mapping[Gap, str] = {
    "starting": "Still starting, so without its tools for now: {}.",
    "failed": "Not working at the moment, so without its tools: {}.",
    "timeout": "Did not list its tools in time, so without them: {}.",
    "cut": "Has more tools than can be listed, so only with the first of them: {}.",
    "unreadable": "Without tools whose names carry invisible characters: {}.",
}


def sentences(gaps: Mapping[str, Gap]) -> tuple[str, ...]:
    """One sentence for each kind of gap, naming its servers."""
    by_kind: dict[Gap, list[str]] = {kind: [] for kind in _SENTENCES}
    for server_id, kind in gaps.items():
        by_kind[kind].append(server_id)
    return tuple(_SENTENCES[kind].format(_named(servers)) for kind, servers in by_kind.items() if servers)


def switched_off(project_id: str | None) -> str:
    where = "without a project" if project_id is None else f"in project `{project_id}`"
    return f"Tool discovery is switched off {where} (`optimization: null`), so nothing was searched."


def local_answered(reason: str) -> str:
    """`reason` goes on from "the search service"."""
    return f"The local search answered, because the search service {reason}."


def not_served(queries: Sequence[int]) -> str:
    """Which of several queries found nothing that fits; counted from 0, as `intents` does."""
    return f"No tool seems to fit {_which(queries)}. Try other words for that."


def no_room(queries: Sequence[int]) -> str:
    """Which of several queries have tools that fit, but had to give way."""
    return f"There was no room for the tools that fit {_which(queries)}: raise `maxResults` or ask for that alone."


DOUBTFUL = 0.2  # a relevance below this probably does not fit
NOTHING_FITS = "No tool seems to fit. Try other words, with one query for each step of the task."
NO_TOOLS = "There are no tools that you can use here."


def _which(queries: Sequence[int]) -> str:
    return ", ".join(f"query[{index}]" for index in queries)


def _named(server_ids: Sequence[str]) -> str:
    named = ", ".join(f"`{server_id}`" for server_id in server_ids[:MAX_NAMED])
    return named if len(server_ids) <= MAX_NAMED else f"{named} and {len(server_ids) - MAX_NAMED} more"
